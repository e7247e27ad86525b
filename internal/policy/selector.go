// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// selector is a Selector that some policy has, and what it selects now. Equal ones share it.
type selector struct {
	text string // the canonical one
	Selector
	scope *scope // of those that select Ports by labels
	uses  int    // by subjects, groups and watches

	identities multiset[*identity]
	nodes      multiset[*node]

	governing []*policy // that it is a subject of
	groups    []*group
	watches   []*watch
}

// scope is a set of namespaces in which selectors select Ports: a single one, or those that are
// selected by labels.
type scope struct {
	text      string // of those by labels: the canonical one
	labels    labels.Selector
	members   multiset[*namespace]
	selectors labelIndex[*selector]
	count     int // of selectors
}

// watch follows which ports a container port's name stands for among what a selector selects.
type watch struct {
	*selector
	port     Port
	found    multiset[resolved] // one for each identity
	policies multiset[*policy]  // that depend on it
}

// selector returns the shared selector for a Selector, or nil for one that selects nothing. The
// caller releases it by drop.
func (e *Engine) selector(spec Selector) *selector {
	text := spec.canonical()
	if text == "" {
		return nil
	}
	s := e.selectors[text]
	if s == nil {
		s = &selector{text: text, Selector: spec}
		e.selectors[text] = s
		e.start(s)
	}
	s.uses++
	return s
}

// start has a new selector find what it selects.
func (e *Engine) start(s *selector) {
	switch {
	case s.Nodes != nil:
		requirements, _ := s.Nodes.Requirements()
		e.nodeSelectors.add(requirements, s)
		for _, n := range e.nodes {
			if n.known && s.Nodes.Matches(n.labels) {
				s.nodes.add(n)
				n.selectors = append(n.selectors, s)
			}
		}
		return
	case s.SecurityGroup != "":
		if named := e.naming[s.SecurityGroup]; named != nil {
			for c := range named.all() {
				e.join(s, c)
			}
		}
		return
	}
	s.scope = e.scope(s.Selector)
	requirements, _ := s.Pods.Requirements()
	s.scope.selectors.add(requirements, s)
	s.scope.count++
	for n := range s.scope.members.all() {
		for _, c := range n.identities {
			if s.Pods.Matches(c.labels) {
				e.join(s, c)
			}
		}
	}
}

// scope returns the namespaces of a Selector that selects Ports by labels.
func (e *Engine) scope(spec Selector) *scope {
	if spec.Namespace != "" {
		return &e.namespace(spec.Namespace).own
	}
	text := tagged("", spec.Namespaces)
	s := e.scopes[text]
	if s == nil {
		s = &scope{text: text, labels: spec.Namespaces}
		e.scopes[text] = s
		requirements, _ := s.labels.Requirements()
		e.scopeSelectors.add(requirements, s)
		for _, n := range e.namespaces {
			if n.known && s.labels.Matches(n.labels) {
				s.members.add(n)
				n.scopes = append(n.scopes, s)
			}
		}
	}
	return s
}

// drop forgets a selector that has no other user.
func (e *Engine) drop(s *selector) {
	s.uses--
	if s.uses > 0 {
		return
	}
	delete(e.selectors, s.text)
	for c := range s.identities.all() {
		c.selectors = without(c.selectors, s)
	}
	for n := range s.nodes.all() {
		n.selectors = without(n.selectors, s)
	}
	if s.Nodes != nil {
		requirements, _ := s.Nodes.Requirements()
		e.nodeSelectors.remove(requirements, s)
	}
	if s.scope == nil {
		return
	}
	requirements, _ := s.Pods.Requirements()
	s.scope.selectors.remove(requirements, s)
	s.scope.count--
	switch {
	case s.scope.count > 0:
	case s.scope.labels == nil:
		for n := range s.scope.members.all() { // its own, only
			e.tidyNamespace(n)
		}
	default:
		requirements, _ := s.scope.labels.Requirements()
		e.scopeSelectors.remove(requirements, s.scope)
		delete(e.scopes, s.scope.text)
		for n := range s.scope.members.all() {
			n.scopes = without(n.scopes, s.scope)
		}
	}
}

// join has a selector select an identity.
func (e *Engine) join(s *selector, c *identity) {
	s.identities.add(c)
	c.selectors = append(c.selectors, s)
	for _, w := range s.watches {
		for _, at := range resolve(c.ports, w.port) {
			e.watchAdd(w, at)
		}
	}
	e.selectionChanged(s, c)
}

// leave has it no longer select it.
func (e *Engine) leave(s *selector, c *identity) {
	s.identities.remove(c)
	c.selectors = without(c.selectors, s)
	for _, w := range s.watches {
		for _, at := range resolve(c.ports, w.port) {
			e.watchRemove(w, at)
		}
	}
	e.selectionChanged(s, c)
}

// selectionChanged notifies the dependents of the selector that it selects the identity,
// or does no longer.
func (e *Engine) selectionChanged(s *selector, c *identity) {
	if len(s.governing) > 0 {
		e.stale(c)
	}
	for _, g := range s.groups {
		if g.users.len() == 0 || !g.hasIdentity(c) {
			continue
		}
		for p := range c.endpoints.all() {
			for _, place := range p.places {
				e.peerChanged(g, place)
			}
		}
	}
}

// watch returns the shared watch of a port's name among what the selector selects, for the policy,
// which releases it by unwatch.
func (e *Engine) watch(spec Selector, port Port, p *policy) *watch {
	s := e.selector(spec)
	if s == nil {
		return nil
	}
	port.First, port.Last, port.ICMP = 0, 0, false
	i := slices.IndexFunc(s.watches, func(w *watch) bool { return w.port == port })
	if i < 0 {
		w := &watch{selector: s, port: port}
		for c := range s.identities.all() {
			for _, at := range resolve(c.ports, port) {
				w.found.add(at)
			}
		}
		i = len(s.watches)
		s.watches = append(s.watches, w)
	}
	s.watches[i].policies.add(p)
	return s.watches[i]
}

func (e *Engine) unwatch(w *watch, p *policy) {
	if w.policies.remove(p); w.policies.len() == 0 {
		w.selector.watches = without(w.selector.watches, w)
	}
	e.drop(w.selector)
}

func (e *Engine) watchAdd(w *watch, at resolved) {
	if w.found.add(at) == 1 {
		e.watchChanged(w)
	}
}

func (e *Engine) watchRemove(w *watch, at resolved) {
	if w.found.remove(at) == 0 {
		e.watchChanged(w)
	}
}

// watchChanged has the policies that depend on it be built anew.
func (e *Engine) watchChanged(w *watch) {
	for p := range w.policies.all() {
		if _, ok := e.stalePolicies[p.Ref]; !ok {
			same := p.Policy
			e.stalePolicies[p.Ref] = &same
		}
	}
}
