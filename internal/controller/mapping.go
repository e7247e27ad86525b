// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// watches finds in memory what a change concerns. A list from memory fails for a field without an index only, that is
// never, or when the controller ends; then nobody misses the requests.
type watches struct{ *access }

func (w watches) everything(context.Context, client.Object) []reconcile.Request {
	return request("", "all")
}

// leaving asks for everything when something of a Network that is being deleted is gone.
func (w watches) leaving(ctx context.Context, o client.Object) []reconcile.Request {
	return w.ifDeleted(ctx, networkName(o))
}

func (w watches) leavingDefault(ctx context.Context, _ client.Object) []reconcile.Request {
	return w.ifDeleted(ctx, v1alpha1.DefaultNetwork)
}

func (w watches) ifDeleted(ctx context.Context, network string) []reconcile.Request {
	n := &v1alpha1.Network{}
	if there, err := w.find(ctx, "", network, n); err != nil || !there || n.DeletionTimestamp == nil {
		return nil
	}
	return w.everything(ctx, n)
}

// listed are requests for the objects of a list.
func listed[T client.Object](list []T, err error, which func(T) bool) []reconcile.Request {
	if err != nil {
		ctrl.Log.Error(err, "objects cannot be listed from memory")
		return nil
	}
	var requests []reconcile.Request
	for _, o := range list {
		if which == nil || which(o) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return requests
}

func (w watches) ports(ctx context.Context, which func(*v1alpha1.Port) bool, opts ...client.ListOption) []reconcile.Request {
	list, err := all(ctx, w, &v1alpha1.PortList{}, opts...)
	return listed(pointers(list.Items), err, which)
}

// namespacesOnNode are those with pods on a node, or with a Network for it.
func (w watches) namespacesOnNode(ctx context.Context, o client.Object) []reconcile.Request {
	pods, err := all(ctx, w, &corev1.PodList{}, client.MatchingFields{byNode: o.GetName()})
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, p := range pods.Items {
		names[p.Namespace] = true
	}
	networks, err := all(ctx, w, &v1alpha1.NetworkList{}, client.MatchingLabels{v1alpha1.LabelNode: translate.LabelValue(o.GetName())})
	if err != nil {
		return nil
	}
	for _, n := range pointers(networks.Items) {
		if namespace := madeFor(n); namespace != "" {
			names[namespace] = true
		}
	}
	var requests []reconcile.Request
	for name := range names {
		requests = append(requests, request("", name)...)
	}
	return requests
}

// namespacesOfNetwork is the one that a Network, or the Router that it is in, was made for, or all if it selects some.
func (w watches) namespacesOfNetwork(ctx context.Context, o client.Object) []reconcile.Request {
	n := o.(*v1alpha1.Network)
	if n.Spec.Role != v1alpha1.Primary || n.Spec.NamespaceSelector == nil {
		r := &v1alpha1.Router{}
		if there, err := w.find(ctx, "", translate.EffectiveRouter(n), r); err == nil && there {
			return append(namespaceMadeFor(ctx, r), namespaceMadeFor(ctx, n)...)
		}
		return namespaceMadeFor(ctx, n)
	}
	list, err := all(ctx, w, &corev1.NamespaceList{})
	return listed(pointers(list.Items), err, nil)
}

// unsettled are the users' Ports of a Network that may get what another one, or a block, has left.
func (w watches) unsettled(ctx context.Context, o client.Object) []reconcile.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool {
		return p.Spec.Pod == nil && p.Status.Phase != v1alpha1.PortReady && p.Status.Phase != v1alpha1.PortBound
	}, client.MatchingFields{byNetwork: networkName(o)})
}

func portOfBlock(_ context.Context, o client.Object) []reconcile.Request {
	namespace, name, of := strings.Cut(o.(*v1alpha1.AddressBlock).Spec.Port, "/")
	if !of {
		return nil
	}
	return request(namespace, name)
}

// portsOfNetwork are the users' Ports: those of pods are their agents' concern.
func (w watches) portsOfNetwork(ctx context.Context, o client.Object) []reconcile.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool { return p.Spec.Pod == nil }, client.MatchingFields{byNetwork: o.GetName()})
}

func (w watches) portsInNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return w.ports(ctx, func(p *v1alpha1.Port) bool { return p.Spec.Pod == nil }, client.InNamespace(o.GetName()))
}

func (w watches) portsOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	return w.ports(ctx, nil, client.InNamespace(o.GetNamespace()), client.MatchingFields{byPod: o.GetName()})
}

// portsOnNode are those that a node has bound, and those of its pods.
func (w watches) portsOnNode(ctx context.Context, o client.Object) []reconcile.Request {
	requests := w.ports(ctx, nil, client.MatchingFields{byNode: o.GetName()})
	pods, err := all(ctx, w, &corev1.PodList{}, client.MatchingFields{byNode: o.GetName()})
	if err != nil {
		return requests
	}
	for _, p := range pointers(pods.Items) {
		requests = append(requests, w.portsOfPod(ctx, p)...)
	}
	return requests
}

// blocksBy finds the blocks that name an object in a field.
func (w watches) blocksBy(field string) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = types.NamespacedName{Namespace: o.GetNamespace(), Name: name}.String()
		}
		list, err := all(ctx, w, &v1alpha1.AddressBlockList{}, client.MatchingFields{field: name})
		return listed(pointers(list.Items), err, nil)
	}
}

// blockAround is the controller's block that a single address was claimed of.
func (w watches) blockAround(ctx context.Context, o client.Object) []reconcile.Request {
	a, single := address(o.(*v1alpha1.AddressBlock))
	if !single {
		return nil
	}
	list, err := all(ctx, w, &v1alpha1.AddressBlockList{}, client.MatchingFields{byNetwork: networkName(o)})
	return listed(pointers(list.Items), err, func(b *v1alpha1.AddressBlock) bool {
		prefix, err := netip.ParsePrefix(b.Spec.CIDR)
		return err == nil && b.Spec.Node == "" && b.Spec.Port == "" && prefix.Contains(a)
	})
}
