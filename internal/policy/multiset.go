// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"maps"
	"slices"
)

// multiset counts equal elements. It is optimized for one or two of them: a slice is smaller and
// faster than a map. It must not change during iteration.
type multiset[K comparable] struct {
	few  []counted[K]
	many map[K]int // instead, once there have been more than fewElements
}

type counted[K comparable] struct {
	element K
	times   int
}

const fewElements = 8

// add returns how often the multiset contains it now.
func (m *multiset[K]) add(k K) int {
	if m.many != nil {
		m.many[k]++
		return m.many[k]
	}
	for i := range m.few {
		if m.few[i].element == k {
			m.few[i].times++
			return m.few[i].times
		}
	}
	if len(m.few) < fewElements {
		m.few = append(m.few, counted[K]{k, 1})
		return 1
	}
	m.many = make(map[K]int, 2*fewElements)
	for _, c := range m.few {
		m.many[c.element] = c.times
	}
	m.few = nil
	m.many[k] = 1
	return 1
}

// remove takes away one and returns how many are left. There must be one.
func (m *multiset[K]) remove(k K) int {
	if m.many != nil {
		m.many[k]--
		n := m.many[k]
		if n == 0 {
			delete(m.many, k)
		}
		return n
	}
	i := slices.IndexFunc(m.few, func(c counted[K]) bool { return c.element == k })
	m.few[i].times--
	n := m.few[i].times
	if n == 0 {
		m.few = slices.Delete(m.few, i, i+1)
	}
	return n
}

func (m *multiset[K]) count(k K) int {
	if m.many != nil {
		return m.many[k]
	}
	for _, c := range m.few {
		if c.element == k {
			return c.times
		}
	}
	return 0
}

// len is how many distinct elements there are.
func (m *multiset[K]) len() int { return len(m.few) + len(m.many) }

// all are the distinct elements, in no order.
func (m *multiset[K]) all() iter.Seq[K] {
	if m.many != nil {
		return maps.Keys(m.many)
	}
	return func(yield func(K) bool) {
		for _, c := range m.few {
			if !yield(c.element) {
				return
			}
		}
	}
}
