// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"net/netip"

	"go4.org/netipx"
)

// maxBlocks is how many prefixes a policy's rules may have together, after what they except has
// been cut out.
const maxBlocks = 1 << 15

// parseBlock reads a prefix of a policy, in which bits after the length mean nothing.
func parseBlock(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// without returns what is left of a prefix without others, as few disjoint prefixes in order as
// possible; false if these are more than the limit.
func without(prefix netip.Prefix, excepted []netip.Prefix, limit int) ([]netip.Prefix, bool) {
	var b netipx.IPSetBuilder
	b.AddPrefix(prefix)
	for _, e := range excepted {
		b.RemovePrefix(e)
	}
	set, err := b.IPSet()
	if err != nil {
		return nil, false // not reached: parseBlock has read them
	}
	var left []netip.Prefix
	for _, r := range set.Ranges() {
		if left = r.AppendPrefixes(left); len(left) > limit {
			return nil, false
		}
	}
	return left, true
}
