// SPDX-License-Identifier: Apache-2.0

// Package announce chooses one node to answer ARP and ND for each address of a load balancer, and
// another one when that node fails.
//
// The agents form a membership. All choose the same node among those that are alive and may answer
// for an address. That node's kernel answers by proxy neighbor entries, so it continues to answer
// while its agent is down.
package announce

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"

	"coelan.io/coelan/internal/trigger"
)

// Address is one that a node should answer for.
type Address struct {
	Addr netip.Addr
	// Nodes are the names of those that may, alive or not.
	Nodes []string
	// Bridge says that the node's bridge answers, not its kernel: see Options.Chosen.
	Bridge bool
}

// Peer is a node with an agent that takes part.
type Peer struct {
	Name string
	// Addr is the node's address that agents talk to each other by.
	Addr netip.Addr
}

// Desired is what the agents agree about.
type Desired struct {
	// Addresses, in any order that is the same each time. While there are none, the
	// agent does not listen.
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
	// Gateway is the interface to the pods; it never answers.
	Gateway string
	// SysctlDir is usually /proc/sys.
	SysctlDir string
	Log       *slog.Logger
	// Step is called when the loop begins to work, and what it returns when it waits again;
	// it may be nil.
	Step func() (done func())
	// Gained is called when this node starts to answer for an address, Lost when it ends to; both
	// may be nil, and neither may block. An agent that starts again has gained nothing by what its
	// kernel answers for already.
	Gained, Lost func(netip.Addr)
	// Chosen is called with all addresses that this node's bridge answers for, sorted, whenever
	// that has been decided; it may be nil, and must not block.
	Chosen func([]netip.Addr)
}

// Status is what this node knows.
type Status struct {
	// Alive are the names of the nodes that take part, sorted; empty while there
	// is nothing to announce.
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
	wake trigger.Trigger
	// configure is for tests of agents of other releases; usually nil.
	configure func(*memberlist.Config)

	mu      sync.Mutex
	desired *Desired
	keys    [][]byte
	status  Status
}

// New opens nothing.
func New(o Options) *Announcer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Announcer{opts: o, log: o.Log, wake: trigger.New()}
}

// Set replaces what is desired. Until the first call, the kernel answers for what
// it answered for before.
func (a *Announcer) Set(d Desired) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.desired != nil && a.desired.equal(d) {
		return
	}
	a.desired = &d
	a.wake.Fire()
}

// SetKeys replaces the keys by which the agents encrypt what they say to each other: the
// first encrypts, all decrypt. Without a key this node takes no part, and its kernel answers
// for what it answered for before. No keys at all change nothing, so that a membership goes
// on if they are deleted.
func (a *Announcer) SetKeys(keys [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(keys) == 0 || slices.EqualFunc(a.keys, keys, bytes.Equal) {
		return
	}
	a.keys = keys
	a.wake.Fire()
}

// Status returns the newest state.
func (a *Announcer) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (d Desired) equal(o Desired) bool {
	return slices.Equal(d.Peers, o.Peers) && slices.EqualFunc(d.Addresses, o.Addresses, func(a, b Address) bool {
		return a.Addr == b.Addr && a.Bridge == b.Bridge && slices.Equal(a.Nodes, b.Nodes)
	})
}
