// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/translate"
)

// IsFaster reports whether a write failed because another writer was faster.
func IsFaster(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// ObjectRef names an object as agents do when they report that their switch refuses it.
func ObjectRef(kind intent.Kind, name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.PolicyKind(kind), Name: name}
}

// Hold puts the finalizer on an object, or takes it off one that is being deleted and has no users;
// then it is gone. Those of namespaces are made with it, and lose it only to be deleted.
func (a *Access) Hold(ctx context.Context, now client.Object, users []string) (gone bool, err error) {
	before := now.DeepCopyObject().(client.Object)
	switch {
	case now.GetDeletionTimestamp() == nil:
		if translate.MadeFor(now) != "" || !controllerutil.AddFinalizer(now, v1alpha1.FinalizerInUse) {
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

// WriteStatus patches what differs, if the object has not changed since it was read.
func (a *Access) WriteStatus(ctx context.Context, before, now client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.Status().Patch(ctx, now, patch); err != nil {
		return fmt.Errorf("status of %s: %w", now.GetName(), err)
	}
	return nil
}

// Announce makes one Event of each condition that has come to say that something does
// not work, and why.
func (a *Access) Announce(about client.Object, v allocate.Verdict, before, now []metav1.Condition) {
	for _, c := range now {
		old := meta.FindStatusCondition(before, c.Type)
		changed := old == nil || old.Status != c.Status || old.Reason != c.Reason
		switch {
		case c.Type == v1alpha1.ConditionReady && v.Warning != "" && (old == nil || old.Message != c.Message):
			a.Events.Event(about, corev1.EventTypeWarning, v1alpha1.ReasonSubnetOverlaps, v.Warning)
		case (c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionGatewayReady) &&
			c.Status == metav1.ConditionFalse && (changed || old.Message != c.Message):
			a.Events.Event(about, corev1.EventTypeWarning, c.Reason, c.Message)
		case changed && (c.Type == v1alpha1.ConditionDeletionBlocked || c.Reason == v1alpha1.ReasonNodesNotConnected ||
			c.Reason == v1alpha1.ReasonPodsTaken):
			a.Events.Event(about, corev1.EventTypeWarning, c.Reason, c.Message)
		}
	}
}

// SetReady sets the condition Ready to a verdict.
func SetReady(conditions *[]metav1.Condition, generation int64, v allocate.Verdict) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: v.Message, ObservedGeneration: generation,
	}
	if !v.Ready() {
		c.Status, c.Reason = metav1.ConditionFalse, v.Reason
	}
	SetCondition(conditions, c)
}

// SetCondition leaves alone what is equal: slices may be shared.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	own := slices.Clone(*conditions)
	if meta.SetStatusCondition(&own, c) {
		*conditions = own
	}
}

// maxUsers is how many of an object's users a message names.
const maxUsers = 5

// SetBlocked adds the condition that says why an object that is being deleted stays.
func SetBlocked(conditions *[]metav1.Condition, generation int64, users []string) {
	if len(users) == 0 {
		return
	}
	SetCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionDeletionBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInUse,
		Message: "it is used by " + enumerate(users) + ", and goes when they are gone", ObservedGeneration: generation,
	})
}

// RefusedMessage says on how many nodes an object is left out, and why on one of them; empty if on
// none. What a central system does not do of it is there without a node, and comes first.
func RefusedMessage(list []server.NodeRefusal) string {
	switch {
	case len(list) == 0:
		return ""
	case list[0].Node == "":
		return list[0].Reason
	case len(list) == 1:
		return fmt.Sprintf("left out on node %s, whose switch refuses it: %s", list[0].Node, list[0].Reason)
	}
	return fmt.Sprintf("left out on %d nodes, whose switches refuse it, such as %s: %s", len(list), list[0].Node,
		list[0].Reason)
}

// formerConditions are those that older releases leave behind.
var formerConditions = []string{"Realised", "Refused"}

// SetProgrammed sets the condition Programmed. The progress says how many nodes have the
// object, and pending whether some are missing; refused are the nodes that leave it out.
func SetProgrammed(
	conditions *[]metav1.Condition, generation int64, pending bool, progress string, refused []server.NodeRefusal,
) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgrammed,
		Message: progress, ObservedGeneration: generation,
	}
	switch {
	case len(refused) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonRefused
		if refused[0].Node == "" {
			c.Reason = v1alpha1.ReasonNotSupported
		}
		c.Message = strings.TrimPrefix(progress+"; "+RefusedMessage(refused), "; ")
	case pending:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonPending
	}
	SetCondition(conditions, c)
	RemoveConditions(conditions, formerConditions...)
}

// RemoveConditions removes those of the given types.
func RemoveConditions(conditions *[]metav1.Condition, types ...string) {
	own := slices.Clone(*conditions) // slices may be shared
	removed := false
	for _, t := range types {
		removed = meta.RemoveStatusCondition(&own, t) || removed
	}
	if removed {
		*conditions = own
	}
}

// enumerate names the first of a list, each once, and counts the rest.
func enumerate(users []string) string {
	users = slices.Compact(slices.Sorted(slices.Values(users)))
	if more := len(users) - maxUsers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(users[:maxUsers], ", "), more)
	}
	return strings.Join(users, ", ")
}
