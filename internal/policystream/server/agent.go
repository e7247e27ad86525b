// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/wake"
)

// agent is one that is connected: what it has still to be sent, and how far it is. What changes again before it is sent is sent
// once, so an agent that is slow costs no more memory than its view.
type agent struct {
	node string
	wake wake.Wake // has an element if something is pending

	mu       sync.Mutex
	pending  map[wire.ID]any // intent.Rule, intent.Subject, intent.Peer; nil: it is gone
	version  uint64          // of what was taken last
	progress progress
}

func newAgent(node string, t *tally) *agent {
	return &agent{node: node, wake: wake.New(), pending: map[wire.ID]any{}, progress: newProgress(t)}
}

// add has a change sent.
func (a *agent) add(d policy.Delta) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
	a.wake.Kick()
}

// take returns what is pending as one change, and its version.
func (a *agent) take() (map[wire.ID]any, uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 {
		return nil, a.version
	}
	list := a.pending
	a.pending = map[wire.ID]any{}
	a.version++
	a.progress.taken(a.version)
	return list, a.version
}

// realised is told that the agent's switch does what that version says; false if it has not been sent.
func (a *agent) realised(version uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if version > a.version {
		return false
	}
	a.progress.realised(version)
	return true
}

func (a *agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress.leave()
}
