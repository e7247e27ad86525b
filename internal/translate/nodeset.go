// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/intent"
)

// NodeSet is all Node objects. A change retranslates what it touches: the node itself, and nodes
// with addresses or podCIDRs that overlap its own, directly or by way of others, because the oldest
// object keeps what overlaps. The result depends only on the objects in the set, not on the order
// in which they came. It is for one goroutine.
type NodeSet struct {
	objects map[string]*corev1.Node
	touched map[string]struct{}
	// As of the last Changes:
	wanted   overlaps
	nodes    map[string]intent.Node
	problems map[string][]Problem // by the name of the node
}

// NewNodeSet makes an empty set.
func NewNodeSet() *NodeSet {
	return &NodeSet{
		objects: map[string]*corev1.Node{}, touched: map[string]struct{}{},
		wanted: overlaps{byNode: map[string][]netip.Prefix{}},
		nodes:  map[string]intent.Node{}, problems: map[string][]Problem{},
	}
}

// Set adds or replaces the node of a name; nil removes it.
func (s *NodeSet) Set(name string, o *corev1.Node) {
	s.touched[name] = struct{}{}
	if o != nil {
		s.objects[name] = o
	} else {
		delete(s.objects, name)
	}
}

// Changes is how intent differs from what it was at the last call, or from nothing, and whether
// Problems may differ, too.
func (s *NodeSet) Changes() (c Change[intent.Node], problems bool) {
	if len(s.touched) == 0 {
		return c, false
	}
	touched := s.spread()
	var objects []*corev1.Node
	for name := range touched {
		problems = problems || len(s.problems[name]) > 0
		delete(s.problems, name)
		if o := s.objects[name]; o != nil {
			objects = append(objects, o)
		} else if old, was := s.nodes[name]; was {
			c.Gone = append(c.Gone, old)
			delete(s.nodes, name)
		}
	}
	nodes, found := Nodes(objects)
	for _, n := range nodes {
		s.nodes[n.Name] = n
	}
	for _, p := range found {
		name := strings.TrimPrefix(p.Object, nodeObject)
		s.problems[name] = append(s.problems[name], p)
	}
	c.Set = nodes
	return c, problems || len(found) > 0
}

// spread takes the names that were touched, and adds those of nodes that want something of what
// these wanted or want, and so on: together they are translated as if there were no others.
func (s *NodeSet) spread() map[string]struct{} {
	touched := s.touched
	s.touched = map[string]struct{}{}
	found := maps.Clone(touched)
	if len(s.nodes) > 0 {
		s.wanted.overlapping(touched, found)
	}
	s.wanted.replace(touched, s.objects)
	present := 0
	for name := range found {
		if s.objects[name] != nil {
			present++
		}
	}
	for next := found; len(next) > 0 && present < len(s.objects); {
		more := map[string]struct{}{}
		s.wanted.overlapping(next, more)
		maps.DeleteFunc(more, func(name string, _ struct{}) bool { _, known := found[name]; return known })
		maps.Copy(found, more)
		next, present = more, present+len(more)
	}
	return found
}

// Problems are those of all nodes as of the last call of Changes, in the order of Nodes.
func (s *NodeSet) Problems() []Problem {
	list := slices.Concat(slices.Collect(maps.Values(s.problems))...)
	sortProblems(list)
	return list
}
