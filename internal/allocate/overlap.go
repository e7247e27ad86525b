// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/vrf"
)

// overlap says what a Network's subnets overlap that they must not, "" if nothing: other subnets
// that its Router has routes to or that meet them elsewhere, and the nodes' prefixes. A physical
// network is not routed here, so that its numbers are its own.
func (a *allocator) overlap(n *v1alpha1.Network, router string, pools []translate.Pool) string {
	if n.Spec.Type != v1alpha1.Overlay {
		return ""
	}
	for _, p := range pools {
		if h, found := a.nodePrefixes.Find(p.Prefix); found {
			return fmt.Sprintf("%s overlaps %s", p.Prefix, h)
		}
		spaces := a.exchange.Spaces(router)
		if h, found := a.nodeAddresses.Find(p.Prefix); found && spaces[0] == vrf.SharedSpace {
			return fmt.Sprintf("%s has the address %s of %s in it, and router %s shares the cluster's addresses",
				p.Prefix, h.Prefix.Addr(), h.Owner, router)
		}
		for _, s := range spaces {
			if a.spaces[s] == nil {
				continue
			}
			if h, found := a.spaces[s].Find(p.Prefix); found {
				return fmt.Sprintf("%s overlaps %s, and there are routes to both", p.Prefix, h)
			}
		}
	}
	return ""
}

// claim puts a subnet into the space of its Router.
func (a *allocator) claim(n *v1alpha1.Network, router string, p translate.Pool) {
	if n.Spec.Type != v1alpha1.Overlay {
		return
	}
	id := a.exchange.Own(router)
	if a.spaces[id] == nil {
		a.spaces[id] = &vrf.Space{}
	}
	a.spaces[id].Add(p.Prefix, "network "+n.Name)
}

// nodes enters the prefixes and addresses of all nodes; what cannot be read is a Problem of Nodes.
func (a *allocator) nodes(list []*corev1.Node) {
	for _, n := range inOrder(list, func(*corev1.Node) int32 { return 0 }) {
		owner := "node " + n.Name
		for _, p := range PodCIDRs([]*corev1.Node{n}) {
			a.nodePrefixes.Add(p, owner)
		}
		for _, address := range n.Status.Addresses {
			ip, err := netip.ParseAddr(address.Address)
			if err == nil && address.Type == corev1.NodeInternalIP {
				a.nodeAddresses.Add(netip.PrefixFrom(ip, ip.BitLen()), owner)
			}
		}
	}
}

// warn tells of Networks in effect that overlap the prefix of a node that came later.
func (a *allocator) warn(list []*v1alpha1.Network) {
	for _, n := range list {
		v := a.out.Networks[n.Name]
		pools, err := checkNetwork(n)
		if err != nil || !v.Ready() {
			continue
		}
		if v.Warning = a.overlapsNode(n, v.Router, pools); v.Warning != "" {
			v.Message = v.Warning
			a.out.Networks[n.Name] = v
		}
	}
}

func (a *allocator) overlapsNode(n *v1alpha1.Network, router string, pools []translate.Pool) string {
	if n.Spec.Type != v1alpha1.Overlay {
		return ""
	}
	for _, p := range pools {
		h, found := a.nodePrefixes.Find(p.Prefix)
		if !found && a.exchange.Own(router) == vrf.SharedSpace {
			h, found = a.nodeAddresses.Find(p.Prefix)
		}
		if found {
			return fmt.Sprintf("%s overlaps %s, which came later: pods on one of both cannot be reached from the other's", p.Prefix, h)
		}
	}
	return ""
}
