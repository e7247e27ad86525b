// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"strings"

	"coelan.io/coelan/internal/sortedmap"
)

// object is what a Table can hold.
type object[T any] interface {
	key() string
	equal(T) bool
	clone() T
}

// Table is an immutable map from key to object, sorted by key, with indexes.
// Slices inside the objects that it returns must not be written to.
type Table[T object[T]] struct {
	rows    sortedmap.Map[T]
	indexes []index[T]
}

// index finds objects by something else than their key. An entry's key is the
// indexed value, a zero byte and the object's key.
type index[T any] struct {
	values  func(T) []string
	entries sortedmap.Map[T]
}

// Get returns the object of a key.
func (t Table[T]) Get(key string) (T, bool) {
	if row := t.rows.Get(key); row != nil {
		return *row, true
	}
	var none T
	return none, false
}

// Len is the number of objects.
func (t Table[T]) Len() int { return t.rows.Len() }

// All yields the objects in the order of their keys.
func (t Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for row := range t.rows.Values() {
			if !yield(*row) {
				return
			}
		}
	}
}

// by yields the objects that the index number i files under value.
func (t Table[T]) by(i int, value string) iter.Seq[T] { return t.indexes[i].by(value) }

func (x index[T]) by(value string) iter.Seq[T] {
	prefix := value + "\x00"
	return func(yield func(T) bool) {
		for key, row := range x.entries.From(prefix) {
			if !strings.HasPrefix(key, prefix) || !yield(*row) {
				return
			}
		}
	}
}

// add and remove return the index with or without an object.
func (x index[T]) add(key string, row *T) index[T] {
	for _, v := range x.values(*row) {
		x.entries = x.entries.Put(v+"\x00"+key, row)
	}
	return x
}

func (x index[T]) remove(key string, row *T) index[T] {
	for _, v := range x.values(*row) {
		x.entries = x.entries.Remove(v + "\x00" + key)
	}
	return x
}

// Index finds objects of a Table by something else than their key that only its user knows, such as
// a number that a backend makes of them. It never changes.
type Index[T object[T]] struct {
	index index[T]
	table Table[T]
}

// NewIndex returns the Index of an empty Table by the values of its objects.
func NewIndex[T object[T]](values func(T) []string) Index[T] {
	return Index[T]{index: index[T]{values: values}}
}

// At is the Index of another Table. The cost follows from how it differs from the Table
// that x is of.
func (x Index[T]) At(t Table[T]) Index[T] {
	sortedmap.Diff(x.table.rows, t.rows, func(key string, old, now *T) {
		if old != nil {
			x.index = x.index.remove(key, old)
		}
		if now != nil {
			x.index = x.index.add(key, now)
		}
	})
	x.table = t
	return x
}

// By yields the objects that have the value, in the order of their keys.
func (x Index[T]) By(value string) iter.Seq[T] { return x.index.by(value) }

// set returns the table with the object added or replaced. An equal object
// leaves the table as it is.
func (t Table[T]) set(obj T) Table[T] {
	key := obj.key()
	old := t.rows.Get(key)
	if old != nil && (*old).equal(obj) {
		return t
	}
	row := obj.clone()
	t = t.unindex(key, old)
	t.rows = t.rows.Put(key, &row)
	for i, x := range t.indexes {
		t.indexes[i] = x.add(key, &row)
	}
	return t
}

func (t Table[T]) delete(key string) Table[T] {
	old := t.rows.Get(key)
	if old == nil {
		return t
	}
	t = t.unindex(key, old)
	t.rows = t.rows.Remove(key)
	return t
}

// unindex returns a table with writable indexes of its own that do not hold old.
func (t Table[T]) unindex(key string, old *T) Table[T] {
	t.indexes = append([]index[T](nil), t.indexes...)
	if old == nil {
		return t
	}
	for i, x := range t.indexes {
		t.indexes[i] = x.remove(key, old)
	}
	return t
}

// changes lists the keys in which two tables differ, sorted.
func changes[T object[T]](a, b Table[T]) []string {
	var keys []string
	sortedmap.Diff(a.rows, b.rows, func(key string, old, now *T) {
		if old == nil || now == nil || !(*old).equal(*now) {
			keys = append(keys, key)
		}
	})
	return keys
}
