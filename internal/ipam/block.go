// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// Block is a part of a subnet that one node hands out addresses from.
type Block struct {
	Prefix  netip.Prefix // masked
	Subnet  netip.Prefix // masked: the Prefix itself or what it is a part of
	Gateway netip.Addr   // of the subnet; not valid: it has none
	// Only are the addresses that are handed out; empty: all. Except are not.
	Only, Except []Interval
}

// Range is what the block can hand out, which may be nothing: then Size is 0 and Next always fails. The error is a
// *CIDRError.
func (b Block) Range() (Range, error) {
	bad := func(p netip.Prefix, problem string) (Range, error) {
		return Range{}, &CIDRError{CIDR: p.String(), Problem: problem, Block: true}
	}
	for _, p := range []netip.Prefix{b.Subnet, b.Prefix} {
		switch {
		case !p.IsValid():
			return bad(p, "not a prefix")
		case p.Addr().Is4In6():
			return bad(p, "an IPv4-mapped IPv6 prefix")
		case p != p.Masked():
			return bad(p, "has host bits set, want "+p.Masked().String())
		}
	}
	switch {
	case b.Prefix.Bits() < b.Subnet.Bits() || !b.Subnet.Contains(b.Prefix.Addr()):
		return bad(b.Prefix, "not a part of the subnet "+b.Subnet.String())
	case b.Gateway.IsValid() && !b.Subnet.Contains(b.Gateway):
		return bad(b.Subnet, "does not contain the gateway "+b.Gateway.String())
	}
	return Range{prefix: b.Prefix, subnet: b.Subnet, gateway: b.Gateway, spans: b.spans(), block: true}, nil
}

func (b Block) spans() []Interval {
	all := IntervalOf(b.Prefix)
	spans := []Interval{all}
	if len(b.Only) > 0 {
		spans = nil
		for _, o := range b.Only {
			if s, ok := all.and(o); ok {
				// Those that overlap another one count once.
				spans = append(without(spans, s), s)
			}
		}
	}
	for _, e := range append(Reserved(b.Subnet, b.Gateway), b.Except...) {
		spans = without(spans, e)
	}
	slices.SortFunc(spans, func(x, y Interval) int { return cmp.Or(x.From.Compare(y.From), x.To.Compare(y.To)) })
	return spans
}

// Reserved are the addresses of a subnet that no interface can have: the network address or the subnet-router anycast
// address, the broadcast address, and the gateway if it is valid.
func Reserved(subnet netip.Prefix, gateway netip.Addr) []Interval {
	reserved := []Interval{{subnet.Addr(), subnet.Addr()}}
	if subnet.Addr().Is4() {
		last := lastOf(subnet)
		reserved = append(reserved, Interval{last, last})
	}
	if gateway.IsValid() {
		reserved = append(reserved, Interval{gateway, gateway})
	}
	return reserved
}
