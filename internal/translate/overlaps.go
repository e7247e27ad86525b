// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// overlaps finds the nodes that want the same address.
type overlaps struct {
	claims []claim // sorted by address and length; several nodes may have the same
	byNode map[string][]netip.Prefix
	// lengths are those that prefixes have had, shorter ones first, of IPv4 and of IPv6.
	lengths [2][]int
}

// replace has the named nodes want what their objects say, or nothing without an object.
func (o *overlaps) replace(names map[string]struct{}, objects map[string]*corev1.Node) {
	stay := slices.DeleteFunc(o.claims, func(c claim) bool { _, other := names[c.node]; return other })
	var come []claim
	for name := range names {
		delete(o.byNode, name)
		if object := objects[name]; object != nil {
			o.byNode[name] = wantedPrefixes(object)
		}
		for _, p := range o.byNode[name] {
			come = append(come, claim{p, name})
			lengths := &o.lengths[familyIndex(p)]
			if at, found := slices.BinarySearch(*lengths, p.Bits()); !found {
				*lengths = slices.Insert(*lengths, at, p.Bits())
			}
		}
	}
	slices.SortFunc(come, compareClaims)
	o.claims = make([]claim, 0, len(stay)+len(come))
	for _, c := range stay {
		for len(come) > 0 && compareClaims(come[0], c) < 0 {
			o.claims, come = append(o.claims, come[0]), come[1:]
		}
		o.claims = append(o.claims, c)
	}
	o.claims = append(o.claims, come...)
}

// overlapping adds to found the nodes that want an address that one of the named nodes wants, these
// among them.
func (o *overlaps) overlapping(names, found map[string]struct{}) {
	for name := range names {
		for _, p := range o.byNode[name] {
			for _, bits := range o.lengths[familyIndex(p)] {
				if bits >= p.Bits() {
					break
				}
				around := netip.PrefixFrom(p.Addr(), bits).Masked()
				o.from(around, found, func(c claim) bool { return c.prefix == around })
			}
			o.from(p, found, func(c claim) bool { return p.Contains(c.prefix.Addr()) })
		}
	}
}

// from adds the nodes of the claims from a prefix on as long as they match.
func (o *overlaps) from(p netip.Prefix, found map[string]struct{}, match func(claim) bool) {
	at, _ := slices.BinarySearchFunc(o.claims, claim{prefix: p}, compareClaims)
	for ; at < len(o.claims) && match(o.claims[at]); at++ {
		found[o.claims[at].node] = struct{}{}
	}
}

func compareClaims(a, b claim) int {
	return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()),
		cmp.Compare(a.node, b.node))
}

func familyIndex(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// wantedPrefixes are a node's addresses and podCIDRs. What cannot be read wants nothing.
func wantedPrefixes(o *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, a := range o.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			list = append(list, netip.PrefixFrom(ip.WithZone(""), ip.BitLen()))
		}
	}
	for _, cidr := range append(slices.Clone(o.Spec.PodCIDRs), o.Spec.PodCIDR) {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}
