// SPDX-License-Identifier: Apache-2.0

package intent

import "hash/maphash"

// tree is a persistent sorted map: put and remove return a new tree that shares all but the path
// they touch. It is a treap with hashes of the keys as priorities, so its shape depends on the set
// of keys only, not on the order in which they came; that is what makes diff cheap.
type tree[T any] struct {
	root *treeNode[T]
	size int
}

type treeNode[T any] struct {
	key         string
	priority    uint64
	value       *T
	left, right *treeNode[T]
}

var seed = maphash.MakeSeed()

func (t tree[T]) get(key string) *T {
	for n := t.root; n != nil; {
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

func (t tree[T]) put(key string, value *T) tree[T] {
	if t.get(key) == nil {
		t.size++
	}
	t.root = t.root.put(&treeNode[T]{key: key, priority: maphash.String(seed, key), value: value})
	return t
}

func (t tree[T]) remove(key string) tree[T] {
	if t.get(key) == nil {
		return t
	}
	return tree[T]{root: t.root.remove(key), size: t.size - 1}
}

// above orders nodes from the root down; the key breaks ties of the hash.
func (n *treeNode[T]) above(o *treeNode[T]) bool {
	return n.priority > o.priority || n.priority == o.priority && n.key < o.key
}

// put takes ownership of add.
func (n *treeNode[T]) put(add *treeNode[T]) *treeNode[T] {
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
func (n *treeNode[T]) split(key string) (below, at, above *treeNode[T]) {
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

func (n *treeNode[T]) remove(key string) *treeNode[T] {
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
func join[T any](a, b *treeNode[T]) *treeNode[T] {
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
func (n *treeNode[T]) walk(from string, yield func(string, *T) bool) bool {
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

// diff calls changed, in the order of keys, with every key that has another value in b than in a.
// Subtrees that both share are not visited.
func diff[T any](a, b *treeNode[T], changed func(key string, a, b *T)) {
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
