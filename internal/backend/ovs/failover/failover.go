// SPDX-License-Identifier: Apache-2.0

// Package failover decides on each node which of several nodes is active for an external address:
// it translates, and answers for the address. It does no I/O and reads no clock.
//
// Nodes agree without a leader, from three sources:
//
//   - Liveness: whether a node's data path is in reach, as its tunnels find out (BFD). It does not
//     depend on agents, so that the restart of one moves nothing.
//   - Claims: which node last wrote into the API that it is active. They keep an address where it
//     is, and move it as planned.
//   - The wire: whether another node answers for the address. A node asks there before it becomes
//     active, so that two nodes which do not reach each other but do reach the wire are not both.
//     Of two that ask at once, one gives way.
//
// An address goes first to the node that all would choose (package rendezvous), and does not return
// by itself when that node does, unless it is to.
package failover

import (
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/rendezvous"
)

const (
	// probeEvery is the time between two questions on the wire. After probes of them, and the same
	// time, without an answer no other node answers for the address.
	probeEvery = 60 * time.Millisecond
	probes     = 4
	// again is when the next attempt begins, where another node has answered, and patience when a
	// node asks again that another one may be about to give way to.
	again    = 500 * time.Millisecond
	patience = 150 * time.Millisecond
	// settling is for how long what is not urgent has to be so: that a claim is not one's own view,
	// that the preferred node is there, that no other node takes over.
	settling = 3 * time.Second
	// pause is for how long a node answers again that no other one took over from.
	pause = 10 * time.Second
)

// Key names an address.
type Key struct {
	Network string
	Address netip.Addr
}

// Address is one that one of several nodes is active for.
type Address struct {
	Key
	// Nodes may be active; Leaving, of these, are not if another one can.
	Nodes, Leaving []string
	// Claimed is the node that last wrote that it is active; empty: none is known.
	Claimed string
	// Failback has the address return to the node that it has first of all while all are alive.
	Failback bool
}

// State is how a node treats an address.
type State struct {
	// Active is the node that is active, as seen here; empty: none is known.
	Active string
	// Silent has this node, which is active, not answer for the address: another one is to take
	// over.
	Silent bool
}

// Machine decides for one node. It is for one goroutine.
type Machine struct {
	node    string
	alive   map[string]bool
	entries map[Key]*entry
	// takeovers counts the addresses that this node became active for.
	takeovers int
}

// entry is what a Machine knows of an address.
type entry struct {
	Address
	// active is the node that is active, as seen here.
	active string
	// claimed is the claim that was looked at last, and strays says since when it is another one
	// than active; disowned says so of one of this node itself.
	claimed          string
	strays, disowned time.Time
	// over is the claim that there was when this node became active, and claimAfter when it may
	// claim the address again that another node has claimed meanwhile.
	over       string
	claimAfter time.Time
	// probe is the question on the wire that goes on; nil: none does.
	probe *probe
	// notBefore is when the next one may begin.
	notBefore time.Time
	// silentSince, preferredSince and answersUntil are for handing over.
	silentSince, preferredSince, answersUntil time.Time
	silent                                    bool
	// restored says that this node was active before its agent was restarted, and that no claim has
	// been looked at since.
	restored bool
	// returns says that it was asked whether another node has taken over without being heard of.
	returns bool
}

// probe is a question on the wire.
type probe struct {
	sent int
	next time.Time
	// verifies says that this node is active already, and wants to know whether it is the only one;
	// disputes that it does not give way at once, and answers is how often it has not done so.
	verifies, disputes bool
	answers            int
}

// New returns a Machine of a node that knows no address. The states are those that the node had
// before its agent was restarted; sure says that its data path has gone on meanwhile.
func New(node string, states map[Key]State, sure bool) *Machine {
	m := &Machine{node: node, alive: map[string]bool{}, entries: map[Key]*entry{}}
	for key, s := range states {
		if s.Active == node && !sure {
			s.Active = ""
		}
		m.entries[key] = &entry{Address: Address{Key: key}, active: s.Active, restored: true}
	}
	m.Doubt()
	return m
}

// SetAddresses replaces the addresses.
func (m *Machine) SetAddresses(list []Address) {
	old := m.entries
	m.entries = make(map[Key]*entry, len(list))
	for _, a := range list {
		e := old[a.Key]
		if e == nil {
			e = &entry{}
		}
		e.Address = a
		m.entries[a.Key] = e
	}
}

// SetAlive says of all other nodes whether they are in reach. One that comes back may be active for
// an address that this node is active for.
func (m *Machine) SetAlive(nodes map[string]bool) {
	for _, e := range m.entries {
		for _, n := range e.Nodes {
			if e.active == m.node && nodes[n] && !m.alive[n] {
				e.verify(true)
			}
		}
	}
	m.alive = nodes
}

