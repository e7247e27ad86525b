// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// Workers of the reconcilers whose objects have little to do with each other.
const workers = 4

// addReconcilers says who looks again at what when something changes.
func addReconcilers(m manager.Manager, o Options) error {
	a := &access{Client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorderFor(eventSource)}
	w := watches{a}
	everything := handler.EnqueueRequestsFromMapFunc(w.everything)
	err := ctrl.NewControllerManagedBy(m).Named("numbering").WithOptions(queue(1)).
		WatchesRawSource(source.Func(once)).
		Watches(&v1alpha1.Network{}, everything, builder.WithPredicates(decisive())).
		Watches(&v1alpha1.Router{}, everything).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(nodeChanged())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.leaving), builder.WithPredicates(onlyDelete())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.leaving), builder.WithPredicates(onlyDelete())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.leavingDefault), builder.WithPredicates(podChanged())).
		Complete(&numbering{access: a, numbers: translate.Numbers{VNIs: o.VNIs}})
	if err != nil {
		return fmt.Errorf("numbering: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).Named("namespaces").WithOptions(queue(workers)).
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.namespacesOnNode), builder.WithPredicates(nodeChanged())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.namespacesOfNetwork), builder.WithPredicates(decisive())).
		Watches(&v1alpha1.Router{}, handler.EnqueueRequestsFromMapFunc(namespaceMadeFor)).
		Complete(&namespaces{access: a, mapping: o.Mapping})
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	claims := claims{a}
	err = ctrl.NewControllerManagedBy(m).Named("ports").WithOptions(queue(workers)).
		Watches(&v1alpha1.Port{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.unsettled), builder.WithPredicates(onlyDelete())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(portOfBlock)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.unsettled), builder.WithPredicates(onlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.portsOfNetwork), builder.WithPredicates(decisive())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.portsInNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.portsOfPod), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.portsOnNode), builder.WithPredicates(onlyDelete())).
		Complete(&ports{access: a, claims: claims})
	if err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).Named("blocks").WithOptions(queue(workers)).
		Watches(&v1alpha1.AddressBlock{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.blockAround), builder.WithPredicates(onlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(byNetwork)), builder.WithPredicates(decisive())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(byNode)), builder.WithPredicates(onlyDelete())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(byPort)), builder.WithPredicates(onlyDelete())).
		Complete(&blocks{access: a, claims: claims})
	if err != nil {
		return fmt.Errorf("blocks: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).Named("usage").WithOptions(queue(workers)).
		Watches(&v1alpha1.Network{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(networkOf)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(networkOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(toDefault), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(toDefault), builder.WithPredicates(nodeChanged())).
		Complete(&usage{access: a, interval: o.UsageInterval})
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).Named("loadbalancers").WithOptions(queue(1)).
		Watches(&v1alpha1.LoadBalancerPool{}, everything, builder.WithPredicates(poolChanged())).
		Watches(&corev1.Service{}, everything, builder.WithPredicates(serviceChanged())).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(nodeChanged())).
		Complete(&loadBalancers{access: a, told: ofServices(), interval: o.UsageInterval})
	if err != nil {
		return fmt.Errorf("loadbalancers: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).Named("services").WithOptions(queue(1)).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(serviceChanged())).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(requestOfSlice), builder.WithPredicates(sliceChanged())).
		Complete(&services{access: a, told: ofServices()})
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return nil
}

// once asks for everything at the start: in an empty cluster nothing else does.
func once(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(request("", "all")[0])
	return nil
}

// onlyDelete lets through that something is gone.
func onlyDelete() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// updated lets through all but updates that change nothing of interest.
func updated[T client.Object](same func(a, b T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(T), e.ObjectNew.(T)
		return before.GetUID() != now.GetUID() || !same(before, now)
	}}
}

// decisive leaves out that the usage of a Network was written.
func decisive() predicate.Predicate {
	return updated(func(a, b *v1alpha1.Network) bool {
		x, y := a.Status, b.Status
		x.Blocks, x.AddressesUsed, x.AddressesFree = y.Blocks, y.AddressesUsed, y.AddressesFree
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			slices.Equal(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
			equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(x, y)
	})
}

// nodeChanged leaves out heartbeats.
func nodeChanged() predicate.Predicate {
	return updated(func(a, b *corev1.Node) bool {
		return a.Spec.PodCIDR == b.Spec.PodCIDR && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) &&
			slices.Equal(a.Status.Addresses, b.Status.Addresses)
	})
}

// poolChanged leaves out that its addresses in use were counted.
func poolChanged() predicate.Predicate {
	return updated(func(a, b *v1alpha1.LoadBalancerPool) bool {
		x, y := a.Status, b.Status
		x.Assigned = y.Assigned
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			slices.Equal(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(x, y)
	})
}

// serviceChanged leaves out what is not read of a Service.
func serviceChanged() predicate.Predicate {
	return updated(func(a, b *corev1.Service) bool {
		return a.DeletionTimestamp.Equal(b.DeletionTimestamp) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
			equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status, b.Status)
	})
}

// sliceChanged leaves out that endpoints come and go.
func sliceChanged() predicate.Predicate {
	return updated(func(a, b *discoveryv1.EndpointSlice) bool {
		return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
			equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints)
	})
}

// podChanged leaves out what is not read of a pod.
func podChanged() predicate.Predicate {
	return updated(func(a, b *corev1.Pod) bool {
		return a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase && slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
	})
}

func request(namespace, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

func namespaceOf(_ context.Context, o client.Object) []reconcile.Request {
	return request("", o.GetNamespace())
}

func namespaceMadeFor(_ context.Context, o client.Object) []reconcile.Request {
	if name := madeFor(o); name != "" {
		return request("", name)
	}
	return nil
}

func networkOf(_ context.Context, o client.Object) []reconcile.Request {
	return request("", networkName(o))
}

func networkName(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Port:
		return o.Spec.Network
	case *v1alpha1.AddressBlock:
		return o.Spec.Network
	}
	return ""
}

func toDefault(context.Context, client.Object) []reconcile.Request {
	return request("", v1alpha1.DefaultNetwork)
}
