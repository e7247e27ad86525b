// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"maps"
	"slices"
)

// bag is a multiset optimized for one or two elements: a slice is smaller and faster than a map. It
// must not change during iteration.
type bag[K comparable] struct {
	few  []counted[K]
	many map[K]int // instead, once there have been more than fewThings
}

type counted[K comparable] struct {
	thing K
	times int
}

const fewThings = 8

// add returns how often the bag has it now.
func (b *bag[K]) add(k K) int {
	if b.many != nil {
		b.many[k]++
		return b.many[k]
	}
	for i := range b.few {
		if b.few[i].thing == k {
			b.few[i].times++
			return b.few[i].times
		}
	}
	if len(b.few) < fewThings {
		b.few = append(b.few, counted[K]{k, 1})
		return 1
	}
	b.many = make(map[K]int, 2*fewThings)
	for _, c := range b.few {
		b.many[c.thing] = c.times
	}
	b.few = nil
	b.many[k] = 1
	return 1
}

// remove takes away one and returns how many are left. There must be one.
func (b *bag[K]) remove(k K) int {
	if b.many != nil {
		b.many[k]--
		n := b.many[k]
		if n == 0 {
			delete(b.many, k)
		}
		return n
	}
	i := slices.IndexFunc(b.few, func(c counted[K]) bool { return c.thing == k })
	b.few[i].times--
	n := b.few[i].times
	if n == 0 {
		b.few = slices.Delete(b.few, i, i+1)
	}
	return n
}

func (b *bag[K]) count(k K) int {
	if b.many != nil {
		return b.many[k]
	}
	for _, c := range b.few {
		if c.thing == k {
			return c.times
		}
	}
	return 0
}

// len is how many different things there are.
func (b *bag[K]) len() int { return len(b.few) + len(b.many) }

// all are the different things, in no order.
func (b *bag[K]) all() iter.Seq[K] {
	if b.many != nil {
		return maps.Keys(b.many)
	}
	return func(yield func(K) bool) {
		for _, c := range b.few {
			if !yield(c.thing) {
				return
			}
		}
	}
}
