// SPDX-License-Identifier: Apache-2.0

// Package sortedmap has an immutable sorted map, of which a changed copy shares all but what the
// change touches, so that two of them are compared at the cost of their differences.
package sortedmap

import (
	"hash/maphash"
	"iter"
)

// Map is an immutable map from strings to pointers, sorted by key; the zero value is empty. Put and
// Remove return a map that shares all but the path they touch. It is a treap with hashes of the
// keys as priorities, so its shape depends on the set of keys only, not on the order in which they
// came; that is what makes Diff cheap.
type Map[T any] struct {
	root *node[T]
	size int
}

type node[T any] struct {
	key         string
	priority    uint64
	value       *T
	left, right *node[T]
}

var seed = maphash.MakeSeed()

// Get returns the value of a key; nil if there is none.
func (m Map[T]) Get(key string) *T {
	for n := m.root; n != nil; {
		switch {
		case key < n.key:
			n = n.left
		case key > n.key:
			n = n.right
		default:
			return n.value
		}
	}
	return nil
}

// Len is the number of keys.
func (m Map[T]) Len() int { return m.size }

// All yields the keys and values in the order of keys.
func (m Map[T]) All() iter.Seq2[string, *T] { return m.From("") }

// Values yields the values in the order of keys.
func (m Map[T]) Values() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		m.root.walk("", func(_ string, v *T) bool { return yield(v) })
	}
}

// From yields the keys and values in the order of keys, beginning with the key first.
func (m Map[T]) From(first string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) { m.root.walk(first, yield) }
}

// Put returns the map with the value of a key added or replaced. The value must not be nil.
func (m Map[T]) Put(key string, value *T) Map[T] {
	if m.Get(key) == nil {
		m.size++
	}
	m.root = m.root.put(&node[T]{key: key, priority: maphash.String(seed, key), value: value})
	return m
}

// Remove returns the map without a key; one that is not there is fine.
func (m Map[T]) Remove(key string) Map[T] {
	if m.Get(key) == nil {
		return m
	}
	return Map[T]{root: m.root.remove(key), size: m.size - 1}
}

// Diff calls changed, in the order of keys, with every key that has another value in now than in
// old; nil: the key is not there. Values are compared as pointers. Parts that both share are not
// visited.
func Diff[T any](old, now Map[T], changed func(key string, old, now *T)) {
	diff(old.root, now.root, changed)
}

// above orders nodes from the root down; the key breaks ties of the hash.
func (n *node[T]) above(o *node[T]) bool {
	return n.priority > o.priority || n.priority == o.priority && n.key < o.key
}

// put takes ownership of add.
func (n *node[T]) put(add *node[T]) *node[T] {
	switch {
	case n == nil:
		return add
	case n.key == add.key:
		add.left, add.right = n.left, n.right
		return add
	case add.above(n):
		add.left, _, add.right = n.split(add.key)
		return add
	}
	c := *n
	if add.key < n.key {
		c.left = n.left.put(add)
	} else {
		c.right = n.right.put(add)
	}
	return &c
}

// split parts a tree into what is below key, the node of key itself and what is
// above.
func (n *node[T]) split(key string) (below, at, above *node[T]) {
	if n == nil {
		return nil, nil, nil
	}
	if n.key == key {
		return n.left, n, n.right
	}
	c := *n
	if key < n.key {
		below, at, c.left = n.left.split(key)
		return below, at, &c
	}
	c.right, at, above = n.right.split(key)
	return &c, at, above
}

func (n *node[T]) remove(key string) *node[T] {
	if n.key == key {
		return join(n.left, n.right)
	}
	c := *n
	if key < n.key {
		c.left = n.left.remove(key)
	} else {
		c.right = n.right.remove(key)
	}
	return &c
}

// join merges two trees of which all keys of a are below those of b.
func join[T any](a, b *node[T]) *node[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.above(b):
		c := *a
		c.right = join(a.right, b)
		return &c
	}
	c := *b
	c.left = join(a, b.left)
	return &c
}

// walk calls yield in the order of keys, from the key from on, until it says no.
func (n *node[T]) walk(from string, yield func(string, *T) bool) bool {
	if n == nil {
		return true
	}
	if n.key >= from {
		if !n.left.walk(from, yield) || !yield(n.key, n.value) {
			return false
		}
	}
	return n.right.walk(from, yield)
}

func diff[T any](a, b *node[T], changed func(key string, a, b *T)) {
	switch {
	case a == b:
	case a == nil:
		b.walk("", func(key string, v *T) bool { changed(key, nil, v); return true })
	case b == nil:
		a.walk("", func(key string, v *T) bool { changed(key, v, nil); return true })
	default:
		below, at, above := b.split(a.key)
		diff(a.left, below, changed)
		switch {
		case at == nil:
			changed(a.key, a.value, nil)
		case at.value != a.value:
			changed(a.key, a.value, at.value)
		}
		diff(a.right, above, changed)
	}
}
