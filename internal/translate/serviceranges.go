// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/ipam"
)

var (
	anySource = [families]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	// noSource are prefixes that no packet comes from.
	noSource = [families]netip.Prefix{netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::/128")}
)

// sourceRanges reads spec.loadBalancerSourceRanges for the families of a Service. The result is
// disjoint and sorted, and has prefixes of each family, unless all sources are allowed in all
// families: then it is empty.
//
// As in kube-proxy, a family without prefixes in the list is open to all sources, and blanks
// do not count. But if an entry of the list cannot be read, it may be of that family: then
// the family is closed.
func sourceRanges(texts []string, of [families]bool, report func(i int, err error)) []netip.Prefix {
	var read [families][]netip.Prefix
	unreadable := false
	for i, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		p, err := netip.ParsePrefix(withoutZeros(text))
		if err != nil || p.Addr().Is4In6() {
			unreadable = true
			report(i, errors.New("is not a CIDR, and so lets nobody in; write it as 192.0.2.0/24 or 2001:db8::/32"))
			continue
		}
		f := familyOf(p.Addr())
		read[f] = append(read[f], p.Masked())
	}
	var ranges []netip.Prefix
	restricted := false
	for f := range families {
		switch {
		case !of[f]:
			continue
		case len(read[f]) > 0:
			ranges = append(ranges, ipam.Disjoint(read[f])...)
		case unreadable:
			ranges = append(ranges, noSource[f])
		default:
			ranges = append(ranges, anySource[f])
		}
		restricted = restricted || ranges[len(ranges)-1] != anySource[f]
	}
	if !restricted {
		return nil
	}
	return ranges
}
