// SPDX-License-Identifier: Apache-2.0

package networks

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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// ports gives users' Ports their addresses and MAC, takes them off nodes that are gone, and removes
// the Ports of pods that are gone, and those that agents have made for machines, which their agents
// do unless they are gone as well.
type ports struct {
	*reconcile.Access
	claims claims
}

func (r *ports) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("ports").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.Port{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(portChanged())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.unsettled),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(portOfBlock)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.unsettled),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.portsOfNetwork),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.portsInNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.portsOfPod), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.portsOnNode),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("ports"), r))
}

// Reconcile is for one Port.
func (r *ports) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	port := &v1alpha1.Port{}
	there, err := r.Find(ctx, request.Namespace, request.Name, port)
	if err != nil || !there || port.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	switch {
	case port.Spec.Pod != nil:
		return reconcile.Requeue(r.ofPod(ctx, port))
	case port.Spec.Dynamic:
		return reconcile.Requeue(r.dynamic(ctx, port))
	}
	again, err := r.ofUser(ctx, port)
	if err != nil {
		return reconcile.Requeue(err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// ofPod removes the Port of a pod that is gone, has ended, or was on a node that is gone.
func (r *ports) ofPod(ctx context.Context, port *v1alpha1.Port) error {
	over, err := r.podIsOver(ctx, port)
	if err != nil || !over {
		return err
	}
	if err := r.Remove(ctx, port); err != nil {
		return fmt.Errorf("delete port %s/%s: %w", port.Namespace, port.Name, err)
	}
	return nil
}

// dynamic removes the Port that the agent of a node that is gone has made for a machine.
func (r *ports) dynamic(ctx context.Context, port *v1alpha1.Port) error {
	gone, err := r.NodeGone(ctx, port.Spec.Node)
	if err != nil || !gone {
		return err
	}
	if err := r.Remove(ctx, port); err != nil {
		return fmt.Errorf("delete port %s/%s: %w", port.Namespace, port.Name, err)
	}
	return nil
}

func (r *ports) podIsOver(ctx context.Context, port *v1alpha1.Port) (bool, error) {
	pod := &corev1.Pod{}
	there, err := r.Find(ctx, port.Namespace, port.Spec.Pod.Name, pod)
	if err != nil {
		return false, err
	}
	if !there || string(pod.UID) != port.Spec.Pod.UID {
		return r.Gone(ctx, port.Namespace, port.Spec.Pod.Name, types.UID(port.Spec.Pod.UID), &corev1.Pod{})
	}
	if !translate.OnPodNetwork(pod) {
		return true, nil
	}
	return r.NodeGone(ctx, pod.Spec.NodeName)
}

// ofUser brings a user's Port to what it is to have, and says when to look again
// if nothing else happens.
func (r *ports) ofUser(ctx context.Context, port *v1alpha1.Port) (again time.Duration, err error) {
	now := port.DeepCopy()
	if now.Status.Node != "" {
		gone, err := r.NodeGone(ctx, now.Status.Node)
		if err != nil {
			return 0, err
		}
		if gone {
			now.Status.Node, now.Status.BoundTime = "", nil
		}
	}
	outcome, err := r.outcome(ctx, port)
	if err != nil {
		return 0, err
	}
	outcome.apply(now)
	return outcome.again, r.write(ctx, port, now)
}

// outcome judges the Port by all that it depends on, and claims what it is to have. A Port that is
// wrong by itself keeps nothing from others.
func (r *ports) outcome(ctx context.Context, port *v1alpha1.Port) (outcome, error) {
	network, namespace := &v1alpha1.Network{}, &corev1.Namespace{}
	if there, err := r.Find(ctx, "", port.Spec.Network, network); err != nil {
		return outcome{}, err
	} else if !there {
		network = nil
	}
	if there, err := r.Find(ctx, "", port.Namespace, namespace); err != nil {
		return outcome{}, err
	} else if !there {
		namespace = nil
	}
	list, err := reconcile.All(ctx, r, &v1alpha1.PortList{},
		client.MatchingFields{reconcile.ByNetwork: port.Spec.Network})
	if err != nil {
		return outcome{}, err
	}
	others := reconcile.Pointers(list.Items)
	verdict := allocate.CheckPort(port, network, namespace, others)
	if verdict.Reason == "" {
		return r.claims.settle(ctx, port, network, verdict, others)
	}
	o := refused(verdict.Reason, verdict.Message)
	if o.state == lost {
		err = r.claims.release(ctx, claimantPort(port), "")
	}
	return o, err
}

// write patches what is different, but only if the Port has not changed since: its
// agent writes as well.
func (r *ports) write(ctx context.Context, before, now *v1alpha1.Port) error {
	if equality.Semantic.DeepEqual(before.Status, now.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, now,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of port %s/%s: %w", now.Namespace, now.Name, err)
	}
	// The node has made an Event of its own complaint.
	if now.Status.LastError != "" && now.Status.LastError != before.Status.LastError {
		ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		r.Events.Event(now, corev1.EventTypeWarning, ready.Reason, ready.Message)
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

// apply writes the outcome into a status. What the Port's node complains of, which it writes as
// "Reason: text" into the last error and takes away itself, stays, and is the condition of a Port
// that is right otherwise.
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
	reconcile.SetCondition(&s.Conditions, condition)
}

// reasonWaiting is of a Port that waits for a node to say whether its address is free.
const reasonWaiting = "WaitingForNode"
