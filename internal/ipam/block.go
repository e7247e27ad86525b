// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Block is a part of a subnet that one node hands out addresses from.
type Block struct {
	Prefix  netip.Prefix // masked
	Subnet  netip.Prefix // masked: the Prefix itself or what it is a part of
	Gateway netip.Addr   // of the subnet; not valid: it has none
	// Only are the addresses that are handed out; empty: all. Except are not.
	Only, Except []netipx.IPRange
}

// Range is what the block can hand out, which may be nothing: then Size is 0 and Next always fails.
// The error is a *CIDRError.
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

// spans are in order. They are not made by netipx.IPSetBuilder, which takes four times as long:
// candidates for a block are looked through by the thousand.
func (b Block) spans() []netipx.IPRange {
	all := netipx.RangeOfPrefix(b.Prefix)
	spans := []netipx.IPRange{all}
	if len(b.Only) > 0 {
		spans = nil
		for _, o := range b.Only {
			if s, ok := intersection(all, o); ok {
				// Those that overlap another one count once.
				spans = append(without(spans, s), s)
			}
		}
	}
	for _, e := range append(Reserved(b.Subnet, b.Gateway), b.Except...) {
		spans = without(spans, e)
	}
	slices.SortFunc(spans, func(x, y netipx.IPRange) int { return x.From().Compare(y.From()) })
	return spans
}

// without is what is left of spans when a range is taken out.
func without(spans []netipx.IPRange, out netipx.IPRange) []netipx.IPRange {
	var left []netipx.IPRange
	for _, s := range spans {
		cut, ok := intersection(s, out)
		if !ok {
			left = append(left, s)
			continue
		}
		if s.From().Less(cut.From()) {
			left = append(left, netipx.IPRangeFrom(s.From(), cut.From().Prev()))
		}
		if cut.To().Less(s.To()) {
			left = append(left, netipx.IPRangeFrom(cut.To().Next(), s.To()))
		}
	}
	return left
}

// intersection is what two ranges have in common; false if that is nothing.
func intersection(a, b netipx.IPRange) (netipx.IPRange, bool) {
	if !a.Overlaps(b) {
		return netipx.IPRange{}, false
	}
	from, to := a.From(), a.To()
	if from.Less(b.From()) {
		from = b.From()
	}
	if b.To().Less(to) {
		to = b.To()
	}
	return netipx.IPRangeFrom(from, to), true
}

// Reserved are the addresses of a subnet that no interface can have: the network address or the
// subnet-router anycast address, the broadcast address, and the gateway if it is valid.
func Reserved(subnet netip.Prefix, gateway netip.Addr) []netipx.IPRange {
	reserved := []netipx.IPRange{netipx.IPRangeFrom(subnet.Addr(), subnet.Addr())}
	if subnet.Addr().Is4() {
		last := netipx.PrefixLastIP(subnet)
		reserved = append(reserved, netipx.IPRangeFrom(last, last))
	}
	if gateway.IsValid() {
		reserved = append(reserved, netipx.IPRangeFrom(gateway, gateway))
	}
	return reserved
}
