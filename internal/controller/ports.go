// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// ports gives users' Ports their addresses and MAC, takes them off nodes that are gone, and removes the Ports of pods that
// are gone, which their agents do unless they are gone as well.
type ports struct {
	*access
	claims claims
}

// Reconcile is for one Port.
func (r *ports) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	port := &v1alpha1.Port{}
	there, err := r.find(ctx, request.Namespace, request.Name, port)
	if err != nil || !there || port.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	if port.Spec.Pod != nil {
		return retry(r.ofPod(ctx, port))
	}
	again, err := r.ofUser(ctx, port)
	if err != nil {
		return retry(err)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// ofPod removes the Port of a pod that is gone, has ended, or was on a node that is gone.
func (r *ports) ofPod(ctx context.Context, port *v1alpha1.Port) error {
	over, err := r.podIsOver(ctx, port)
	if err != nil || !over {
		return err
	}
	if err := r.remove(ctx, port); err != nil {
		return fmt.Errorf("delete port %s/%s: %w", port.Namespace, port.Name, err)
	}
	return nil
}

func (r *ports) podIsOver(ctx context.Context, port *v1alpha1.Port) (bool, error) {
	pod := &corev1.Pod{}
	there, err := r.find(ctx, port.Namespace, port.Spec.Pod.Name, pod)
	if err != nil {
		return false, err
	}
	if !there || string(pod.UID) != port.Spec.Pod.UID {
		return r.gone(ctx, port.Namespace, port.Spec.Pod.Name, types.UID(port.Spec.Pod.UID), &corev1.Pod{})
	}
	if !translate.OnPodNetwork(pod) {
		return true, nil
	}
	return r.nodeGone(ctx, pod.Spec.NodeName)
}

func (a *access) nodeGone(ctx context.Context, name string) (bool, error) {
	there, err := a.find(ctx, "", name, &corev1.Node{})
	if err != nil || there {
		return false, err
	}
	return a.gone(ctx, "", name, "", &corev1.Node{})
}

// ofUser brings a user's Port to what it is to have, and says when to look again if nothing else happens.
func (r *ports) ofUser(ctx context.Context, port *v1alpha1.Port) (again time.Duration, err error) {
	now := port.DeepCopy()
	if now.Status.Node != "" {
		gone, err := r.nodeGone(ctx, now.Status.Node)
		if err != nil {
			return 0, err
		}
		if gone {
			now.Status.Node, now.Status.BoundAt = "", nil
		}
	}
	outcome, err := r.outcome(ctx, port)
	if err != nil {
		return 0, err
	}
	outcome.apply(now)
	return outcome.again, r.write(ctx, port, now)
}

// outcome judges the Port by all that it depends on, and claims what it is to have. A Port that is wrong by itself keeps
// nothing from others.
func (r *ports) outcome(ctx context.Context, port *v1alpha1.Port) (outcome, error) {
	network, namespace := &v1alpha1.Network{}, &corev1.Namespace{}
	if there, err := r.find(ctx, "", port.Spec.Network, network); err != nil {
		return outcome{}, err
	} else if !there {
		network = nil
	}
	if there, err := r.find(ctx, "", port.Namespace, namespace); err != nil {
		return outcome{}, err
	} else if !there {
		namespace = nil
	}
	list, err := all(ctx, r, &v1alpha1.PortList{}, client.MatchingFields{byNetwork: port.Spec.Network})
	if err != nil {
		return outcome{}, err
	}
	others := pointers(list.Items)
	verdict := translate.CheckPort(port, network, namespace, others)
	if verdict.Reason == "" {
		return r.claims.settle(ctx, port, network, verdict, others)
	}
	o := refused(verdict.Reason, verdict.Message)
	if o.state == lost {
		err = r.claims.release(ctx, port)
	}
	return o, err
}

// write patches what is different, but only if nobody else has changed the Port since: its agent writes as well.
func (r *ports) write(ctx context.Context, before, now *v1alpha1.Port) error {
	if equality.Semantic.DeepEqual(before.Status, now.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of port %s/%s: %w", now.Namespace, now.Name, err)
	}
	// What a node complains of, it has told already.
	if now.Status.LastError != "" && now.Status.LastError != before.Status.LastError {
		ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		r.events.Event(now, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
	return nil
}

// state is how a Port stands.
type state int

const (
	settled state = iota // it has its addresses and its MAC
	waiting              // something may change by itself; what it has, it keeps
	lost                 // it has nothing
)

// outcome is what a Port's status is to say.
type outcome struct {
	state           state
	reason, message string
	addresses       []string
	mac             string
	again           time.Duration // until it is worth another look if nothing happens; 0: never
}

func refused(reason, message string) outcome {
	o := outcome{state: lost, reason: reason, message: message}
	// A Network that is not ready for a while must not cost a machine its address.
	if reason == v1alpha1.ReasonNetworkNotReady || reason == v1alpha1.ReasonNetworkNotFound {
		o.state = waiting
	}
	return o
}

// apply writes the outcome into a status. What the Port's node complains of, which it writes as "Reason: text" into the
// last error and takes away itself, stays, and is the condition of a Port that is right otherwise.
func (o outcome) apply(p *v1alpha1.Port) {
	s := &p.Status
	was := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	complaint := s.LastError
	if was != nil && was.Message == s.LastError {
		complaint = "" // the controller's own
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: o.reason, Message: o.message,
		ObservedGeneration: p.Generation,
	}
	switch o.state {
	case settled:
		s.Addresses, s.MAC, s.Phase, s.LastError = o.addresses, o.mac, v1alpha1.PortReady, complaint
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonNotBound
		condition.Message = fmt.Sprintf("no interface with iface-id=%s/%s yet", p.Namespace, p.Name)
		reason, text, complains := strings.Cut(complaint, ": ")
		switch {
		case s.Node != "":
			s.Phase, condition.Reason, condition.Message = v1alpha1.PortBound, v1alpha1.ReasonBound, "on node "+s.Node
		case complains && !strings.Contains(reason, " "):
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, text
		}
	case waiting:
		s.Phase, s.LastError = v1alpha1.PortPending, o.message
	case lost:
		s.Phase, s.LastError = v1alpha1.PortFailed, o.message
		s.Addresses, s.MAC = nil, ""
	}
	setCondition(&s.Conditions, condition)
}

// reasonWaiting is of a Port that waits for a node to say whether its address is free.
const reasonWaiting = "WaitingForNode"
