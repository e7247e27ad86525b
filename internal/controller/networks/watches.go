// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// watches finds in memory what a change concerns. A list from memory fails for a field without an
// index only, that is never, or when the controller ends, which needs no requests any more.
type watches struct{ *reconcile.Access }

// leaving asks for everything when something of a Network that is being deleted is gone.
func (w watches) leaving(ctx context.Context, o client.Object) []ctrl.Request {
	return w.ifDeleted(ctx, networkName(o))
}

func (w watches) leavingDefault(ctx context.Context, _ client.Object) []ctrl.Request {
	return w.ifDeleted(ctx, v1alpha1.DefaultNetwork)
}

func (w watches) ifDeleted(ctx context.Context, network string) []ctrl.Request {
	n := &v1alpha1.Network{}
	if there, err := w.Find(ctx, "", network, n); err != nil || !there || n.DeletionTimestamp == nil {
		return nil
	}
	return reconcile.Everything(ctx, n)
}

func (w watches) ports(ctx context.Context, which func(*v1alpha1.Port) bool, opts ...client.ListOption) []ctrl.Request {
	list, err := reconcile.All(ctx, w, &v1alpha1.PortList{}, opts...)
	return reconcile.Listed(reconcile.Pointers(list.Items), err, which)
}

// namespacesOnNode are those with pods on a node, or with a Network for it.
func (w watches) namespacesOnNode(ctx context.Context, o client.Object) []ctrl.Request {
	pods, err := reconcile.All(ctx, w, &corev1.PodList{}, client.MatchingFields{reconcile.ByNode: o.GetName()})
	if err != nil {
		return nil
	}
	namespaces := map[string]bool{}
	for _, p := range pods.Items {
		namespaces[p.Namespace] = true
	}
	networks, err := reconcile.All(ctx, w, &v1alpha1.NetworkList{},
		client.MatchingLabels{v1alpha1.LabelNode: names.LabelValue(o.GetName())})
	if err != nil {
		return nil
	}
	for _, n := range reconcile.Pointers(networks.Items) {
		if namespace := translate.MadeFor(n); namespace != "" {
			namespaces[namespace] = true
		}
	}
	var requests []ctrl.Request
	for name := range namespaces {
		requests = append(requests, reconcile.RequestFor("", name)...)
	}
	return requests
}

// namespacesOfNetwork is the one that a Network, or the Router that it is in, was made for, or all
// if it is a user's and selects some.
func (w watches) namespacesOfNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	n := o.(*v1alpha1.Network)
	if translate.MadeFor(n) != "" || n.Spec.Role != v1alpha1.Primary || n.Spec.NamespaceSelector == nil {
		r := &v1alpha1.Router{}
		if there, err := w.Find(ctx, "", translate.EffectiveRouter(n), r); err == nil && there {
			return append(namespaceMadeFor(ctx, r), namespaceMadeFor(ctx, n)...)
		}
		return namespaceMadeFor(ctx, n)
	}
	list, err := reconcile.All(ctx, w, &corev1.NamespaceList{})
	return reconcile.Listed(reconcile.Pointers(list.Items), err, nil)
}

// unsettled are the users' Ports of a Network that may get what another one, or a block, has left.
func (w watches) unsettled(ctx context.Context, o client.Object) []ctrl.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool {
		return !p.Spec.ByAgent() && p.Status.Phase != v1alpha1.PortReady && p.Status.Phase != v1alpha1.PortBound
	}, client.MatchingFields{reconcile.ByNetwork: networkName(o)})
}

func portOfBlock(_ context.Context, o client.Object) []ctrl.Request {
	namespace, name, of := strings.Cut(o.(*v1alpha1.AddressBlock).Spec.Port, "/")
	if !of {
		return nil
	}
	return reconcile.RequestFor(namespace, name)
}

// portsOfNetwork are the users' Ports: those of pods are their agents' concern.
func (w watches) portsOfNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool {
		return !p.Spec.ByAgent()
	}, client.MatchingFields{reconcile.ByNetwork: o.GetName()})
}

func (w watches) portsInNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool { return !p.Spec.ByAgent() }, client.InNamespace(o.GetName()))
}

func (w watches) portsOfPod(ctx context.Context, o client.Object) []ctrl.Request {
	return w.ports(ctx, nil, client.InNamespace(o.GetNamespace()), client.MatchingFields{reconcile.ByPod: o.GetName()})
}

// portsOnNode are those that a node has bound, and those of its pods.
func (w watches) portsOnNode(ctx context.Context, o client.Object) []ctrl.Request {
	requests := w.ports(ctx, nil, client.MatchingFields{reconcile.ByNode: o.GetName()})
	pods, err := reconcile.All(ctx, w, &corev1.PodList{}, client.MatchingFields{reconcile.ByNode: o.GetName()})
	if err != nil {
		return requests
	}
	for _, p := range reconcile.Pointers(pods.Items) {
		requests = append(requests, w.portsOfPod(ctx, p)...)
	}
	return requests
}

// blocksBy finds the blocks that name an object in a field.
func (w watches) blocksBy(field string) func(context.Context, client.Object) []ctrl.Request {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = types.NamespacedName{Namespace: o.GetNamespace(), Name: name}.String()
		}
		list, err := reconcile.All(ctx, w, &v1alpha1.AddressBlockList{}, client.MatchingFields{field: name})
		return reconcile.Listed(reconcile.Pointers(list.Items), err, nil)
	}
}

// blockAround is the controller's block that a single address was claimed of.
func (w watches) blockAround(ctx context.Context, o client.Object) []ctrl.Request {
	a, single := address(o.(*v1alpha1.AddressBlock))
	if !single {
		return nil
	}
	list, err := reconcile.All(ctx, w, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByNetwork: networkName(o)})
	return reconcile.Listed(reconcile.Pointers(list.Items), err, func(b *v1alpha1.AddressBlock) bool {
		prefix, err := netip.ParsePrefix(b.Spec.CIDR)
		return err == nil && ofController(b) && prefix.Contains(a)
	})
}

// podChanged leaves out what is not read of a pod.
func podChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Pod) bool {
		return a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase &&
			slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
	})
}

func namespaceOf(_ context.Context, o client.Object) []ctrl.Request {
	return reconcile.RequestFor("", o.GetNamespace())
}

func namespaceMadeFor(_ context.Context, o client.Object) []ctrl.Request {
	if name := translate.MadeFor(o); name != "" {
		return reconcile.RequestFor("", name)
	}
	return nil
}

func networkOf(_ context.Context, o client.Object) []ctrl.Request {
	return reconcile.RequestFor("", networkName(o))
}

func networkName(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Port:
		return o.Spec.Network
	case *v1alpha1.AddressBlock:
		return o.Spec.Network
	case *v1alpha1.FloatingIP:
		return o.Spec.Network
	}
	return ""
}

func toDefault(context.Context, client.Object) []ctrl.Request {
	return reconcile.RequestFor("", v1alpha1.DefaultNetwork)
}

// portChanged leaves out that a Port's lease was written, as it is whenever the machine renews it.
func portChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *v1alpha1.Port) bool {
		x, y := a.Status, b.Status
		x.Lease, y.Lease = nil, nil
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
			slices.Equal(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
			equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
			equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(x, y)
	})
}
