// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"sync"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/trigger"
)

// counts are numbers of nodes by policy, none 0.
type counts map[intent.PolicyRef]int

// tally is on how many nodes each policy is in effect: those of agents that are connected here, and
// as other controllers say of theirs.
type tally struct {
	changed  trigger.Trigger
	refusals *refusals

	mu   sync.Mutex
	here counts
	// By controller, and by the address at which it has said so.
	elsewhere map[string]map[string]counts
	listeners map[*listener]struct{}
}

// listener collects which counts have changed here since it looked, and which pods have come.
type listener struct {
	wake     trigger.Trigger
	dirty    map[intent.PolicyRef]struct{}
	attached []NodeAttachment    // at most maxPassed
	refusing map[string]struct{} // nodes of which other objects are refused
}

// maxPassed is how many pods wait for a listener that does not look. The API delivers the others.
const maxPassed = 10000

func newTally() *tally {
	return &tally{
		changed: trigger.New(), refusals: newRefusals(), here: counts{}, elsewhere: map[string]map[string]counts{},
		listeners: map[*listener]struct{}{},
	}
}

func (t *tally) count(ref intent.PolicyRef) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.here[ref]
	for _, controller := range t.elsewhere {
		most := 0 // what comes by one address may be older
		for _, c := range controller {
			most = max(most, c[ref])
		}
		n += most
	}
	return n
}

func (t *tally) add(ref intent.PolicyRef, nodes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.here[ref] += nodes; t.here[ref] == 0 {
		delete(t.here, ref)
	}
	for l := range t.listeners {
		l.dirty[ref] = struct{}{}
		l.wake.Fire()
	}
	t.changed.Fire()
}

// refuse replaces what an agent's node refuses, and notifies the listeners.
func (t *tally) refuse(by *agent, list []policy.Refusal) {
	t.refusals.set(by, list)
	t.refusing(by.node)
}

// leave is the end of an agent's stream.
func (t *tally) leave(by *agent) {
	if t.refusals.leave(by) {
		t.refusing(by.node)
	}
}

func (t *tally) refusing(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.listeners {
		l.refusing[node] = struct{}{}
		l.wake.Fire()
	}
	t.changed.Fire()
}

// pass adds a pod for all listeners.
func (t *tally) pass(a NodeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.listeners {
		if len(l.attached) < maxPassed {
			l.attached = append(l.attached, a)
			l.wake.Fire()
		}
	}
}

// listen has all counts as dirty.
func (t *tally) listen() *listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &listener{wake: trigger.New(), dirty: map[intent.PolicyRef]struct{}{}, refusing: t.refusals.nodes()}
	for ref := range t.here {
		l.dirty[ref] = struct{}{}
	}
	l.wake.Fire()
	t.listeners[l] = struct{}{}
	return l
}

func (t *tally) unlisten(l *listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.listeners, l)
}

// take returns what has changed, which pods have come, and what nodes refuse of
// which that has changed.
func (t *tally) take(l *listener) (counts, []NodeAttachment, map[string][]policy.Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := counts{}
	for ref := range l.dirty {
		news[ref] = t.here[ref]
	}
	clear(l.dirty)
	attached, refusing := l.attached, l.refusing
	l.attached, l.refusing = nil, map[string]struct{}{}
	return news, attached, t.refusals.of(refusing)
}

// received handles a report of another controller, by one of its addresses; the first of a stream
// are all there is.
func (t *tally) received(controller, address string, news counts, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		t.drop(address)
	}
	by := t.elsewhere[controller]
	if by == nil {
		by = map[string]counts{}
		t.elsewhere[controller] = by
	}
	if by[address] == nil {
		by[address] = counts{}
	}
	maps.Copy(by[address], news)
	maps.DeleteFunc(by[address], func(_ intent.PolicyRef, n int) bool { return n == 0 })
	t.changed.Fire()
}

// forget is for an address at which no controller can be reached any more.
func (t *tally) forget(address string) {
	t.refusals.forget(address)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drop(address) {
		t.changed.Fire()
	}
}

func (t *tally) drop(address string) (was bool) {
	for controller, by := range t.elsewhere {
		if _, is := by[address]; !is {
			continue
		}
		was = true
		if delete(by, address); len(by) == 0 {
			delete(t.elsewhere, controller)
		}
	}
	return was
}
