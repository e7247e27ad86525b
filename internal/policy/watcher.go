// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"iter"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// watcher records the changes of one node, or of all of them together.
type watcher struct {
	node    *node                   // AllNodes: it is the Engine's everywhere
	applied map[*identity]*governed // the parts of it that are in use
	pending map[*identity]struct{}  // for which that may have to change

	// What has to be checked for the next Delta.
	rules    map[string]*part     // by ID
	subjects map[string]*governed // by Key; with how it was governed, if that is known
	peers    map[location]struct{}
}

// newWatcher returns one that has everything about the node before it.
func (e *Engine) newWatcher(name string) *watcher {
	n := e.node(name)
	w := &watcher{node: n, applied: map[*identity]*governed{}, pending: map[*identity]struct{}{}}
	w.forget()
	n.watchers = append(n.watchers, w)
	e.attached[w] = struct{}{}
	for p := range e.endpointsOf(w) {
		w.add(e, p)
	}
	if w.whole() {
		for _, p := range e.policies {
			w.follow(e, nil, p.all())
		}
	}
	return w
}

// follow has the watcher of all nodes use the parts of a policy also while they are for no Subject:
// those that it has now in place of those that it had.
func (w *watcher) follow(e *Engine, was, is []*part) {
	for _, p := range is {
		if !slices.Contains(was, p) {
			w.acquire(e, p)
			e.touched[w] = struct{}{}
		}
	}
	for _, p := range was {
		if !slices.Contains(is, p) {
			e.releases = append(e.releases, func() { w.release(e, p) })
			e.touched[w] = struct{}{}
		}
	}
}

// whole says that the watcher is for all nodes.
func (w *watcher) whole() bool { return w.node.name == AllNodes }

// covers says that Subjects of Endpoints on a node, which may be nil, are the watcher's.
func (w *watcher) covers(n *node) bool { return n != nil && (w.whole() || n == w.node) }

// endpointsOf are those that a watcher covers.
func (e *Engine) endpointsOf(w *watcher) iter.Seq[*endpoint] {
	if !w.whole() {
		return w.node.endpoints.all()
	}
	return func(yield func(*endpoint) bool) {
		for _, p := range e.endpoints {
			if p.node != nil && !yield(p) {
				return
			}
		}
	}
}

