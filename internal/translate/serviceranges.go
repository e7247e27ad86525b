// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
)

var (
	everybody = [families]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	// nobody sends from these.
	nobody = [families]netip.Prefix{netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::/128")}
)

// sourceRanges reads spec.loadBalancerSourceRanges for the families of a Service. What comes out is disjoint and sorted, and says of
// each of the families who may, unless everybody may in all of them: then it is empty.
//
// As in kube-proxy, a family of which nothing is in the list is open to everybody, and blanks do not count. But if something in the
// list cannot be read, the family may be meant: then it is open to nobody.
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
			ranges = append(ranges, disjoint(read[f])...)
		case unreadable:
			ranges = append(ranges, nobody[f])
		default:
			ranges = append(ranges, everybody[f])
		}
		restricted = restricted || ranges[len(ranges)-1] != everybody[f]
	}
	if !restricted {
		return nil
	}
	return ranges
}

// disjoint sorts prefixes and leaves out those that others hold.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	kept := prefixes[:0]
	for _, p := range prefixes {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
