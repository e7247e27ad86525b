// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// Interval is from one address to another of the same family, both included.
type Interval struct{ From, To netip.Addr }

// ParseInterval reads an address, a prefix (which need not be masked) or two addresses with a hyphen between them:
// 10.0.0.5, 10.0.0.0/28, 10.0.0.5-10.0.0.9.
func ParseInterval(s string) (Interval, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return IntervalOf(p.Masked()), nil
	}
	from, to, two := strings.Cut(s, "-")
	if !two {
		to = from
	}
	var i Interval
	var err error
	if i.From, err = parseAddr(from); err != nil {
		return Interval{}, fmt.Errorf("%q is no address, prefix or range of addresses", s)
	}
	if i.To, err = parseAddr(to); err != nil {
		return Interval{}, fmt.Errorf("%q is no address, prefix or range of addresses", s)
	}
	switch {
	case i.From.Is4() != i.To.Is4():
		return Interval{}, fmt.Errorf("%q begins and ends in different families", s)
	case i.To.Less(i.From):
		return Interval{}, fmt.Errorf("%q ends before it begins", s)
	}
	return i, nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err == nil && (a.Zone() != "" || a.Is4In6()) {
		err = fmt.Errorf("%s is not a plain address", a)
	}
	return a, err
}

// IntervalOf is what a masked prefix holds.
func IntervalOf(p netip.Prefix) Interval { return Interval{p.Addr(), lastOf(p)} }

// Contains says whether an address is in the interval.
func (i Interval) Contains(a netip.Addr) bool {
	return a.BitLen() == i.From.BitLen() && i.From.Compare(a) <= 0 && a.Compare(i.To) <= 0
}

// Overlaps says whether two intervals have an address in common.
func (i Interval) Overlaps(o Interval) bool { return i.Contains(o.From) || o.Contains(i.From) }

// Size is the number of addresses, or the largest number if there are more.
func (i Interval) Size() uint64 {
	from, to := i.From.As16(), i.To.As16()
	high := binary.BigEndian.Uint64(to[:8]) - binary.BigEndian.Uint64(from[:8])
	low := binary.BigEndian.Uint64(to[8:]) - binary.BigEndian.Uint64(from[8:])
	if binary.BigEndian.Uint64(to[8:]) < binary.BigEndian.Uint64(from[8:]) {
		high--
	}
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

// and is what two intervals have in common.
func (i Interval) and(o Interval) (Interval, bool) {
	if i.From.BitLen() != o.From.BitLen() || o.To.Less(i.From) || i.To.Less(o.From) {
		return Interval{}, false
	}
	if i.From.Less(o.From) {
		i.From = o.From
	}
	if o.To.Less(i.To) {
		i.To = o.To
	}
	return i, true
}

// without is what is left of spans when an interval is taken out.
func without(spans []Interval, out Interval) []Interval {
	var left []Interval
	for _, s := range spans {
		cut, ok := s.and(out)
		if !ok {
			left = append(left, s)
			continue
		}
		if s.From.Less(cut.From) {
			left = append(left, Interval{s.From, cut.From.Prev()})
		}
		if cut.To.Less(s.To) {
			left = append(left, Interval{cut.To.Next(), s.To})
		}
	}
	return left
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
