// SPDX-License-Identifier: Apache-2.0

// Package rendezvous chooses one of several candidates for an address so that all that know the
// same candidates choose the same one, and that only the addresses of a candidate that goes get
// another one (rendezvous hashing).
package rendezvous

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// Weight is how much a candidate prefers an address. FNV alone hardly distinguishes names that
// differ in their last byte, so its sum is mixed (the finalizer of splitmix64).
func Weight(address netip.Addr, candidate string) uint64 {
	h := fnv.New64a()
	b := address.As16()
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(candidate))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rank sorts the candidates for an address: the first one is chosen. Their order and repetitions do
// not matter.
func Rank(address netip.Addr, candidates []string) []string {
	ranked := slices.Compact(slices.Sorted(slices.Values(candidates)))
	slices.SortStableFunc(ranked, func(a, b string) int {
		switch wa, wb := Weight(address, a), Weight(address, b); {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return 0
	})
	return ranked
}

// Choose is the first candidate for an address; empty if there are none.
func Choose(address netip.Addr, candidates []string) string {
	var chosen string
	var best uint64
	for _, c := range candidates {
		if w := Weight(address, c); chosen == "" || w > best || w == best && c < chosen {
			chosen, best = c, w
		}
	}
	return chosen
}
