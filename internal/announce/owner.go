// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"hash/fnv"
	"net/netip"
)

// Owner is the one of the candidates that answers for an address: all nodes that know the same
// candidates choose the same one, and when one goes, only its addresses move (rendezvous hashing).
// Order and repetitions do not matter. It is empty if there are no candidates.
func Owner(address netip.Addr, candidates []string) string {
	var owner string
	var best uint64
	for _, c := range candidates {
		if w := weight(address, c); owner == "" || w > best || w == best && c < owner {
			owner, best = c, w
		}
	}
	return owner
}

// weight is how much a node wants an address. FNV alone tells names that differ in their last byte
// hardly apart, so its sum is stirred (the finalizer of splitmix64).
func weight(address netip.Addr, node string) uint64 {
	h := fnv.New64a()
	b := address.As16()
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(node))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
