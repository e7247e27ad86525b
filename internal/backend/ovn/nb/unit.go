// SPDX-License-Identifier: Apache-2.0

package nb

import (
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// Ref names a desired row.
type Ref struct {
	Table string
	Key   string
}

func (r Ref) String() string { return r.Table + " " + r.Key }

// Row is a desired row.
type Row struct {
	Key string
	// Data is a pointer to a row of one of this package's types, without UUID and external_ids'
	// owner. It must not be changed any more.
	Data model.Model
}

// Ref names the row.
func (r Row) Ref() Ref { return Ref{TableOf(r.Data).Name, r.Key} }

// Element is one value in a column of another row, which is a set: the key of a row if the column
// refers to rows, else the value itself, such as an address in an Address_Set. The other row may
// be any, also one of another unit, or one that is not there: the Element waits for it.
type Element struct {
	Of     Ref
	Column string
	Value  string
}

// Unit is what one object of intent is compiled to.
type Unit struct {
	Rows     []Row
	Elements []Element
	Problems []Problem
}

// Problem is what OVN cannot do for an object, or not as asked for.
type Problem struct {
	Object  string // what people call it, such as "Egress web"
	Reason  string // one word, as conditions have it
	Message string // what is not done, and what to do
}

// Key is that of a row of the unit that has the given name: its first row of a table has the unit's
// name, others say what they are for in parts.
func Key(unit string, parts ...string) string {
	return strings.Join(append([]string{unit}, parts...), " ")
}

// Add adds a row and returns its Ref.
func (u *Unit) Add(key string, data model.Model) Ref {
	r := Row{key, data}
	u.Rows = append(u.Rows, r)
	return r.Ref()
}

// AddTo adds a row and makes it an element of a column of another row, its parent.
func (u *Unit) AddTo(parent Ref, column, key string, data model.Model) Ref {
	r := u.Add(key, data)
	u.Put(parent, column, key)
	return r
}

// Put makes a value, or the row of that key, an element of a column of another row.
func (u *Unit) Put(of Ref, column, value string) {
	u.Elements = append(u.Elements, Element{of, column, value})
}

// Problem adds a Problem.
func (u *Unit) Problem(object, reason, message string) {
	u.Problems = append(u.Problems, Problem{object, reason, message})
}
