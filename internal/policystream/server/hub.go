// SPDX-License-Identifier: Apache-2.0

// Package server is the controller's side of the distribution of policies: it hands each node's agent what concerns the node,
// and nothing else.
package server

import (
	"sync"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// Hub stands between what changes policies and the agents that are connected. Its methods may be called from any
// goroutine.
type Hub struct {
	tally *tally
	// OnAttached is told of pods that agents have attached, of this controller and of others. It does not wait for anything. It is
	// set before the Hub is used.
	OnAttached func(NodeAttachment)

	mu     sync.Mutex
	views  Views
	engine *policy.Engine
	ready  bool
	agents map[string]map[*agent]struct{} // by node
}

// NodeAttachment is what the agent of a node says.
type NodeAttachment struct {
	Node string
	policy.Attachment
}

// Views are what a Hub hands out, as policy.Engine works them out.
type Views interface {
	View(node string) policy.View
	Attach(node string) policy.View
	Detach(node string)
	Deltas() map[string]policy.Delta
	NodesOf(policy intent.PolicyRef) []string
}

// NewHub has the Engine from now on; others use it in Update only.
func NewHub(engine *policy.Engine) *Hub {
	h := NewHubOf(engine)
	h.engine = engine
	return h
}

// NewHubOf is one without an Engine, which has Change and not Update.
func NewHubOf(v Views) *Hub {
	return &Hub{views: v, agents: map[string]map[*agent]struct{}{}, tally: newTally()}
}

// Update changes what the Engine knows. What follows for a node goes to its agent, all of it at once.
func (h *Hub) Update(change func(*policy.Engine)) { h.Change(func() { change(h.engine) }) }

// Change is for changes of the Views, which nobody else looks at meanwhile.
func (h *Hub) Change(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	for node, delta := range h.views.Deltas() {
		for a := range h.agents[node] {
			a.add(delta)
		}
	}
}

// Ready says that the Engine knows all there is. Before that nobody is served: a node that heard of a part would take the
// rest for gone.
func (h *Hub) Ready() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = true
}

func (h *Hub) attached(a NodeAttachment) {
	if h.OnAttached != nil {
		h.OnAttached(a)
	}
}

// Realised says on how many nodes a policy is in effect.
type Realised struct {
	Wanted   int // nodes with Ports that it is for
	Realised int // of these, those whose switch does what the policy says now, as far as their agents have told a controller
}

// Realised of one policy. Agents that are connected to other controllers count as well.
func (h *Hub) Realised(ref intent.PolicyRef) Realised {
	h.mu.Lock()
	wanted := len(h.views.NodesOf(ref))
	h.mu.Unlock()
	// An agent that moves from one controller to another is with both for a moment.
	return Realised{Wanted: wanted, Realised: min(wanted, h.tally.count(ref))}
}

// RealisedChanged has an element after some count of Realised has changed; its capacity is one. Counts go down and up again
// when an agent moves to another controller, so do not write them anywhere at once.
func (h *Hub) RealisedChanged() <-chan struct{} { return h.tally.changed }

// Agents is how many are connected here.
func (h *Hub) Agents() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, list := range h.agents {
		n += len(list)
	}
	return n
}

// attach begins to serve an agent of the node; not before Ready. The view is what it has to know now, all later changes are
// pending with it. Two agents of a node are served while one takes over from the other.
func (h *Hub) attach(node string) (*agent, policy.View, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ready {
		return nil, policy.View{}, false
	}
	var view policy.View
	if len(h.agents[node]) > 0 {
		view = h.views.View(node)
	} else {
		view = h.views.Attach(node)
		h.agents[node] = map[*agent]struct{}{}
	}
	a := newAgent(node, h.tally)
	// What is pending is taken: it goes whole, compared with what the agent has.
	a.add(policy.Delta{View: view})
	a.take()
	a.version = 1 // also of a view that is empty
	h.agents[node][a] = struct{}{}
	return a, view, true
}

// detach ends what attach began.
func (h *Hub) detach(a *agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.agents[a.node], a)
	if len(h.agents[a.node]) == 0 {
		delete(h.agents, a.node)
		h.views.Detach(a.node)
	}
	a.leave()
}
