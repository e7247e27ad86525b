// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// ParseRange reads an address, a prefix (which need not be masked) or two addresses with a hyphen
// between them: 10.0.0.5, 10.0.0.0/28, 10.0.0.5-10.0.0.9.
func ParseRange(s string) (netipx.IPRange, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return netipx.RangeOfPrefix(p), nil
	}
	first, last, two := strings.Cut(s, "-")
	if !two {
		last = first
	}
	from, err := parseAddr(first)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("%q is no address, prefix or range of addresses", s)
	}
	to, err := parseAddr(last)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("%q is no address, prefix or range of addresses", s)
	}
	switch {
	case from.Is4() != to.Is4():
		return netipx.IPRange{}, fmt.Errorf("%q begins and ends in different families", s)
	case to.Less(from):
		return netipx.IPRange{}, fmt.Errorf("%q ends before it begins", s)
	}
	return netipx.IPRangeFrom(from, to), nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err == nil && (a.Zone() != "" || a.Is4In6()) {
		err = fmt.Errorf("%s is not a plain address", a)
	}
	return a, err
}

// Size is the number of a range's addresses, or the largest number if there are more.
func Size(r netipx.IPRange) uint64 {
	from, to := r.From().As16(), r.To().As16()
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
