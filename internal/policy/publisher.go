// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"sync"

	"coelan.io/coelan/internal/intent"
)

// Views are what a Publisher guards: an Engine, or what takes its place in tests.
type Views interface {
	View(node string) View
	Attach(node string) View
	Detach(node string)
	Deltas() map[string]Delta
	NodesOf(policy intent.PolicyRef) []string
}

// Subscriber receives the View of one node and its changes. The Publisher's lock is held during the
// calls: neither method may block or call the Publisher.
type Subscriber interface {
	// Begin comes first and once: the whole View, and the Basis it is computed from.
	Begin(View, Basis)
	// Change leads from what came before to the next View.
	Change(Delta, Basis)
}

// Publisher lets several goroutines use an Engine, and publishes what follows from each change to
// the subscribers of the nodes that the change concerns. Subscribers miss no Delta and get none
// twice: a View is taken, changed and handed on under one lock.
type Publisher[E Views] struct {
	// Basis returns what the Views are computed from at present; nil: it is not known. It is set
	// before the Publisher is used, and called under its lock.
	Basis func() Basis

	mu          sync.Mutex
	engine      E
	subscribers map[string]map[Subscriber]struct{} // by node
}

// NewPublisher takes over an Engine: only Update gives access to it from now on.
func NewPublisher[E Views](engine E) *Publisher[E] {
	return &Publisher[E]{engine: engine, subscribers: map[string]map[Subscriber]struct{}{}}
}

// Update changes what the Engine knows. Each subscriber gets what follows for its
// node as one Delta.
func (p *Publisher[E]) Update(change func(E)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.engine)
	deltas := p.engine.Deltas()
	if len(deltas) == 0 {
		return
	}
	basis := p.basis()
	for node, delta := range deltas {
		for s := range p.subscribers[node] {
			s.Change(delta, basis)
		}
	}
}

// Subscribe begins to publish a node's View and its changes, until cancel is called:
// nothing is published after it has returned. A node may have several subscribers: one
// agent takes over from another.
func (p *Publisher[E]) Subscribe(node string, s Subscriber) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var view View
	if len(p.subscribers[node]) > 0 {
		view = p.engine.View(node)
	} else {
		view = p.engine.Attach(node)
		p.subscribers[node] = map[Subscriber]struct{}{}
	}
	p.subscribers[node][s] = struct{}{}
	s.Begin(view, p.basis())
	return func() { p.unsubscribe(node, s) }
}

func (p *Publisher[E]) unsubscribe(node string, s Subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subscribers[node], s)
	if len(p.subscribers[node]) == 0 {
		delete(p.subscribers, node)
		p.engine.Detach(node)
	}
}

// Published returns what is in what subscribers have been given.
func (p *Publisher[E]) Published() Basis {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.basis()
}

// NodesOf returns the names of the nodes that a policy makes a difference to, sorted.
func (p *Publisher[E]) NodesOf(ref intent.PolicyRef) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.NodesOf(ref)
}

func (p *Publisher[E]) basis() Basis {
	if p.Basis == nil {
		return nil
	}
	return p.Basis()
}
