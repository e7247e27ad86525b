// SPDX-License-Identifier: Apache-2.0

// Package announce makes one node answer for each address of a load balancer, and another one when that node is gone.
//
// The agents watch each other (membership); of those that are alive and may answer for an address, all choose the same
// one. Its kernel answers who asks for the address by proxy neighbour entries, so it goes on while the agent is away.
package announce

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
)

// Address is one that somebody should answer for.
type Address struct {
	Addr netip.Addr
	// Nodes are the names of those that may, alive or not.
	Nodes []string
}

// Peer is a node whose agent takes part.
type Peer struct {
	Name string
	// Addr is the node's address that agents talk to each other by.
	Addr netip.Addr
}

// Desired is what the agents agree about.
type Desired struct {
	// Addresses, in any order that is the same each time. While there are none, the agent listens to nobody.
	Addresses []Address
	// Peers are all nodes, this one too.
	Peers []Peer
}

// Options are fixed while an Announcer lives.
type Options struct {
	// Node is this node's name, Address what its agent listens at.
	Node    string
	Address netip.Addr
	// Port of all agents, TCP and UDP.
	Port int
	// KeyFile holds the keys by which agents encrypt what they say to each other, base64, one on each line, of 16, 24 or
	// 32 bytes: the first encrypts, all decrypt. Empty, or a file that is not there: they speak in clear.
	KeyFile string
	// Gateway is the interface to the pods; it never answers.
	Gateway string
	// SysctlDir is usually /proc/sys.
	SysctlDir string
	Log       *slog.Logger
	// Gained is called when this node starts to answer for an address, Lost when it ends to; both may be nil, and neither
	// may block. An agent that starts again has gained nothing by what its kernel answers for already.
	Gained, Lost func(netip.Addr)
}

// Status is what this node knows.
type Status struct {
	// Alive are the names of the nodes that take part, sorted; empty while there is nothing to announce.
	Alive []string `json:"alive,omitempty"`
	// Owned are the addresses that this node answers for, sorted.
	Owned []netip.Addr `json:"owned,omitempty"`
	// Error is what failed last; empty if all is as it should be.
	Error string `json:"error,omitempty"`
}

// Announcer answers for this node's share of addresses.
type Announcer struct {
	opts Options
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	desired *Desired
	status  Status
}

// New opens nothing.
func New(o Options) *Announcer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Announcer{opts: o, log: o.Log, wake: make(chan struct{}, 1)}
}

// Set replaces what is desired. Until the first call, the kernel answers for what it answered for before.
func (a *Announcer) Set(d Desired) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.desired != nil && a.desired.equal(d) {
		return
	}
	a.desired = &d
	a.kick()
}

func (a *Announcer) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Status returns the newest state.
func (a *Announcer) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (d Desired) equal(o Desired) bool {
	return slices.Equal(d.Peers, o.Peers) && slices.EqualFunc(d.Addresses, o.Addresses, func(a, b Address) bool {
		return a.Addr == b.Addr && slices.Equal(a.Nodes, b.Nodes)
	})
}
