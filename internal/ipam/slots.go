// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Slots are the first free slots of podCIDRs, of which each is of another family. A slot has the
// address at the same distance from the beginning of each. It is free if each of them can be handed
// out and none is taken.
//
// There are at least as many as asked for, if the smallest podCIDR has them. They end after a
// multiple of step slots, free or not: one that comes to be taken moves the end seldom.
func Slots(ranges []Range, step, least int, taken func(netip.Addr) bool) (free [][]netip.Addr) {
	if len(ranges) == 0 || step < 1 {
		return nil
	}
	slot := make([]netip.Addr, len(ranges))
	for i, r := range ranges {
		slot[i] = r.prefix.Addr()
	}
	for count := 0; count%step > 0 || len(free) < least; count++ {
		usable := true
		for i, r := range ranges {
			usable = usable && r.Contains(slot[i]) && !taken(slot[i])
		}
		if usable {
			free = append(free, slices.Clone(slot))
		}
		for i, r := range ranges {
			if slot[i] == netipx.PrefixLastIP(r.prefix) {
				return free
			}
			slot[i] = slot[i].Next()
		}
	}
	return free
}
