// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/trigger"
)

// agent is one that is connected: what it has still to be sent, and how far it is. What
// changes again before it is sent is sent once, so an agent that is slow costs no more
// memory than its view.
type agent struct {
	node string
	wake trigger.Trigger // has an element if something is pending

	// first is the view that comes before all that is pending, and its basis. It is sent whole,
	// less what the agent has.
	first      policy.View
	firstBasis policy.Basis

	mu       sync.Mutex
	pending  map[wire.ID]any // intent.Rule, intent.Subject, intent.Peer; nil: it is gone
	version  uint64          // of what was taken last
	basis    policy.Basis    // of all that is pending or was taken
	progress progress
}

func newAgent(node string, t *tally) *agent {
	return &agent{node: node, wake: trigger.New(), pending: map[wire.ID]any{}, progress: newProgress(t)}
}

// Begin implements policy.Subscriber.
func (a *agent) Begin(view policy.View, basis policy.Basis) {
	a.first, a.firstBasis = view, basis
	a.Change(policy.Delta{View: view}, basis)
	a.take()
	a.version = 1 // also of a view that is empty
}

// Change implements policy.Subscriber: it has a change sent, after which the view is
// computed from that basis.
func (a *agent) Change(d policy.Delta, basis policy.Basis) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.basis = basis
	for _, r := range d.Rules {
		a.pending[wire.RuleID(r.ID)] = r
	}
	for _, s := range d.Subjects {
		a.pending[wire.SubjectID(s.Key)] = s
	}
	for _, p := range d.Peers {
		a.pending[wire.PeerID(intent.PeerKey(p.Space, p.Address))] = p
	}
	for _, id := range d.RemovedRules {
		a.pending[wire.RuleID(id)] = nil
	}
	for _, key := range d.RemovedSubjects {
		a.pending[wire.SubjectID(key)] = nil
	}
	for _, key := range d.RemovedPeers {
		a.pending[wire.PeerID(key)] = nil
	}
	a.progress.change(d)
	a.wake.Fire()
}

// take returns what is pending as one change, its version, and the basis of the view with it.
func (a *agent) take() (map[wire.ID]any, uint64, policy.Basis) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 {
		return nil, a.version, a.basis
	}
	list := a.pending
	a.pending = map[wire.ID]any{}
	a.version++
	a.progress.taken(a.version)
	return list, a.version, a.basis
}

// programmed notes that the agent's switch does what that version says; false if that
// has not been sent.
func (a *agent) programmed(version uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if version > a.version {
		return false
	}
	a.progress.programmed(version)
	return true
}

// refuse replaces what the agent's switch refuses.
func (a *agent) refuse(list []policy.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.progress.refuse(list) {
		a.progress.tally.refuse(a, list)
	}
}

func (a *agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress.leave()
	a.progress.tally.leave(a)
}