// Doubt has the node ask whether it is the only active one, for all addresses: another one may have
// taken over while its data path was away.
func (m *Machine) Doubt() {
	for _, e := range m.entries {
		if e.active == m.node {
			e.verify(false)
		}
	}
}

// verify has a node that is active ask whether it is the only one. With disputes it does not give
// way at once.
func (e *entry) verify(disputes bool) {
	if e.probe == nil {
		e.probe = &probe{verifies: true, disputes: disputes}
	}
}

// patience is how often a node that is active asks again before it gives way to another one: that
// one may be about to follow its claim, and of two that know no better the one stays that would be
// chosen first.
func (m *Machine) patience(e *entry) (times int) {
	if e.Claimed == m.node && e.over != m.node {
		times = 10
	}
	if rendezvous.Choose(e.Key.Address, append([]string{m.node}, m.successors(e, m.node)...)) == m.node {
		times++
	}
	return times
}

// Answered takes note that another node answers for an address on the wire.
func (m *Machine) Answered(key Key, now time.Time) {
	e := m.entries[key]
	if e == nil || e.probe == nil || now.Before(e.probe.next.Add(-probeEvery)) {
		return
	}
	if e.probe.disputes && e.probe.answers < m.patience(e) {
		e.probe = &probe{verifies: true, disputes: true, answers: e.probe.answers + 1, next: now.Add(patience)}
		return
	}
	if e.active == m.node || e.active == "" {
		e.active = "" // that node may know which one is active
		if others := m.successors(e, m.node); len(others) > 0 {
			e.active = others[0]
		}
	}
	e.probe, e.notBefore = nil, now.Add(again)
}

// Asked takes note that another node asks on the wire as well. Of two that do so at once, the one
// that is first goes on.
func (m *Machine) Asked(key Key, first bool, now time.Time) {
	if e := m.entries[key]; e != nil && e.probe != nil && !e.probe.verifies && first {
		e.probe, e.notBefore = nil, now.Add(again)
	}
}

// Decision is what a Machine has decided.
type Decision struct {
	States map[Key]State
	// Probes are to be asked for on the wire now; Claims are to be written into the API.
	Probes, Claims []Key
	// Next is when to decide again without an event; zero: never.
	Next time.Time
}

// Decide does what is due.
func (m *Machine) Decide(now time.Time) Decision {
	d := Decision{States: make(map[Key]State, len(m.entries))}
	for key, e := range m.entries {
		due := func(at time.Time) {
			if d.Next.IsZero() || at.Before(d.Next) {
				d.Next = at
			}
		}
		if m.decide(e, now, due) {
			d.Probes = append(d.Probes, key)
		}
		if m.claims(e, now, due) {
			d.Claims = append(d.Claims, key)
		}
		d.States[key] = State{e.active, e.active == m.node && e.silent}
	}
	return d
}

// claims reports whether this node is to claim an address now. One that reaches no other node does
// not: these may have another one. Two that do not reach each other take turns slowly.
func (m *Machine) claims(e *entry, now time.Time, due func(time.Time)) bool {
	if e.active != m.node || e.Claimed == m.node || m.isolated() {
		return false
	}
	if now.Before(e.claimAfter) {
		due(e.claimAfter)
		return false
	}
	return true
}

// isolated reports whether there are several other nodes, of which none is in reach: then it is
// this node that is cut off, and not all of them.
func (m *Machine) isolated() bool {
	for _, up := range m.alive {
		if up {
			return false
		}
	}
	return len(m.alive) > 1
}

// Takeovers is how often this node became active for an address.
func (m *Machine) Takeovers() int { return m.takeovers }

// decide goes on with an address, and reports whether it is to be asked for on the wire now.
func (m *Machine) decide(e *entry, now time.Time, due func(time.Time)) (ask bool) {
	m.follow(e, now, due)
	target := e.active
	switch {
	case !m.can(e, e.active):
		if list := m.successors(e, ""); len(list) > 0 {
			target = list[0]
		}
	case m.disowned(e, now, due):
		target = m.node
	case e.active != m.node && m.handsOver(e, e.active, now, due):
		if list := m.successors(e, e.active); len(list) > 0 && list[0] == m.node {
			target = m.node
		}
	}
	m.fallSilent(e, now, due)
	if target != m.node {
		e.active = target
		if e.probe != nil && !e.probe.verifies {
			e.probe = nil
		}
		return m.goOn(e, now, due)
	}
	if e.active != m.node && e.probe == nil {
		if m.isolated() {
			return false
		}
		if now.Before(e.notBefore) {
			due(e.notBefore)
			return false
		}
		e.probe = &probe{next: now}
	}
	return m.goOn(e, now, due)
}

