// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Merge returns the shortest list of prefixes that hold the same addresses, IPv4 first, in order:
// what is a part of another is left out, and two halves become one.
func Merge(prefixes []netip.Prefix) []netip.Prefix {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	set, _ := b.IPSet() // an error is about prefixes that are not valid, which hold nothing
	var merged []netip.Prefix
	for _, r := range set.Ranges() {
		merged = r.AppendPrefixes(merged)
	}
	return merged
}

// Disjoint returns prefixes masked and sorted, without those that are in another. Unlike Merge it
// makes no others of them: they stay what users and logs call them. There may be thousands, and
// mostly they are so already: then they are the same slice.
func Disjoint(prefixes []netip.Prefix) []netip.Prefix {
	if areDisjoint(prefixes) {
		return prefixes
	}
	var out []netip.Prefix
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p.IsValid() {
			sorted = append(sorted, p.Masked())
		}
	}
	slices.SortFunc(sorted, comparePrefixes)
	for _, p := range sorted {
		// The one before is the only one that can have it: what follows a prefix in this order is
		// in it, or behind all of it.
		if n := len(out); n > 0 && out[n-1].Bits() <= p.Bits() && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
	}
	return out
}

func areDisjoint(prefixes []netip.Prefix) bool {
	for i, p := range prefixes {
		if !p.IsValid() || p != p.Masked() || i > 0 &&
			(comparePrefixes(prefixes[i-1], p) >= 0 || prefixes[i-1].Contains(p.Addr())) {
			return false
		}
	}
	return true
}

// comparePrefixes puts a prefix before those that are in it, unlike netipx.ComparePrefix, which
// goes by lengths first.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
