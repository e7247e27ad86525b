// SPDX-License-Identifier: Apache-2.0

package translate

import "net/netip"

// maxBlocks is how many prefixes a policy's rules may have together, after what they except has been cut out.
const maxBlocks = 1 << 15

// parseBlock reads a prefix of a policy, in which bits after the length mean nothing.
func parseBlock(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// without returns what is left of a prefix without others, as few disjoint prefixes in order as possible; false if these are more
// than the limit.
func without(prefix netip.Prefix, excepted []netip.Prefix, limit int) ([]netip.Prefix, bool) {
	c := cutter{limit: limit}
	c.cut(prefix, excepted)
	return c.left, len(c.left) <= limit
}

type cutter struct {
	left  []netip.Prefix
	limit int
}

func (c *cutter) cut(prefix netip.Prefix, without []netip.Prefix) {
	var inside []netip.Prefix
	for _, w := range without {
		if !w.Overlaps(prefix) {
			continue
		}
		if w.Bits() <= prefix.Bits() {
			return // all of it
		}
		inside = append(inside, w)
	}
	if len(c.left) > c.limit {
		return
	}
	if len(inside) == 0 {
		c.left = append(c.left, prefix)
		return
	}
	low, high := halves(prefix)
	c.cut(low, inside)
	c.cut(high, inside)
}

// halves are the two prefixes, of one bit more, that a prefix is made of. It is not that of a single address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	bytes := p.Addr().AsSlice()
	bytes[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	upper, _ := netip.AddrFromSlice(bytes) // of 4 or 16 bytes
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}
