// SPDX-License-Identifier: Apache-2.0

// Package loadbalancers decides which addresses of LoadBalancerPools Services have, and reports by
// Events what is wrong with Services and their EndpointSlices.
package loadbalancers

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// Options are what the reconcilers are made with.
type Options struct {
	Mapping config.Mapping
	// ExternalIPs are the only ones that Services may have.
	ExternalIPs []netip.Prefix
	// UsageInterval is the least time between two writes of how many addresses of a pool are used.
	UsageInterval time.Duration
}

// Setup adds the reconcilers to a manager.
func Setup(m manager.Manager, a *reconcile.Access, monitor *heartbeat.Monitor, o Options) error {
	if err := (&loadBalancers{Access: a, events: eventsOfServices(), interval: o.UsageInterval}).setup(m,
		monitor); err != nil {
		return fmt.Errorf("loadbalancers: %w", err)
	}
	services := &services{Access: a, events: eventsOfServices(), mapping: o.Mapping, allowed: o.ExternalIPs}
	if err := services.setup(m, monitor); err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return nil
}

// poolChanged leaves out that its addresses in use were counted.
func poolChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *v1alpha1.LoadBalancerPool) bool {
		x, y := a.Status, b.Status
		x.Assigned = y.Assigned
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			slices.Equal(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(x, y)
	})
}

// isExternal leaves out all other Networks.
func isExternal() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.(*v1alpha1.Network).Spec.External })
}

// serviceChanged leaves out what is not read of a Service.
func serviceChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Service) bool {
		return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
			equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
			equality.Semantic.DeepEqual(a.Status, b.Status)
	})
}

// sliceChanged leaves out that endpoints come and go.
func sliceChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *discoveryv1.EndpointSlice) bool {
		return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
			equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints)
	})
}

// eventsOfServices are the Events about Services.
func eventsOfServices() reconcile.EventDedup { return reconcile.EventDedup{Kinds: []string{"Service"}} }

// problemsOf are Services and what is wrong with them.
func problemsOf(problems []translate.ServiceProblem) []reconcile.Problem {
	list := make([]reconcile.Problem, len(problems))
	for i, p := range problems {
		list[i] = reconcile.Problem{About: &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: p.Service.Namespace, Name: p.Service.Name,
			UID: types.UID(p.UID),
		}, Reason: string(p.Reason), Message: reconcile.MessageOf(p.Problem, "service "+p.Service.String())}
	}
	return list
}
