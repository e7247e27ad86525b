// SPDX-License-Identifier: Apache-2.0

package pipeline

// slotMate is one of those that share a slot, a number that follows from names which users choose.
type slotMate struct{ namespace, key string }

// placeAmong is the place of one of them, which are sorted by key: before the second of any
// namespace come the first ones of all. So a user cannot fill a slot's places with objects of one
// namespace, and leave no place for others'.
func placeAmong(mates []slotMate, of slotMate) (place uint32) {
	if len(mates) == 1 {
		return 0
	}
	own := 0
	for _, m := range mates {
		if m.namespace == of.namespace && m.key < of.key {
			own++
		}
	}
	earlier := map[string]int{}
	for _, m := range mates {
		n := earlier[m.namespace]
		earlier[m.namespace]++
		if n < own || n == own && m.key < of.key {
			place++
		}
	}
	return place
}
