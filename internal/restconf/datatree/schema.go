// SPDX-License-Identifier: Apache-2.0

// Package datatree has the data of YANG models as trees of JSON values: paths to their nodes,
// bodies of requests checked against the schema, edits, and the parts that a query selects. It does
// no I/O.
//
// A tree is made of map[string]any (containers and entries of lists), []any (lists and leaf-lists)
// and strings, json.Numbers and bools (leaves), as encoding/json decodes them. Member names in it
// have no module; Qualify adds them where RFC 7951, section 4 wants them.
package datatree

import (
	"reflect"
	"strings"

	"github.com/openconfig/goyang/pkg/yang"
)

// Kind is what sort of node a schema node is.
type Kind int

// The kinds of nodes that the models have.
const (
	Container Kind = iota
	List
	Leaf
	LeafList
)

// Node is a node of the schema.
type Node struct {
	Name   string
	Module string
	Kind   Kind
	// State reports that the node is config false (RFC 7950, section 7.21.1).
	State bool
	// Mandatory reports that an entry is invalid without the leaf.
	Mandatory bool
	// Presence reports that a container means something by being there, also if it is empty.
	Presence bool
	// Keys are the names of a list's key leaves.
	Keys []string
	// Type is the type of a leaf.
	Type     *yang.YangType
	Children map[string]*Node
	Parent   *Node
	// Entry is what validates Go values of the node.
	Entry *yang.Entry
}

// NewSchema makes the schema of generated models: entry is the root's, and fields its Go struct
// with the modules' names in its tags.
func NewSchema(entry *yang.Entry, fields any) *Node {
	root := &Node{Kind: Container, Children: map[string]*Node{}, Entry: entry}
	root.add(entry, reflect.TypeOf(fields))
	return root
}

// add makes the children that the struct type t has.
func (n *Node) add(entry *yang.Entry, t reflect.Type) {
	t = structOf(t)
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("path")
		e := entry.Dir[name]
		if e == nil {
			continue
		}
		module, _, _ := strings.Cut(field.Tag.Get("module"), "/")
		c := &Node{
			Name: name, Module: module, Parent: n, Entry: e, Type: e.Type,
			State:     n.State || e.Config == yang.TSFalse,
			Mandatory: e.Mandatory == yang.TSTrue, Presence: field.Tag.Get("yangPresence") == "true",
		}
		switch {
		case e.IsList():
			c.Kind, c.Keys, c.Children = List, strings.Fields(e.Key), map[string]*Node{}
		case e.IsLeafList():
			c.Kind = LeafList
		case e.IsLeaf():
			c.Kind = Leaf
		default:
			c.Kind, c.Children = Container, map[string]*Node{}
		}
		if c.Children != nil {
			c.add(e, field.Type)
		}
		n.Children[name] = c
	}
}

// structOf is the struct of a node, or of a list's entry: a map of entries, or, where they have an
// order, what keeps that.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
		if values, ordered := t.MethodByName("Values"); ordered {
			t = values.Type.Out(0).Elem()
			continue
		}
		t = t.Elem()
	}
	return t
}

// isKey reports whether a leaf is a key of its list.
func (n *Node) isKey() bool {
	if n.Parent == nil || n.Kind != Leaf {
		return false
	}
	for _, k := range n.Parent.Keys {
		if k == n.Name {
			return true
		}
	}
	return false
}

// always reports whether a node is a container outside of lists: it is there also without data (RFC
// 7950, section 7.5.1).
func (n *Node) always() bool {
	for ; n.Parent != nil; n = n.Parent {
		if n.Kind != Container {
			return false
		}
	}
	return true
}

// Positioned reports whether the entries of a list have an order and no name (position of
// coelan-types): then an edit of a node above replaces the list as a whole.
func (n *Node) Positioned() bool {
	if n.Kind != List || len(n.Keys) != 1 {
		return false
	}
	key := n.Children[n.Keys[0]]
	return key != nil && typeName(key.Type) == "position"
}

// qualified is the name as the top of a message has it.
func (n *Node) qualified() string {
	if n.Parent == nil {
		return "ietf-restconf:data"
	}
	return n.Module + ":" + n.Name
}

// Path is the node's path in the schema, such as /elan:elan-instances/elan-instance.
func (n *Node) Path() string {
	if n == nil || n.Parent == nil {
		return ""
	}
	if n.Parent.Module != n.Module {
		return n.Parent.Path() + "/" + n.qualified()
	}
	return n.Parent.Path() + "/" + n.Name
}

// child finds a child by a name that may be qualified with its module.
func (n *Node) child(name string) (*Node, bool) {
	module, local, qualified := strings.Cut(name, ":")
	if !qualified {
		local = module
	}
	c := n.Children[local]
	if c == nil || qualified && c.Module != module {
		return nil, false
	}
	// At the top only the module tells the models apart (RFC 8040, section 3.5.3).
	if !qualified && n.Parent == nil {
		return nil, false
	}
	return c, true
}
