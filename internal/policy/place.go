// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// location is what tells one Peer from another.
type location struct {
	space   string
	address netip.Addr
}

func (p Place) location() location { return location{p.Space, p.Address} }

func (p Place) isPrimary() bool { return !p.Secondary }

// holder is what has a location: a pod or Port of an identity, with a further interface if
// secondary, or a node.
type holder struct {
	identity  *identity // or
	node      *node
	secondary bool
}

// groups are those that it is in, if its place is.
func (h holder) groups() iter.Seq[*group] {
	switch {
	case h.identity != nil:
		return h.identity.groups()
	case h.node != nil:
		return h.node.groups()
	}
	return func(func(*group) bool) {}
}

// places of a node, which knows no Space but that of the cluster.
func (n Node) places() []Place {
	out := make([]Place, len(n.Addresses))
	for i, a := range n.Addresses {
		out[i] = Place{Space: intent.DefaultRouterName, Address: a}
	}
	return unique(out)
}

// unique returns the places, each once.
func unique(places []Place) []Place {
	var out []Place
	for _, p := range places {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// presence is the places of an Endpoint or node, and those of its groups that some node needs.
type presence struct {
	identity *identity
	node     *node // of the two at most one
	places   []Place
	groups   []*group
}

func (e *Engine) presence(c *identity, n *node, places []Place) presence {
	p := presence{identity: c, node: n, places: places}
	if len(e.attached) == 0 {
		return p
	}
	for g := range (holder{identity: c, node: n}).groups() {
		if g.users.len() > 0 {
			p.groups = append(p.groups, g)
		}
	}
	return p
}

// moved replaces one presence by another of the same Endpoint or node, and notifies the nodes that
// need the groups in which they differ.
func (e *Engine) moved(from, to presence) {
	for _, p := range to.places {
		e.hold(p.location(), holder{to.identity, to.node, p.Secondary})
	}
	for _, p := range from.places {
		e.release(p.location(), holder{from.identity, from.node, p.Secondary})
		if !slices.Contains(to.places, p) {
			e.peersChanged(from.groups, p)
		}
	}
	var changed []*group
	known := false
	for _, p := range to.places {
		if !slices.Contains(from.places, p) {
			e.peersChanged(to.groups, p)
			continue
		}
		if !known {
			changed, known = difference(from.groups, to.groups), true
		}
		e.peersChanged(changed, p)
	}
}

// difference is what only one of them has.
func difference(a, b []*group) []*group {
	if slices.Equal(a, b) {
		return nil
	}
	in := map[*group]bool{}
	for _, g := range a {
		in[g] = true
	}
	var out []*group
	for _, g := range b {
		if in[g] {
			delete(in, g)
		} else {
			out = append(out, g)
		}
	}
	for g := range in {
		out = append(out, g)
	}
	return out
}

func (e *Engine) hold(l location, h holder) {
	b := e.holders[l]
	if b == nil {
		b = &multiset[holder]{}
		e.holders[l] = b
	}
	b.add(h)
}

func (e *Engine) release(l location, h holder) {
	if b := e.holders[l]; b.remove(h) == 0 && b.len() == 0 {
		delete(e.holders, l)
	}
}

// peersChanged tells all nodes that need one of the groups that the place has come to
// it or left it.
func (e *Engine) peersChanged(groups []*group, p Place) {
	for _, g := range groups {
		e.peerChanged(g, p)
	}
}

func (e *Engine) peerChanged(g *group, p Place) {
	if !g.hasPlace(p) {
		return
	}
	l := p.location()
	for w := range g.users.all() {
		w.peers[l] = struct{}{}
		e.touched[w] = struct{}{}
	}
}
