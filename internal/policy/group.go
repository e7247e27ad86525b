// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// canonical is the same text for Selectors that select the same for the same reason, and differs
// for all others. It is empty for those that select nothing.
func (s Selector) canonical() string {
	switch {
	case s.Nodes != nil:
		return tagged("nodes ", s.Nodes)
	case s.SecurityGroup != "":
		return "group " + strconv.Quote(s.SecurityGroup)
	case s.Namespace != "":
		return tagged("in "+strconv.Quote(s.Namespace)+" ", s.Pods)
	}
	scope := tagged("in any of ", s.Namespaces)
	if scope == "" {
		return ""
	}
	return tagged(scope+" ", s.Pods)
}

// selectsSomething says that canonical is not empty.
func (s Selector) selectsSomething() bool {
	something := func(s labels.Selector) bool { _, ok := requirementsOf(s); return ok }
	switch {
	case s.Nodes != nil:
		return something(s.Nodes)
	case s.SecurityGroup != "":
		return true
	}
	return something(s.Pods) && (s.Namespace != "" || something(s.Namespaces))
}

// tagged is the prefix with the canonical text of the labels' selector, or empty
// if that selects nothing.
func tagged(prefix string, s labels.Selector) string {
	requirements, ok := requirementsOf(s)
	if !ok {
		return ""
	}
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		values := r.ValuesUnsorted()
		slices.Sort(values)
		text := []byte(strconv.Quote(r.Key()) + " " + operator(r.Operator()))
		for _, v := range slices.Compact(values) {
			text = strconv.AppendQuote(append(text, ' '), v)
		}
		texts[i] = string(text)
	}
	slices.Sort(texts)
	return prefix + "(" + strings.Join(slices.Compact(texts), ",") + ")"
}

// operator is one of those that mean the same.
func operator(o selection.Operator) string {
	switch o {
	case selection.Equals, selection.DoubleEquals:
		o = selection.In
	case selection.NotEquals:
		o = selection.NotIn
	}
	return string(o)
}

// requirementsOf are those of the selector, unless it selects nothing.
func requirementsOf(s labels.Selector) (labels.Requirements, bool) {
	if s == nil {
		return nil, false
	}
	return s.Requirements()
}

// everywhere selects all Ports of Namespaces that are known.
var everywhere = Selector{Namespaces: labels.Everything(), Pods: labels.Everything()}

// resolved is what the name of a container port stands for.
type resolved struct {
	protocol uint8
	port     uint16
}

func (r resolved) compare(o resolved) int {
	return cmp.Or(cmp.Compare(r.protocol, o.protocol), cmp.Compare(r.port, o.port))
}

// suffix is what the ID of a rule's part for that port has behind the rule's.
func (r resolved) suffix() string {
	return "/" + strconv.Itoa(int(r.protocol)) + "-" + strconv.Itoa(int(r.port))
}

// groupIDBytes of a hash make the ID of a group. Two groups that were crafted to share an ID would
// be one: with 120 bits it takes 2^120 attempts to find a selector that shares that of another.
const groupIDBytes = 15

// group is the addresses of what a selector selects that a rule has to do with.
type group struct {
	id string
	*selector
	narrowed
	uses  int                // by parts of policies
	users multiset[*watcher] // of nodes that need it, once for each part there
}

// narrowed says which addresses those are, if not all.
type narrowed struct {
	port   string   // those of Ports that have a container port of this name
	at     resolved // is there
	family Family
	blocks []netip.Prefix // those in one of them, unless there are none
}

// id of the group that the narrowed selector is.
func (n narrowed) id(canonical string) string {
	text := []byte(canonical)
	if n.port != "" {
		text = strconv.AppendQuote(append(text, " port "...), n.port)
		text = append(text, n.at.suffix()...)
	}
	if n.family != AnyFamily {
		text = strconv.AppendUint(append(text, " family "...), uint64(n.family), 10)
	}
	for _, b := range n.blocks {
		text = b.AppendTo(append(text, ' '))
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:groupIDBytes])
}

// group returns the group of a Selector, narrowed, or nil if that selects nothing. The caller
// releases it by dropGroup.
func (e *Engine) group(spec Selector, n narrowed) *group {
	s := e.selector(spec)
	if s == nil {
		return nil
	}
	n.family = spec.Family
	id := n.id(s.text)
	g := e.groups[id]
	if g == nil {
		g = &group{id: id, selector: s, narrowed: n}
		e.groups[id] = g
		s.groups = append(s.groups, g)
		s.uses++
	}
	e.drop(s)
	g.uses++
	return g
}

func (e *Engine) dropGroup(g *group) {
	g.uses--
	if g.uses > 0 {
		return
	}
	delete(e.groups, g.id)
	g.selector.groups = without(g.selector.groups, g)
	e.drop(g.selector)
}

// hasIdentity says that the group has those of the identity's places that hasPlace says, if its
// selector selects the identity.
func (g *group) hasIdentity(c *identity) bool {
	return g.port == "" || slices.ContainsFunc(c.ports, func(n NamedPort) bool {
		return n.Name == g.port && n.Protocol == g.at.protocol && n.Port == g.at.port
	})
}

// hasPlace says that the group contains the place, if it contains the endpoint there.
func (g *group) hasPlace(p Place) bool {
	return (!p.Secondary || g.SecurityGroup != "") && g.family.Has(p.Address) &&
		(len(g.blocks) == 0 || inBlocks(g.blocks, p.Address))
}

// members are the places that the group has. Some may come twice.
func (g *group) members() iter.Seq[Place] {
	return func(yield func(Place) bool) {
		for c := range g.identities.all() {
			if !g.hasIdentity(c) {
				continue
			}
			for p := range c.endpoints.all() {
				for _, place := range p.places {
					if g.hasPlace(place) && !yield(place) {
						return
					}
				}
			}
		}
		if g.port != "" {
			return
		}
		for n := range g.nodes.all() {
			for _, place := range n.places {
				if g.hasPlace(place) && !yield(place) {
					return
				}
			}
		}
	}
}

// inBlocks says that the address is in one of the blocks, which are disjoint and sorted.
func inBlocks(blocks []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(blocks, a, func(b netip.Prefix, a netip.Addr) int {
		return b.Addr().Compare(a)
	})
	return found || i > 0 && blocks[i-1].Contains(a)
}