// watchersOf are those that cover a node.
func (e *Engine) watchersOf(n *node) iter.Seq[*watcher] {
	return func(yield func(*watcher) bool) {
		for _, list := range [...][]*watcher{n.watchers, e.everywhere.watchers} {
			for _, w := range list {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// forget has nothing to be checked.
func (w *watcher) forget() {
	if w.rules == nil || len(w.rules)+len(w.subjects)+len(w.peers) > 0 {
		w.rules, w.subjects, w.peers = map[string]*part{}, map[string]*governed{}, map[location]struct{}{}
	}
}

// close ends it.
func (w *watcher) close(e *Engine) {
	for p := range e.endpointsOf(w) {
		p.identity.on.remove(w)
	}
	var used []*part
	for _, g := range w.applied {
		used = append(used, g.parts...)
	}
	if w.whole() {
		for _, p := range e.policies {
			used = append(used, p.all()...)
		}
	}
	for _, p := range used {
		if p.users.remove(w) == 0 {
			for _, g := range p.groups {
				g.users.remove(w)
			}
		}
	}
	delete(e.attached, w)
	delete(e.touched, w)
	w.node.watchers = without(w.node.watchers, w)
	e.tidyNode(w.node)
}

// add has an Endpoint be on the node.
func (w *watcher) add(e *Engine, p *endpoint) {
	if p.identity.on.add(w) == 1 {
		w.pending[p.identity] = struct{}{}
	}
	w.subject(e, p.key, nil)
}

// remove has it be there no longer.
func (w *watcher) remove(e *Engine, p *endpoint) {
	if p.identity.on.remove(w) == 0 {
		w.pending[p.identity] = struct{}{}
	}
	w.subject(e, p.key, w.applied[p.identity])
}

// subject records that a Subject, which was governed so, may have changed; nil: it has.
func (w *watcher) subject(e *Engine, key string, was *governed) {
	if _, ok := w.subjects[key]; !ok || was == nil {
		w.subjects[key] = was
	}
	e.touched[w] = struct{}{}
}

// settle applies to the nodes what has changed of the policies and identities. What is used
// from now on comes before what is used no longer, so that nothing changes for what is
// used before and after.
func (e *Engine) settle() {
	for ref, p := range e.stalePolicies {
		e.build(ref, p)
	}
	clear(e.stalePolicies)
	e.closeUnplaced()
	for w := range e.touched {
		for c := range w.pending {
			w.apply(e, c)
		}
		if len(w.pending) > 0 {
			w.pending = map[*identity]struct{}{}
		}
	}
	for _, f := range e.releases {
		f()
	}
	for _, f := range e.drops {
		f()
	}
	e.releases, e.drops = nil, nil
}

// apply has the identity's Subjects on the node be governed as they are to be.
func (w *watcher) apply(e *Engine, c *identity) {
	was := w.applied[c]
	if c.on.count(w) == 0 {
		delete(w.applied, c)
		w.exchange(e, was, nil)
		return
	}
	is := e.govern(c)
	if was != nil && was.equal(is) {
		return
	}
	w.applied[c] = is
	w.exchange(e, was, is)
	if was == nil {
		return // additions have been recorded already
	}
	if w.whole() || c.endpoints.len() < w.node.endpoints.len() {
		for p := range c.endpoints.all() {
			if w.covers(p.node) {
				w.subject(e, p.key, was)
			}
		}
		return
	}
	for p := range w.node.endpoints.all() {
		if p.identity == c {
			w.subject(e, p.key, was)
		}
	}
}

func (w *watcher) acquire(e *Engine, p *part) {
	if p.users.add(w) > 1 {
		return
	}
	w.rules[p.rule.ID] = p
	for _, g := range p.groups {
		w.use(e, g)
	}
}

// exchange has the parts of one be used instead of those of the other. Both are in the
// order of the IDs.
func (w *watcher) exchange(e *Engine, was, is *governed) {
	var old, now []*part
	if was != nil {
		old = was.parts
	}
	if is != nil {
		now = is.parts
	}
	var left []*part
	for len(old) > 0 || len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			// Two that are used at a time differ in it.
			order = cmp.Compare(old[0].rule.ID, now[0].rule.ID)
		}
		if order < 0 {
			left = append(left, old[0])
		}
		if order > 0 {
			w.acquire(e, now[0])
		}
		if order <= 0 {
			old = old[1:]
		}
		if order >= 0 {
			now = now[1:]
		}
	}
	if len(left) > 0 {
		e.releases = append(e.releases, func() {
			for _, p := range left {
				w.release(e, p)
			}
		})
	}
}

func (w *watcher) release(e *Engine, p *part) {
	if p.users.remove(w) > 0 {
		return
	}
	w.rules[p.rule.ID] = p
	for _, g := range p.groups {
		w.unuse(e, g)
	}
}

func (w *watcher) use(e *Engine, g *group) {
	if g.users.add(w) == 1 {
		w.groupChanged(e, g)
	}
}

func (w *watcher) unuse(e *Engine, g *group) {
	if g.users.remove(w) == 0 {
		w.groupChanged(e, g)
	}
}

func (w *watcher) groupChanged(e *Engine, g *group) {
	for p := range g.members() {
		w.peers[p.location()] = struct{}{}
	}
	e.touched[w] = struct{}{}
}

// delta tells what has changed since it was asked last.
func (w *watcher) delta(e *Engine) Delta {
	var d Delta
	for id, p := range w.rules {
		if p.users.count(w) > 0 {
			d.Rules = append(d.Rules, p.rule)
		} else {
			d.RemovedRules = append(d.RemovedRules, id)
		}
	}
	for key, was := range w.subjects {
		p := e.endpoints[key]
		if p == nil || !w.covers(p.node) {
			d.RemovedSubjects = append(d.RemovedSubjects, key)
			continue
		}
		is := w.applied[p.identity]
		if was != nil && was.equal(is) {
			continue
		}
		s := is.subject
		s.Key = key
		if p.closed && s.Closed == "" {
			s.Closed = nowhere
		}
		d.Subjects = append(d.Subjects, s)
	}
	l := lists{watcher: w, of: map[kind][]string{}}
	for where := range w.peers {
		if groups := l.groups(e.holders[where], where); len(groups) > 0 {
			d.Peers = append(d.Peers, intent.Peer{Space: where.space, Address: where.address, Groups: groups})
		} else {
			d.RemovedPeers = append(d.RemovedPeers, intent.PeerKey(where.space, where.address))
		}
	}
	w.forget()
	d.sort()
	return d
}

// lists finds the groups of Peers. Those that are in the same groups share a list, if that
// is easy to see.
type lists struct {
	*watcher
	of      map[kind][]string
	scratch []string
}

// kind is the addresses that are in the same groups, unless a group has only some blocks or another
// Endpoint has the same address.
type kind struct {
	holder
	is4 bool
}

func (l *lists) groups(b *multiset[holder], where location) []string {
	if b == nil {
		return nil
	}
	out, shared := l.scratch[:0], b.len() == 1
	var k kind
	for h := range b.all() {
		k = kind{h, where.address.Is4()}
		if known, ok := l.of[k]; ok && shared {
			return known
		}
		place := Place{Space: where.space, Address: where.address, Secondary: h.secondary}
		for g := range h.groups() {
			if g.users.count(l.watcher) == 0 {
				continue
			}
			shared = shared && len(g.blocks) == 0
			if g.hasPlace(place) {
				out = append(out, g.id)
			}
		}
	}
	slices.Sort(out)
	l.scratch = out
	out = slices.Clone(slices.Compact(out))
	if shared {
		l.of[k] = out
	}
	return out
}
