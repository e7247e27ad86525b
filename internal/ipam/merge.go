// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// Merge returns the shortest list of prefixes that hold the same addresses, IPv4 first, in order: what is a part of
// another is left out, and two halves become one.
func Merge(prefixes []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p.IsValid() {
			sorted = append(sorted, p.Masked())
		}
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var merged []netip.Prefix
	for _, p := range sorted {
		if n := len(merged); n > 0 && merged[n-1].Overlaps(p) {
			continue // sorted: the one before is at least as long a range
		}
		merged = append(merged, p)
		for n := len(merged); n > 1; n = len(merged) {
			whole, ok := halves(merged[n-2], merged[n-1])
			if !ok {
				break
			}
			merged = append(merged[:n-2], whole)
		}
	}
	return merged
}

// halves returns the prefix that two make together, if they are its halves.
func halves(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	whole := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return whole, whole.Contains(b.Addr()) && a != b
}
