// SPDX-License-Identifier: Apache-2.0

// Package ipam is the arithmetic of the ranges that a node hands out addresses
// from: which addresses of a podCIDR are usable, and which comes next. It keeps
// no state and does no I/O; package attachment remembers who has what.
package ipam

import "net/netip"

// Range is the part of one podCIDR that pods can get. Of an IPv4 prefix the
// network address, the gateway and the broadcast address are left out; of an
// IPv6 prefix the subnet-router anycast address (RFC 4291, section 2.6.1) and
// the gateway. The zero value is not usable; New and Parse make ranges.
type Range struct {
	prefix      netip.Prefix // masked
	first, last netip.Addr   // both can be handed out
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
	}
	reserved, hostBits := 2, cidr.Addr().BitLen()-cidr.Bits()
	if cidr.Addr().Is4() {
		reserved = 3
	}
	if hostBits < 2 { // at most two addresses
		return Range{}, &CIDRError{CIDR: cidr.String(), Problem: "too small: no address is left beside the gateway"}
	}
	r := Range{prefix: cidr, first: cidr.Addr().Next().Next(), last: lastOf(cidr)}
	if reserved == 3 {
		r.last = r.last.Prev()
	}
	return r, nil
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
			if other.first.Is4() == r.first.Is4() {
				return nil, &CIDRError{CIDR: cidr.String(),
					Problem: "of the same family as " + other.prefix.String() + ", want at most one of each family"}
			}
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// Prefix is the podCIDR.
func (r Range) Prefix() netip.Prefix { return r.prefix }

// Gateway is the first address of the podCIDR, which is the node's.
func (r Range) Gateway() netip.Addr { return r.first.Prev() }

// Contains says whether the range can hand out the address.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

// WithLength is the address with the podCIDR's prefix length, as it is set on a
// pod's interface.
func (r Range) WithLength(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, r.prefix.Bits()) }

// Next returns the first address after the given one that is not taken, going
// round at the end of the range; an address outside the range, such as the zero
// one, starts at the range's first. It asks taken about each address at most
// once, so that an address that was just released comes last. When all are taken
// the error is an *ExhaustedError.
func (r Range) Next(after netip.Addr, taken func(netip.Addr) bool) (netip.Addr, error) {
	start := r.first
	if r.Contains(after) {
		start = r.following(after)
	}
	for a := start; ; {
		if !taken(a) {
			return a, nil
		}
		if a = r.following(a); a == start {
			return netip.Addr{}, &ExhaustedError{CIDR: r.prefix}
		}
	}
}

func (r Range) following(a netip.Addr) netip.Addr {
	if a == r.last {
		return r.first
	}
	return a.Next()
}

// lastOf is the highest address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	for bit := 128 - p.Addr().BitLen() + p.Bits(); bit < 128; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		return a.Unmap()
	}
	return a
}