// follow takes over what a claim says: at once when it is new, and else when it is not what is seen
// here for a while. What this node itself is active for, only a claim ends that was made since.
func (m *Machine) follow(e *entry, now time.Time, due func(time.Time)) {
	is := e.Claimed
	isNew := is != e.claimed
	if e.restored {
		e.restored, e.over = false, is
	}
	if isNew && e.claimed == m.node {
		e.claimAfter = now.Add(settling)
	}
	e.claimed = is
	if is == "" || is == m.node || is == e.active || !m.can(e, is) {
		e.strays = time.Time{}
		return
	}
	if e.strays.IsZero() {
		e.strays = now
	}
	if isNew || e.active == "" || e.active == m.node && is != e.over ||
		e.active != m.node && now.Sub(e.strays) >= settling {
		e.active, e.probe, e.strays = is, nil, time.Time{}
		return
	}
	if e.active != m.node {
		due(e.strays.Add(settling))
	}
}

// disowned reports whether this node should be active by its own claim, and is not for a while: two
// nodes may have given way to each other.
func (m *Machine) disowned(e *entry, now time.Time, due func(time.Time)) bool {
	if e.Claimed != m.node || e.active == m.node || !m.can(e, m.node) {
		e.disowned = time.Time{}
		return false
	}
	return settled(&e.disowned, now, due)
}

// settled reports whether what has begun at since has lasted for as long as what is not urgent has
// to. A since that is zero is now.
func settled(since *time.Time, now time.Time, due func(time.Time)) bool {
	if since.IsZero() {
		*since = now
	}
	if now.Sub(*since) < settling {
		due(since.Add(settling))
		return false
	}
	return true
}

// can reports whether a node can be active for an address.
func (m *Machine) can(e *entry, node string) bool {
	return node != "" && slices.Contains(e.Nodes, node) && (node == m.node || m.alive[node])
}

// successors are the nodes that can be active for an address without one of them, the best first:
// those that are not leaving, the one that claims it, and then as all nodes would choose.
func (m *Machine) successors(e *entry, without string) []string {
	list := slices.DeleteFunc(rendezvous.Rank(e.Key.Address, e.Nodes), func(n string) bool {
		return n == without || !m.can(e, n)
	})
	first := func(is func(string) bool) {
		slices.SortStableFunc(list, func(a, b string) int {
			switch {
			case is(a) && !is(b):
				return -1
			case is(b) && !is(a):
				return 1
			}
			return 0
		})
	}
	if !e.Failback {
		first(func(n string) bool { return n == e.Claimed })
	}
	first(func(n string) bool { return !slices.Contains(e.Leaving, n) })
	return list
}

// handsOver reports whether the active node, which can go on, is to hand over to another one.
func (m *Machine) handsOver(e *entry, active string, now time.Time, due func(time.Time)) bool {
	list := m.successors(e, active)
	if len(list) == 0 || slices.Contains(e.Leaving, list[0]) {
		e.preferredSince = time.Time{}
		return false
	}
	if slices.Contains(e.Leaving, active) {
		return true
	}
	if !e.Failback || rendezvous.Choose(e.Key.Address, []string{active, list[0]}) == active {
		e.preferredSince = time.Time{}
		return false
	}
	return settled(&e.preferredSince, now, due)
}

// fallSilent has an active node not answer that is to hand over: the other one asks on the wire. It
// goes on to translate until that one claims the address. If none does, or it is not to hand over
// any more, it asks on the wire before it answers again.
func (m *Machine) fallSilent(e *entry, now time.Time, due func(time.Time)) {
	if e.active != m.node {
		e.silent, e.returns, e.silentSince, e.answersUntil = false, false, time.Time{}, time.Time{}
		return
	}
	wanted := m.handsOver(e, m.node, now, due)
	if wanted && now.Before(e.answersUntil) {
		due(e.answersUntil)
		return
	}
	switch {
	case wanted && !e.silent:
		e.silent, e.silentSince = true, now
	case e.returns && e.probe == nil:
		e.silent, e.returns = false, false
		if wanted {
			e.answersUntil = now.Add(pause)
			due(e.answersUntil)
		}
	case e.silent && !e.returns && (!wanted || now.Sub(e.silentSince) >= settling):
		e.returns = true
		e.verify(false)
	}
	if e.silent && !e.returns {
		due(e.silentSince.Add(settling))
	}
}

// goOn goes on with the question on the wire, and has the node be active when there is no answer.
func (m *Machine) goOn(e *entry, now time.Time, due func(time.Time)) (ask bool) {
	p := e.probe
	if p == nil {
		return false
	}
	if len(e.Nodes) == 1 && slices.Contains(e.Nodes, m.node) { // no other node can answer
		p.sent, p.next = probes, now
	}
	if now.Before(p.next) {
		due(p.next)
		return false
	}
	if p.sent < probes {
		p.sent++
		p.next = now.Add(probeEvery)
		due(p.next)
		return true
	}
	e.probe = nil
	if !p.verifies && !m.isolated() {
		e.active, e.over = m.node, e.Claimed
		m.takeovers++
	}
	return false
}
