// SPDX-License-Identifier: Apache-2.0

package vrf

import (
	"fmt"
	"net/netip"
	"slices"
)

// Space is a set of prefixes that do not overlap, each with an owner: those that meet in
// one table of routes.
type Space struct {
	// Held are the prefixes, in order. They must not be written to.
	Held []Holding
}

// Holding is a prefix and its owner.
type Holding struct {
	Prefix netip.Prefix
	Owner  string // such as "network blue"
}

// Find returns what overlaps a prefix. Of disjoint prefixes in order, only the neighbors of its
// place can, or, if it is shorter, what follows.
func (s *Space) Find(p netip.Prefix) (Holding, bool) {
	at := s.place(p)
	for _, i := range []int{at - 1, at} {
		if i >= 0 && i < len(s.Held) && s.Held[i].Prefix.Overlaps(p) {
			return s.Held[i], true
		}
	}
	return Holding{}, false
}

func (s *Space) place(p netip.Prefix) int {
	at, _ := slices.BinarySearchFunc(s.Held, p, func(h Holding, p netip.Prefix) int {
		return h.Prefix.Addr().Compare(p.Addr())
	})
	return at
}

// Add gives a prefix to its owner unless something that is there overlaps it.
func (s *Space) Add(p netip.Prefix, owner string) {
	if _, taken := s.Find(p); !taken {
		s.Held = slices.Insert(s.Held, s.place(p), Holding{p, owner})
	}
}

func (h Holding) String() string { return fmt.Sprintf("%s of %s", h.Prefix, h.Owner) }
