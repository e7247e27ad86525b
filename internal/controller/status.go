// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// write brings all Networks and Routers to what was decided, Routers first: a Network's agents look for its Router.
func (r *numbering) write(ctx context.Context, c translate.Cluster, a translate.Allocation) error {
	routers := each(ctx, c.Routers, func(ctx context.Context, o *v1alpha1.Router) error {
		return r.writeRouter(ctx, o, c.Networks, a)
	})
	// Also if one Router fails for good.
	networks := each(ctx, c.Networks, func(ctx context.Context, n *v1alpha1.Network) error { return r.writeNetwork(ctx, n, a) })
	if networks == nil || routers != nil && !isFaster(routers) {
		return routers
	}
	return networks
}

func isFaster(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (r *numbering) writeNetwork(ctx context.Context, n *v1alpha1.Network, a translate.Allocation) error {
	now := n.DeepCopy()
	var users []string
	if now.DeletionTimestamp != nil {
		var err error
		if users, err = r.networkUsers(ctx, now); err != nil {
			return err
		}
	}
	if gone, err := r.hold(ctx, now, users); err != nil || gone {
		return err
	}
	before := now.DeepCopy()
	if v, decided := a.Networks[n.Name]; decided {
		now.Status.ID, now.Status.VNI, now.Status.Router, now.Status.Subnets = v.ID, v.VNI, v.Router, v.Subnets
		setReady(&now.Status.Conditions, now.Generation, v.Verdict)
	}
	setBlocked(&now.Status.Conditions, now.Generation, users)
	if !equality.Semantic.DeepEqual(before.Status, now.Status) {
		if err := r.writeStatus(ctx, before, now); err != nil {
			return err
		}
		r.announce(now, a.Networks[n.Name].Verdict, before.Status.Conditions, now.Status.Conditions)
	}
	if now.ResourceVersion != n.ResourceVersion {
		r.networks.keep(now)
	}
	return nil
}

func (r *numbering) writeRouter(ctx context.Context, o *v1alpha1.Router, networks []*v1alpha1.Network, a translate.Allocation) error {
	now := o.DeepCopy()
	var users []string
	if now.DeletionTimestamp != nil {
		users = routerUsers(now, networks)
	}
	if gone, err := r.hold(ctx, now, users); err != nil || gone {
		return err
	}
	before := now.DeepCopy()
	if v, decided := a.Routers[o.Name]; decided {
		now.Status.ID, now.Status.VNI = v.ID, v.VNI
		now.Status.RouteDistinguisher, now.Status.Networks = v.RouteDistinguisher, v.Networks
		setReady(&now.Status.Conditions, now.Generation, v.Verdict)
	}
	setBlocked(&now.Status.Conditions, now.Generation, users)
	if !equality.Semantic.DeepEqual(before.Status, now.Status) {
		if err := r.writeStatus(ctx, before, now); err != nil {
			return err
		}
		r.announce(now, a.Routers[o.Name].Verdict, before.Status.Conditions, now.Status.Conditions)
	}
	if now.ResourceVersion != o.ResourceVersion {
		r.routers.keep(now)
	}
	return nil
}

// hold puts the finalizer on an object, or takes it off one that is being deleted and has no users; then it is gone. Those
// of namespaces are made with it, and lose it only to be deleted.
func (a *access) hold(ctx context.Context, now client.Object, users []string) (gone bool, err error) {
	before := now.DeepCopyObject().(client.Object)
	switch {
	case now.GetDeletionTimestamp() == nil:
		if madeFor(now) != "" || !controllerutil.AddFinalizer(now, v1alpha1.FinalizerInUse) {
			return false, nil
		}
	case len(users) > 0 || !controllerutil.RemoveFinalizer(now, v1alpha1.FinalizerInUse):
		return false, nil
	default:
		gone = true
	}
	err = a.Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return false, fmt.Errorf("finalizer of %s: %w", now.GetName(), err)
	}
	return gone, nil
}

func (a *access) writeStatus(ctx context.Context, before, now client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.Status().Patch(ctx, now, patch); err != nil {
		return fmt.Errorf("status of %s: %w", now.GetName(), err)
	}
	return nil
}

// announce tells people once of what does not work, and why.
func (a *access) announce(about client.Object, v translate.Verdict, before, now []metav1.Condition) {
	for _, c := range now {
		old := meta.FindStatusCondition(before, c.Type)
		changed := old == nil || old.Status != c.Status || old.Reason != c.Reason
		switch {
		case c.Type == v1alpha1.ConditionReady && v.Warning != "" && (old == nil || old.Message != c.Message):
			a.events.Event(about, corev1.EventTypeWarning, v1alpha1.ReasonSubnetOverlaps, v.Warning)
		case c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse && (changed || old.Message != c.Message):
			a.events.Event(about, corev1.EventTypeWarning, c.Reason, c.Message)
		case c.Type == v1alpha1.ConditionDeletionBlocked && changed:
			a.events.Event(about, corev1.EventTypeWarning, c.Reason, c.Message)
		}
	}
}

func setReady(conditions *[]metav1.Condition, generation int64, v translate.Verdict) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: v.Message, ObservedGeneration: generation,
	}
	if !v.Ready() {
		c.Status, c.Reason = metav1.ConditionFalse, v.Reason
	}
	setCondition(conditions, c)
}

// setCondition leaves alone what is equal: slices may be shared with others.
func setCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	own := slices.Clone(*conditions)
	if meta.SetStatusCondition(&own, c) {
		*conditions = own
	}
}

// maxUsers is how many of an object's users a message names.
const maxUsers = 5

func setBlocked(conditions *[]metav1.Condition, generation int64, users []string) {
	if len(users) == 0 {
		return
	}
	setCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionDeletionBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInUse,
		Message: "it is used by " + enumerate(users) + ", and goes when they are gone", ObservedGeneration: generation,
	})
}
