// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"github.com/openconfig/ygot/ygot"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/restconf/datatree"
)

// List is a list of the models; its entries are objects.
type List struct {
	// Container is at the top of its module, Name the list in it, or in its container Inner.
	Container, Inner, Name string
	// Reads are the resources that entries are made of; the first is the one that says whether a
	// client may read them.
	Reads []Resource
	// Guards are read as well for an edit: they may keep an entry from being removed.
	Guards []Resource
	// Single says when one entry's objects can be read alone.
	Single Single
	// Refers adds to the Entry of an edit what the entry that it writes refers to; false: that
	// cannot be said. A nil entry is not written as a whole.
	Refers func(of *Entry, entry map[string]any, path datatree.Path) bool
	// Late reports that entries need those of other lists, which are written before them.
	Late bool
	// New is an empty entry.
	New func() ygot.GoStruct
	// Entries are the configuration that the World has.
	Entries func(*World) []ygot.GoStruct
	// Operational are the entries of what is in operation; nil: as Entries.
	Operational func(*World) []ygot.GoStruct
	// Write makes an entry or replaces it; nil: the list cannot be written.
	Write func(w *World, entry ygot.GoStruct) error
	// Remove removes the entry with that key; nil: none can be removed.
	Remove func(w *World, key string) error
	// Object is the resource of a list of the module coelan: its entries are objects as they are,
	// node for field, and Show and Edit take the place of Entries, Operational and Write.
	Object Resource
	// Show are the entries as trees; with only, that of a key alone.
	Show func(w *World, node *datatree.Node, operational bool, only string) []map[string]any
	// Edit makes an object be as a valid entry says; nil: the list cannot be written.
	Edit func(w *World, node *datatree.Node, entry map[string]any) error
	// Kept are the keys of entries that no client can remove: they stay if the list is replaced as
	// a whole; nil: there are none.
	Kept func(*World) []string
}

// Entry is one of a list, by the list's container and its own key; the zero Entry: all of them.
type Entry struct {
	Container, Key string
	// Object is that of the List.
	Object Resource
	// Named is the object that an edit calls the entry's, if it gives a name; Members are the uids
	// of the pods and Ports that it refers to.
	Named   types.NamespacedName
	Members []string
}

// Single says when the objects of one entry are enough for a request that is about it.
type Single int

// The cases.
const (
	Never  Single = iota
	IfRead        // an edit compares it with others, unless the list has Refers
	Always        // but not of what is in operation
)

// Lists are all that are mapped, by container.
func Lists() map[string]*List {
	all := map[string]*List{}
	for _, l := range append(objectLists(),
		pools(), pods(), elanInstances(), elanInterfaces(), vpnInstances(), nodes(), services(), endpoints(),
		policies(), clusters(), vpnInterfaces(), interfaces(), interfaceStates(),
	) {
		all[l.Container] = l
	}
	return all
}

// writer adapts a function of one entry's type.
func writer[T ygot.GoStruct](write func(*World, T) error) func(*World, ygot.GoStruct) error {
	return func(w *World, entry ygot.GoStruct) error { return write(w, entry.(T)) }
}

// structs adapts a slice of one entry's type.
func structs[T ygot.GoStruct](list []T) []ygot.GoStruct {
	result := make([]ygot.GoStruct, len(list))
	for i, e := range list {
		result[i] = e
	}
	return result
}

// invalid is a value that an entry must not have.
func invalid(leaf, message string) error { return datatree.Fail(datatree.InvalidValue, leaf, message) }

// unsupported is a value that Coelan has nothing for.
func unsupported(leaf, message string) error {
	return datatree.Fail(datatree.OperationNotSupported, leaf, message)
}

// optional is a pointer to a value; nil if that is empty.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// text is what a pointer points to, or the zero value.
func text[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
