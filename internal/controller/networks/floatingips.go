// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// floatingIPs gives FloatingIPs their addresses, and says which node answers for each.
type floatingIPs struct {
	*reconcile.Access
	claims claims
}

func (r *floatingIPs) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("floatingips").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.FloatingIP{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.FloatingIP{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfSamePort),
			builder.WithPredicates(floatingIPChanged())).
		Watches(&v1alpha1.FloatingIP{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfSameService),
			builder.WithPredicates(floatingIPChanged())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfService),
			builder.WithPredicates(serviceChanged())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(floatingIPOfBlock)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfNetwork),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsInNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfPort),
			builder.WithPredicates(portMoved())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsOfPod),
			builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsWithout),
			builder.WithPredicates(reconcile.NodeChanged())).
		Watches(&v1alpha1.LoadBalancerPool{}, handler.EnqueueRequestsFromMapFunc(w.floatingIPsWithout),
			builder.WithPredicates(rangesChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("floatingips"), r))
}

// Reconcile is for one FloatingIP.
func (r *floatingIPs) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	f := &v1alpha1.FloatingIP{}
	there, err := r.Find(ctx, request.Namespace, request.Name, f)
	if err != nil || !there || f.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	now := f.DeepCopy()
	a, refusal, err := r.address(ctx, f)
	if err != nil {
		return reconcile.Requeue(err)
	}
	var again time.Duration
	if refusal == nil {
		target, err := r.target(ctx, f)
		if err != nil {
			return reconcile.Requeue(err)
		}
		applyBinding(now, a, allocate.BindFloatingIP(f, a, target))
	} else {
		again = refusal.again
		applyRefusal(now, *refusal)
	}
	if err := r.write(ctx, f, now); err != nil {
		return reconcile.Requeue(err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// address judges a FloatingIP by its Network and namespace, and claims its address. One that may
// have none keeps none from others.
func (r *floatingIPs) address(ctx context.Context, f *v1alpha1.FloatingIP) (netip.Addr, *outcome, error) {
	network, err := found(ctx, r.Access, "", f.Spec.Network, &v1alpha1.Network{})
	if err != nil {
		return netip.Addr{}, nil, err
	}
	namespace, err := found(ctx, r.Access, "", f.Namespace, &corev1.Namespace{})
	if err != nil {
		return netip.Addr{}, nil, err
	}
	_, held, err := r.claims.held(ctx)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	verdict := allocate.CheckFloatingIP(f, network, namespace, held)
	if verdict.Reason == "" {
		return r.claims.address(ctx, f, network, verdict)
	}
	o := refused(verdict.Reason, verdict.Message)
	if o.state == lost {
		err = r.claims.release(ctx, claimantFloatingIP(f), "")
	}
	return netip.Addr{}, &o, err
}

// found reads an object from memory; nil if it is not there.
func found[T client.Object](ctx context.Context, a *reconcile.Access, namespace, name string, into T) (T, error) {
	var none T
	if there, err := a.Find(ctx, namespace, name, into); err != nil || !there {
		return none, err
	}
	return into, nil
}

// target is what there is of the Port or Service that a FloatingIP names, and the others that name
// it.
func (r *floatingIPs) target(ctx context.Context, f *v1alpha1.FloatingIP) (t allocate.FloatingIPTarget, err error) {
	same := client.MatchingFields{reconcile.ByPort: f.Spec.Port}
	switch {
	case f.Spec.Service != "":
		same = client.MatchingFields{reconcile.ByService: f.Spec.Service}
	case f.Spec.Port == "":
		return t, nil
	}
	list, err := reconcile.All(ctx, r, &v1alpha1.FloatingIPList{}, client.InNamespace(f.Namespace), same)
	if err != nil {
		return t, err
	}
	t.Others, t.Networks = reconcile.Pointers(list.Items), map[string]*v1alpha1.Network{}
	for _, o := range t.Others {
		name := o.Spec.Network
		if _, known := t.Networks[name]; known {
			continue
		}
		if t.Networks[name], err = found(ctx, r.Access, "", name, &v1alpha1.Network{}); err != nil {
			return t, err
		}
	}
	if f.Spec.Service != "" {
		t.Service, err = found(ctx, r.Access, f.Namespace, f.Spec.Service, &corev1.Service{})
		return t, err
	}
	if t.Port, err = found(ctx, r.Access, f.Namespace, f.Spec.Port, &v1alpha1.Port{}); err != nil {
		return t, err
	}
	if t.Port != nil {
		t.Network, err = found(ctx, r.Access, "", t.Port.Spec.Network, &v1alpha1.Network{})
		return t, err
	}
	t.Pod, err = r.podOf(ctx, f)
	return t, err
}

// firstInterface is that of a pod on the Network default, where pods have no Port object.
const firstInterface = "eth0"

// podOf is the attached pod with the first interface that a FloatingIP names; nil if there is none.
func (r *floatingIPs) podOf(ctx context.Context, f *v1alpha1.FloatingIP) (*corev1.Pod, error) {
	attached := func(p *corev1.Pod) bool { return translate.OnPodNetwork(p) && len(p.Status.PodIPs) > 0 }
	if name, is := strings.CutSuffix(f.Spec.Port, "."+firstInterface); is {
		pod, err := found(ctx, r.Access, f.Namespace, name, &corev1.Pod{})
		if err != nil || pod == nil || !attached(pod) {
			return nil, err
		}
		return pod, nil
	}
	// The Port of a pod with a very long name ends with a hash.
	list, err := reconcile.All(ctx, r, &corev1.PodList{}, client.InNamespace(f.Namespace))
	if err != nil {
		return nil, err
	}
	for _, p := range reconcile.Pointers(list.Items) {
		if attached(p) && attachment.PortName(p.Name, firstInterface) == f.Spec.Port {
			return p, nil
		}
	}
	return nil, nil
}

// applyBinding writes into the status what has become of a FloatingIP with an address.
func applyBinding(f *v1alpha1.FloatingIP, a netip.Addr, b allocate.FloatingIPBinding) {
	f.Status.Address, f.Status.Node = a.String(), b.Node
	setReady(f, !b.Refused, b.Reason, b.Message)
}

// applyRefusal writes into the status why a FloatingIP has no effect.
func applyRefusal(f *v1alpha1.FloatingIP, o outcome) {
	f.Status.Node = ""
	if o.state == lost {
		f.Status.Address = ""
	}
	setReady(f, false, o.reason, o.message)
}

func setReady(f *v1alpha1.FloatingIP, ready bool, reason, message string) {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	reconcile.SetCondition(&f.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: f.Generation,
	})
}

// write patches what is different, and makes an Event of what is wrong.
func (r *floatingIPs) write(ctx context.Context, before, now *v1alpha1.FloatingIP) error {
	if equality.Semantic.DeepEqual(before.Status, now.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, now,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of floatingip %s: %w", key(now), err)
	}
	r.Announce(now, allocate.Verdict{}, before.Status.Conditions, now.Status.Conditions)
	return nil
}
