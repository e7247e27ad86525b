// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/heartbeat"
)

// Workers is the concurrency of reconcilers of objects that hardly depend on each other.
const Workers = 4

// WithHeartbeat puts a reconciler under the heartbeat: /healthz reports reconciliations that do not
// end.
func WithHeartbeat(loop *heartbeat.Loop, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		defer loop.Step()()
		return r.Reconcile(ctx, request)
	})
}

// AtStart asks for everything at the start: in an empty cluster nothing else does.
func AtStart(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	queue.Add(RequestFor("", "all")[0])
	return nil
}

// OnlyDelete lets deletions through.
func OnlyDelete() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Updated lets all through but updates that change nothing of interest.
func Updated[T client.Object](same func(a, b T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(T), e.ObjectNew.(T)
		return before.GetUID() != now.GetUID() || !same(before, now)
	}}
}

// NetworkChanged leaves out that the usage of a Network was written.
func NetworkChanged() predicate.Predicate {
	return Updated(func(a, b *v1alpha1.Network) bool {
		x, y := a.Status, b.Status
		x.Blocks, x.AddressesUsed, x.AddressesFree = y.Blocks, y.AddressesUsed, y.AddressesFree
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			slices.Equal(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
			equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(x, y)
	})
}

// NodeChanged leaves out heartbeats.
func NodeChanged() predicate.Predicate {
	return Updated(SameNode)
}

// SameNode reports whether two versions of a node have the same podCIDRs and addresses.
func SameNode(a, b *corev1.Node) bool {
	return a.Spec.PodCIDR == b.Spec.PodCIDR && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) &&
		slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

// RequestFor returns the request for an object.
func RequestFor(namespace, name string) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// Everything is the one request of a reconciler that looks at all objects.
func Everything(context.Context, client.Object) []ctrl.Request {
	return RequestFor("", "all")
}

// Listed returns requests for the objects of a list.
func Listed[T client.Object](list []T, err error, which func(T) bool) []ctrl.Request {
	if err != nil {
		ctrl.Log.Error(err, "cannot list objects from the cache")
		return nil
	}
	var requests []ctrl.Request
	for _, o := range list {
		if which == nil || which(o) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return requests
}
