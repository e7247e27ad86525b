// SPDX-License-Identifier: Apache-2.0

// Package ipam is the arithmetic of the ranges that a node hands out addresses from: which
// addresses of a podCIDR or of a block are usable, and which comes next. It keeps no state and does
// no I/O; package attachment stores the allocations.
package ipam

import (
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Range is the part of one podCIDR or block that pods can get. Of an IPv4 subnet the
// network address, the gateway and the broadcast address are left out; of an
// IPv6 subnet the subnet-router anycast address (RFC 4291, section 2.6.1) and
// the gateway. The zero value is not usable; New, Parse and Block.Range make ranges.
type Range struct {
	prefix  netip.Prefix // masked: the podCIDR or the block
	subnet  netip.Prefix // masked: that the prefix is all or a part of
	gateway netip.Addr
	spans   []netipx.IPRange // what can be handed out: in order, disjoint
	block   bool             // not a podCIDR
}

// New returns the range of one podCIDR. The error is a *CIDRError.
func New(cidr netip.Prefix) (Range, error) {
	switch {
	case !cidr.IsValid():
		return Range{}, &CIDRError{CIDR: cidr.String(), Problem: "not a prefix"}
	case cidr.Addr().Is4In6():
		return Range{}, &CIDRError{CIDR: cidr.String(), Problem: "an IPv4-mapped IPv6 prefix"}
	case cidr != cidr.Masked():
		return Range{}, &CIDRError{CIDR: cidr.String(), Problem: "has host bits set, want " + cidr.Masked().String()}
	case cidr.Addr().BitLen()-cidr.Bits() < 2: // at most two addresses
		return Range{}, &CIDRError{CIDR: cidr.String(), Problem: "too small: no address is left beside the gateway"}
	}
	r, err := Block{Prefix: cidr, Subnet: cidr, Gateway: cidr.Addr().Next()}.Range()
	r.block = false
	return r, err
}

// Parse returns the ranges of a node's podCIDRs in the order given: one or two,
// of different families. The error is ErrNoCIDR or a *CIDRError.
func Parse(cidrs []netip.Prefix) ([]Range, error) {
	if len(cidrs) == 0 {
		return nil, ErrNoCIDR
	}
	ranges := make([]Range, 0, 2)
	for _, cidr := range cidrs {
		r, err := New(cidr)
		if err != nil {
			return nil, err
		}
		for _, other := range ranges {
			if other.Is4() == r.Is4() {
				return nil, &CIDRError{CIDR: cidr.String(),
					Problem: "of the same family as " + other.prefix.String() + ", want at most one of each family"}
			}
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// Prefix is the podCIDR or the block.
func (r Range) Prefix() netip.Prefix { return r.prefix }

// Subnet is what the prefix is all or a part of.
func (r Range) Subnet() netip.Prefix { return r.subnet }

// Gateway is the router's address in the subnet: of a podCIDR the first, which is the node's. It is
// not valid if there is none.
func (r Range) Gateway() netip.Addr { return r.gateway }

// Is4 says whether the range is of IPv4.
func (r Range) Is4() bool { return r.prefix.Addr().Is4() }

// Contains says whether the range can hand out the address.
func (r Range) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(r.spans, func(s netipx.IPRange) bool { return s.Contains(a) })
}

// Size is the number of addresses that the range can hand out, or the largest number
// if there are more.
func (r Range) Size() uint64 {
	var sum uint64
	for _, s := range r.spans {
		n := Size(s)
		if sum+n < sum {
			return math.MaxUint64
		}
		sum += n
	}
	return sum
}

// WithLength is the address with the subnet's prefix length, as it is set on a
// pod's interface.
func (r Range) WithLength(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, r.subnet.Bits()) }

// Next returns the first address after the given one that is not taken, going
// round at the end of the range; an address outside the range, such as the zero
// one, starts at the range's first. It asks taken about each address at most
// once, so that an address that was just released comes last. When all are taken
// the error is an *ExhaustedError.
func (r Range) Next(after netip.Addr, taken func(netip.Addr) bool) (netip.Addr, error) {
	a, _, err := Next([]Range{r}, after, taken)
	return a, err
}

// Next is like Range.Next for several ranges, one after the other: it goes round at the end of the
// last. It also returns the range that has the address.
func Next(ranges []Range, after netip.Addr, taken func(netip.Addr) bool) (netip.Addr, Range, error) {
	for _, p := range circle(ranges, after) {
		for a := p.From(); ; a = a.Next() {
			if !taken(a) {
				return a, p.of, nil
			}
			if a == p.To() {
				break
			}
		}
	}
	exhausted := &ExhaustedError{}
	for _, r := range ranges {
		exhausted.CIDRs = append(exhausted.CIDRs, r.prefix)
		exhausted.Blocks = exhausted.Blocks || r.block
	}
	return netip.Addr{}, Range{}, exhausted
}

// part is a span with its range.
type part struct {
	netipx.IPRange
	of Range
}

// circle lists what the ranges can hand out, in the order of a search that
// begins behind an address.
func circle(ranges []Range, after netip.Addr) []part {
	var parts []part
	for _, r := range ranges {
		for _, s := range r.spans {
			parts = append(parts, part{s, r})
		}
	}
	i := slices.IndexFunc(parts, func(p part) bool { return p.Contains(after) })
	if i < 0 {
		return parts
	}
	rest, first := parts[i], parts[i]
	rest.IPRange, first.IPRange = netipx.IPRangeFrom(after.Next(), parts[i].To()),
		netipx.IPRangeFrom(parts[i].From(), after)
	turned := slices.Concat(parts[i+1:], parts[:i], []part{first})
	if after == parts[i].To() {
		return turned
	}
	return slices.Insert(turned, 0, rest)
}
