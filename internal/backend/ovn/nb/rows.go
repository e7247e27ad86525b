// SPDX-License-Identifier: Apache-2.0

package nb

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// Rows are all rows that a cluster wants, from units. The zero value is not usable: NewRows. It is
// not safe for concurrent use.
type Rows struct {
	units    map[string]Unit
	rows     map[Ref]model.Model
	elements map[Ref]map[ColumnValue]int // how many units put it there
	holders  map[Ref]map[Holder]struct{}
	changed  map[Ref]*Change
}

// ColumnValue is a value in a column that is a set.
type ColumnValue struct{ Column, Value string }

// Change says in what a row is no longer wanted as it was.
type Change struct {
	// Whole says that its data differs, or that it has come or gone.
	Whole bool
	// Elements have come or gone.
	Elements map[ColumnValue]bool
}

// Holder is a column of a row that another row is an element of.
type Holder struct {
	Of     Ref
	Column string
}

// NewRows returns Rows without any.
func NewRows() *Rows {
	return &Rows{
		units: map[string]Unit{}, rows: map[Ref]model.Model{}, elements: map[Ref]map[ColumnValue]int{},
		holders: map[Ref]map[Holder]struct{}{}, changed: map[Ref]*Change{},
	}
}

// Set replaces what the unit of that name contributes; an empty Unit removes it. Rows of different
// units must not have one key: names of units are unique, and keys of rows begin with them (Key).
// Of two rows of the unit with one key the first counts.
func (r *Rows) Set(name string, u Unit) {
	old, ok := r.units[name]
	if ok && old.equal(u) {
		return
	}
	for _, row := range old.Rows {
		delete(r.rows, row.Ref())
	}
	for _, row := range u.Rows {
		if _, twice := r.rows[row.Ref()]; !twice {
			r.rows[row.Ref()] = row.Data
		}
	}
	r.note(old.Rows, u.Rows)
	for _, e := range u.Elements {
		r.put(e)
	}
	for _, e := range old.Elements {
		r.take(e)
	}
	if len(u.Rows) == 0 && len(u.Elements) == 0 && len(u.Problems) == 0 {
		delete(r.units, name)
		return
	}
	r.units[name] = u
}

// note records which rows differ between two lists of one unit.
func (r *Rows) note(old, now []Row) {
	before := make(map[Ref]model.Model, len(old))
	for _, row := range slices.Backward(old) {
		before[row.Ref()] = row.Data
	}
	for _, row := range now {
		ref := row.Ref()
		if was, ok := before[ref]; !ok || !reflect.DeepEqual(was, r.rows[ref]) {
			r.change(ref).Whole = true
		}
	}
	for ref := range before {
		if _, still := r.rows[ref]; !still {
			r.change(ref).Whole = true
		}
	}
}

func (r *Rows) put(e Element) {
	of := r.elements[e.Of]
	if of == nil {
		of = map[ColumnValue]int{}
		r.elements[e.Of] = of
	}
	v := ColumnValue{e.Column, e.Value}
	if of[v]++; of[v] > 1 {
		return
	}
	r.element(e.Of, v)
	if row, ok := e.row(); ok {
		if r.holders[row] == nil {
			r.holders[row] = map[Holder]struct{}{}
		}
		r.holders[row][Holder{e.Of, e.Column}] = struct{}{}
	}
}

// row is the row that an Element is; false if it is a value.
func (e Element) row() (Ref, bool) {
	c := TableNamed(e.Of.Table).Column(e.Column)
	if c == nil {
		panic(fmt.Sprintf("%s has no column %s", e.Of.Table, e.Column))
	}
	return Ref{c.Refers, e.Value}, c.Refers != ""
}

func (r *Rows) take(e Element) {
	of, v := r.elements[e.Of], ColumnValue{e.Column, e.Value}
	if of[v]--; of[v] > 0 {
		return
	}
	delete(of, v)
	r.element(e.Of, v)
	if len(of) == 0 {
		delete(r.elements, e.Of)
	}
	if row, ok := e.row(); ok {
		delete(r.holders[row], Holder{e.Of, e.Column})
		if len(r.holders[row]) == 0 {
			delete(r.holders, row)
		}
	}
}

// Changes returns in what rows differ from what they were at the last call.
func (r *Rows) Changes() map[Ref]*Change {
	changed := r.changed
	r.changed = map[Ref]*Change{}
	return changed
}

func (r *Rows) change(ref Ref) *Change {
	c := r.changed[ref]
	if c == nil {
		c = &Change{}
		r.changed[ref] = c
	}
	return c
}

// element notes that an element has come or gone.
func (r *Rows) element(of Ref, v ColumnValue) { r.change(of).Add(v) }

// Add adds an element to the Change.
func (c *Change) Add(v ColumnValue) {
	if c.Elements == nil {
		c.Elements = map[ColumnValue]bool{}
	}
	c.Elements[v] = true
}

// Merge adds another Change of the row.
func (c *Change) Merge(o *Change) {
	c.Whole = c.Whole || o.Whole
	for v := range o.Elements {
		c.Add(v)
	}
}

// Get returns a row's data; false if it is not wanted.
func (r *Rows) Get(ref Ref) (model.Model, bool) {
	data, ok := r.rows[ref]
	return data, ok
}

// Refs yields all rows in any order.
func (r *Rows) Refs() iter.Seq[Ref] { return maps.Keys(r.rows) }

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.rows) }

// Elements yields column and value of a row's elements in any order, beside what its data has.
func (r *Rows) Elements(ref Ref) iter.Seq2[string, string] {
	return func(yield func(column, value string) bool) {
		for v := range r.elements[ref] {
			if !yield(v.Column, v.Value) {
				return
			}
		}
	}
}

// HasElement says whether a row has the element, beside what its data has.
func (r *Rows) HasElement(ref Ref, v ColumnValue) bool { return r.elements[ref][v] > 0 }

// Holders yields where a row is an element, in any order.
func (r *Rows) Holders(ref Ref) iter.Seq[Holder] { return maps.Keys(r.holders[ref]) }

// Problems are those of all units, by object.
func (r *Rows) Problems() []Problem {
	var list []Problem
	for _, u := range r.units {
		list = append(list, u.Problems...)
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list)
}

// Compare orders by table and key.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Table, o.Table), cmp.Compare(r.Key, o.Key))
}

func (u Unit) equal(o Unit) bool {
	return slices.Equal(u.Elements, o.Elements) && slices.Equal(u.Problems, o.Problems) &&
		slices.EqualFunc(u.Rows, o.Rows, func(a, b Row) bool {
			return a.Key == b.Key && reflect.DeepEqual(a.Data, b.Data)
		})
}
