// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

// gateways finds Routers that have one in memory.
func (w watches) gateways(ctx context.Context, which func(*v1alpha1.Router) bool,
	opts ...client.ListOption,
) []ctrl.Request {
	list, err := reconcile.All(ctx, w, &v1alpha1.RouterList{}, opts...)
	return reconcile.Listed(reconcile.Pointers(list.Items), err, func(o *v1alpha1.Router) bool {
		return o.Spec.Gateway != nil && which(o)
	})
}

func (w watches) allGateways(ctx context.Context, _ client.Object) []ctrl.Request {
	return w.gateways(ctx, func(*v1alpha1.Router) bool { return true })
}

// gatewaysOfNetwork are those of the Network's Router, and those that lead to the Network.
func (w watches) gatewaysOfNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	router := translate.EffectiveRouter(o.(*v1alpha1.Network))
	return w.gateways(ctx, func(r *v1alpha1.Router) bool {
		return r.Name == router || r.Spec.Gateway.Network == o.GetName()
	})
}

// gatewaysOfPort is that of the Router of its Network.
func (w watches) gatewaysOfPort(ctx context.Context, o client.Object) []ctrl.Request {
	n, router := &v1alpha1.Network{}, &v1alpha1.Router{}
	if there, err := w.Find(ctx, "", networkName(o), n); err != nil || !there {
		return nil
	}
	there, err := w.Find(ctx, "", translate.EffectiveRouter(n), router)
	if err != nil || !there || router.Spec.Gateway == nil {
		return nil
	}
	return reconcile.RequestFor("", router.Name)
}

// gatewaysOfBlock is the one that the block is for, or that of the Router that a node hands out
// addresses of.
func (w watches) gatewaysOfBlock(ctx context.Context, o client.Object) []ctrl.Request {
	spec := o.(*v1alpha1.AddressBlock).Spec
	if router, _, is := strings.Cut(spec.Gateway, "/"); is {
		return reconcile.RequestFor("", router)
	}
	if spec.Node == "" {
		return nil
	}
	return w.gatewaysOfPort(ctx, o)
}

// gatewaysWithout have nodes without an address, and may get what a Port or a block of their
// Network has left; or, of any Network, a LoadBalancerPool.
func (w watches) gatewaysWithout(ctx context.Context, o client.Object) []ctrl.Request {
	var opts []client.ListOption
	if network := networkName(o); network != "" {
		opts = append(opts, client.MatchingFields{reconcile.ByNetwork: network})
	}
	return w.gateways(ctx, func(r *v1alpha1.Router) bool {
		return meta.IsStatusConditionFalse(r.Status.Conditions, v1alpha1.ConditionGatewayReady)
	}, opts...)
}

// gatewayNodeChanged leaves out what is not read of a node that may be a gateway.
func gatewayNodeChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Node) bool {
		x, says := a.Annotations[v1alpha1.AnnotationPhysicalNetworks]
		y, said := b.Annotations[v1alpha1.AnnotationPhysicalNetworks]
		return x == y && says == said && maps.Equal(a.Labels, b.Labels) && reconcile.SameNode(a, b)
	})
}
