// SPDX-License-Identifier: Apache-2.0

// Package server is the controller's side of the distribution of policies: it sends each agent the
// state that its node needs, and nothing else.
package server

import (
	"sync"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// Hub hands views of policies to the agents that are connected. Its methods may be
// called from any goroutine.
type Hub struct {
	tally *tally
	views Views
	// OnAttached is called for pods that agents have attached, of this controller and of others. It
	// does not wait for anything. It is set before the Hub is used.
	OnAttached func(NodeAttachment)
	// Source says what the Views are computed from; nil: nothing does. It is set before
	// the Hub is used.
	Source Source
	// Configurations of nodes; nil: no agent is told one. It is set before the Hub is used.
	Configurations Configurations

	mu     sync.Mutex
	ready  bool
	agents int
	lag    time.Duration
	behind string
	away   chan struct{}
}

// NodeAttachment is what the agent of a node says.
type NodeAttachment struct {
	Node string
	policy.Attachment
}

// Views are where a Hub gets nodes' views and their changes from.
type Views interface {
	// Subscribe begins with the node's view; all later changes follow until cancel is called.
	Subscribe(node string, s policy.Subscriber) (cancel func())
	// NodesOf returns the names of the nodes that a policy makes a difference to, sorted.
	NodesOf(policy intent.PolicyRef) []string
}

// NewHub returns one that does not serve before Ready.
func NewHub(v Views) *Hub {
	return &Hub{views: v, tally: newTally(), away: make(chan struct{}), lag: lagTimeout}
}

// Ready says that the Views contain all there is. Before that no agent is served: it would take
// what its view lacks for gone.
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

// ProgrammedNodes says on how many nodes a policy is in effect.
type ProgrammedNodes struct {
	Wanted int // nodes with Ports that it is for
	// The number of these with agents that have reported that the switch
	// enforces the present policy.
	Programmed int
}

// ProgrammedNodes counts the nodes of one policy. Agents that are connected to other controllers
// count as well.
func (h *Hub) ProgrammedNodes(ref intent.PolicyRef) ProgrammedNodes {
	wanted := len(h.views.NodesOf(ref))
	// An agent that moves from one controller to another is with both for a moment.
	return ProgrammedNodes{Wanted: wanted, Programmed: min(wanted, h.tally.count(ref))}
}

// ProgrammedChanged has an element after a result of ProgrammedNodes has changed; its capacity is
// one. Counts go down and up again when an agent moves to another controller, so do not write them
// anywhere at once.
func (h *Hub) ProgrammedChanged() <-chan struct{} { return h.tally.changed }

// Agents returns how many are connected here.
func (h *Hub) Agents() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agents
}

// attach begins to serve an agent of the node; not before Ready. All changes after its first view
// are pending. Two agents of a node are served while one takes over from the other.
func (h *Hub) attach(node string) (a *agent, detach func(), ok bool) {
	h.mu.Lock()
	ready := h.ready
	if ready {
		h.agents++
	}
	h.mu.Unlock()
	if !ready {
		return nil, nil, false
	}
	a = newAgent(node, h.tally)
	cancel := h.views.Subscribe(node, a)
	return a, func() {
		cancel()
		h.mu.Lock()
		h.agents--
		h.mu.Unlock()
		a.leave()
	}, true
}
