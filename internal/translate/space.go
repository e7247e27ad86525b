// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
)

// space is a set of prefixes that do not overlap, each with an owner: those that meet in one table of routes.
type space struct{ held []holding }

type holding struct {
	prefix netip.Prefix
	owner  string // such as "network blue"
}

// find returns what overlaps a prefix. Of disjoint prefixes in order, only the neighbours of its place can, or, if it is
// shorter, what follows.
func (s *space) find(p netip.Prefix) (holding, bool) {
	at := s.place(p)
	for _, i := range []int{at - 1, at} {
		if i >= 0 && i < len(s.held) && s.held[i].prefix.Overlaps(p) {
			return s.held[i], true
		}
	}
	return holding{}, false
}

func (s *space) place(p netip.Prefix) int {
	at, _ := slices.BinarySearchFunc(s.held, p, func(h holding, p netip.Prefix) int { return h.prefix.Addr().Compare(p.Addr()) })
	return at
}

// add gives a prefix to its owner unless something that is there overlaps it.
func (s *space) add(p netip.Prefix, owner string) {
	if _, taken := s.find(p); !taken {
		s.held = slices.Insert(s.held, s.place(p), holding{p, owner})
	}
}

func (h holding) String() string { return fmt.Sprintf("%s of %s", h.prefix, h.owner) }
