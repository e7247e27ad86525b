// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Slots are the first free slots of a node's podCIDRs, or of its blocks of a Network. A slot has an
// address of each family, at the same distance from the beginning of the family's first range:
// ranges of a family follow each other in the order of their addresses. The families are in the
// order in which they come first. A slot is free if each address can be handed out and none is
// taken.
//
// There are at least as many as asked for, if the family with the fewest addresses has them. They
// end after a multiple of step slots, free or not: one that comes to be taken moves the end seldom.
func Slots(ranges []Range, step, least int, taken func(netip.Addr) bool) (free [][]netip.Addr) {
	chains := chainsOf(ranges)
	if len(chains) == 0 || step < 1 {
		return nil
	}
	for count := 0; count%step > 0 || len(free) < least; count++ {
		slot, usable := make([]netip.Addr, len(chains)), true
		for i := range chains {
			a, r, ok := chains[i].next()
			if !ok {
				return free
			}
			slot[i], usable = a, usable && r.Contains(a) && !taken(a)
		}
		if usable {
			free = append(free, slot)
		}
	}
	return free
}

// chain is the ranges of a family, and which address comes next.
type chain struct {
	ranges []Range
	at     netip.Addr
}

func chainsOf(ranges []Range) []chain {
	var chains []chain
	for _, of := range Families(ranges) {
		slices.SortFunc(of, func(a, b Range) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
		chains = append(chains, chain{ranges: of, at: of[0].prefix.Addr()})
	}
	return chains
}

// Families are ranges by family, in the order in which the families come first.
func Families(ranges []Range) [][]Range {
	var list [][]Range
	for _, r := range ranges {
		i := slices.IndexFunc(list, func(of []Range) bool { return of[0].Is4() == r.Is4() })
		if i < 0 {
			i, list = len(list), append(list, nil)
		}
		list[i] = append(list[i], r)
	}
	return list
}

// next is the next address of all, usable or not, and its range; false: there is none.
func (c *chain) next() (a netip.Addr, of Range, ok bool) {
	if len(c.ranges) == 0 {
		return a, of, false
	}
	a, of = c.at, c.ranges[0]
	if a != netipx.PrefixLastIP(of.prefix) {
		c.at = a.Next()
	} else if c.ranges = c.ranges[1:]; len(c.ranges) > 0 {
		c.at = c.ranges[0].prefix.Addr()
	}
	return a, of, true
}
