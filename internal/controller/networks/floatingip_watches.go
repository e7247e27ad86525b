// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/controller/reconcile"
)

// floatingIPs finds them in memory.
func (w watches) floatingIPs(ctx context.Context, which func(*v1alpha1.FloatingIP) bool,
	opts ...client.ListOption,
) []ctrl.Request {
	list, err := reconcile.All(ctx, w, &v1alpha1.FloatingIPList{}, opts...)
	return reconcile.Listed(reconcile.Pointers(list.Items), err, which)
}

// floatingIPsOfSamePort are those that may get the Port when another one has it no longer, and the
// reverse.
func (w watches) floatingIPsOfSamePort(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPsAt(ctx, o.GetNamespace(), o.(*v1alpha1.FloatingIP).Spec.Port)
}

func (w watches) floatingIPsOfSameService(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPsFor(ctx, o.GetNamespace(), o.(*v1alpha1.FloatingIP).Spec.Service)
}

func (w watches) floatingIPsOfService(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPsFor(ctx, o.GetNamespace(), o.GetName())
}

func (w watches) floatingIPsFor(ctx context.Context, namespace, service string) []ctrl.Request {
	if service == "" {
		return nil
	}
	return w.floatingIPs(ctx, nil, client.InNamespace(namespace), client.MatchingFields{reconcile.ByService: service})
}

func (w watches) floatingIPsOfPort(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPsAt(ctx, o.GetNamespace(), o.GetName())
}

func (w watches) floatingIPsOfPod(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPsAt(ctx, o.GetNamespace(), attachment.PortName(o.GetName(), firstInterface))
}

func (w watches) floatingIPsAt(ctx context.Context, namespace, port string) []ctrl.Request {
	if port == "" {
		return nil
	}
	return w.floatingIPs(ctx, nil, client.InNamespace(namespace), client.MatchingFields{reconcile.ByPort: port})
}

func (w watches) floatingIPsOfNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPs(ctx, nil, client.MatchingFields{reconcile.ByNetwork: o.GetName()})
}

func (w watches) floatingIPsInNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	return w.floatingIPs(ctx, nil, client.InNamespace(o.GetName()))
}

// floatingIPsWithout have no address, and may get what a Port or a block of their Network has left;
// or, of any Network, a node or LoadBalancerPool.
func (w watches) floatingIPsWithout(ctx context.Context, o client.Object) []ctrl.Request {
	var opts []client.ListOption
	if network := networkName(o); network != "" {
		opts = append(opts, client.MatchingFields{reconcile.ByNetwork: network})
	}
	return w.floatingIPs(ctx, func(f *v1alpha1.FloatingIP) bool { return f.Status.Address == "" }, opts...)
}

func floatingIPOfBlock(_ context.Context, o client.Object) []ctrl.Request {
	namespace, name, of := strings.Cut(o.(*v1alpha1.AddressBlock).Spec.FloatingIP, "/")
	if !of {
		return nil
	}
	return reconcile.RequestFor(namespace, name)
}

// floatingIPChanged leaves out what does not matter to others that name the same Port or Service.
func floatingIPChanged() predicate.Predicate {
	judged := func(f *v1alpha1.FloatingIP) bool {
		return meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady) != nil
	}
	return reconcile.Updated(func(a, b *v1alpha1.FloatingIP) bool {
		return a.Spec.Port == b.Spec.Port && a.Spec.Service == b.Spec.Service &&
			a.Status.Address == b.Status.Address && judged(a) == judged(b)
	})
}

// serviceChanged leaves out what is not read of the Service of a FloatingIP.
func serviceChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Service) bool {
		return a.Spec.Type == b.Spec.Type && a.Spec.ClusterIP == b.Spec.ClusterIP &&
			slices.Equal(a.Spec.IPFamilies, b.Spec.IPFamilies)
	})
}

// portMoved leaves out what is not read of the Port of a FloatingIP.
func portMoved() predicate.Predicate {
	return reconcile.Updated(func(a, b *v1alpha1.Port) bool {
		return a.Status.Node == b.Status.Node && slices.Equal(a.Status.Addresses, b.Status.Addresses)
	})
}

// rangesChanged leaves out all of a LoadBalancerPool but its addresses in effect.
func rangesChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *v1alpha1.LoadBalancerPool) bool {
		return slices.Equal(a.Status.Ranges, b.Status.Ranges)
	})
}
