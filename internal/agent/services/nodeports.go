// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// nodePort is a port of the node's own addresses.
type nodePort struct {
	protocol intent.Protocol
	port     uint16
}

// nodePorts knows which node ports processes of the host have. A port is checked when a Service
// asks for it first; one that a process has is checked again from time to time.
type nodePorts struct {
	at   []netip.Prefix // the node's addresses with node ports; none: all
	list func() ([]listener, error)
	// free are the ports that Services have, taken those that they would have if
	// no process had them.
	free, taken map[nodePort]bool
	// snapshot is what processes have while one batch of Services is checked.
	snapshot map[nodePort]bool
	err      error
	pause    time.Duration
	next     time.Time // when those that are taken are checked again
}

// Bounds of the pause before ports that processes have are checked again.
const (
	minPortPause = time.Second
	maxPortPause = time.Minute
)

func newNodePorts(at []netip.Prefix, list func() ([]listener, error)) *nodePorts {
	return &nodePorts{at: at, list: list, free: map[nodePort]bool{}, taken: map[nodePort]bool{}}
}

// takenBy says whether a process of the host has a port. If the kernel does not answer, none has.
func (n *nodePorts) takenBy(p nodePort) bool {
	switch {
	case n.free[p]:
		return false
	case n.taken[p]:
		return true
	case !n.processes()[p]:
		n.free[p] = true
		return false
	}
	n.taken[p] = true
	n.pause, n.next = minPortPause, time.Now().Add(minPortPause)
	return true
}

// processes are the ports of processes.
func (n *nodePorts) processes() map[nodePort]bool {
	if n.snapshot != nil {
		return n.snapshot
	}
	n.snapshot = map[nodePort]bool{}
	var found []listener
	found, n.err = n.list()
	for _, l := range found {
		if n.concerns(l.address) {
			n.snapshot[nodePort{l.protocol, l.port}] = true
		}
	}
	return n.snapshot
}

// concerns says whether an address may be one with node ports.
func (n *nodePorts) concerns(a netip.Addr) bool {
	switch {
	case a.IsUnspecified():
		return true
	case a.IsLoopback() || reserved.IsNodeLocal(a):
		return false
	}
	return len(n.at) == 0 || slices.ContainsFunc(n.at, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (n *nodePorts) forgetSnapshot() { n.snapshot = nil }

// listeners are the ports that processes have, of those that Services ask for.
func (n *nodePorts) listeners() []intent.Listener {
	var list []intent.Listener
	for p := range n.taken {
		list = append(list, intent.Listener{Protocol: p.protocol, Port: p.port})
	}
	return list
}

// release forgets the ports that Services no longer have. Those that a process has are no
// Service's, and stay until they are free.
func (n *nodePorts) release(old, now []intent.Service) {
	kept := map[nodePort]bool{}
	for p := range portsOf(now) {
		kept[p] = true
	}
	for p := range portsOf(old) {
		if !kept[p] {
			delete(n.free, p)
		}
	}
}

func portsOf(list []intent.Service) func(func(nodePort) bool) {
	return func(yield func(nodePort) bool) {
		for _, v := range list {
			for _, p := range v.Ports {
				if p.NodePort != 0 && !yield(nodePort{p.Protocol, p.NodePort}) {
					return
				}
			}
		}
	}
}

// freed are the ports that processes had and have no longer.
func (n *nodePorts) freed() []nodePort {
	n.forgetSnapshot()
	defer n.forgetSnapshot()
	n.pause = min(2*n.pause, maxPortPause)
	n.next = time.Now().Add(n.pause)
	processes := n.processes()
	var list []nodePort
	for p := range n.taken {
		if !processes[p] && n.err == nil {
			delete(n.taken, p)
			list = append(list, p)
		}
	}
	return list
}

// nextPorts is when ports that processes have are to be checked again; nil: there are none.
func (s *Services) nextPorts() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ports.taken) == 0 {
		return nil
	}
	return time.After(time.Until(s.ports.next))
}

func (s *Services) recheckPorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports.freed() {
		s.set.NodePortChanged(p.protocol, p.port)
	}
}
