// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"

	"coelan.io/coelan/internal/intent"
)

// Input is what flows are compiled from: what is wanted, and which OpenFlow ports of the node's
// bridge stand for it.
type Input struct {
	State   *intent.State
	Numbers *Numbers
	// NeighbourRate is how many ARP packets and neighbor solicitations of a Port are checked in a
	// second; 0: all.
	NeighbourRate uint32
}

// Numbers are the OpenFlow ports of the integration bridge that intent does not know: those of the
// node's own Ports, and of the uplinks to physical networks. Numbers never change, so that they can
// be read without a lock; WithPort and WithoutPort return others. nil is the zero value.
type Numbers struct {
	ports   map[string]uint32 // by the Port's ID
	uplinks map[string]uint32 // by the physical network's name
}

// NewNumbers returns the Numbers of Ports by their IDs, and of uplinks by the
// names of physical networks.
func NewNumbers(ports, uplinks map[string]uint32) *Numbers {
	return &Numbers{ports: maps.Clone(ports), uplinks: maps.Clone(uplinks)}
}

// Port is the OpenFlow port of the Port of that ID; 0 if it has none on this node.
func (n *Numbers) Port(id string) uint32 {
	if n == nil {
		return 0
	}
	return n.ports[id]
}

// Uplink is the OpenFlow port that leads to a physical network; 0 if the node is
// not connected to it.
func (n *Numbers) Uplink(physical string) uint32 {
	if n == nil {
		return 0
	}
	return n.uplinks[physical]
}

// PortAt is the ID of the Port that has an OpenFlow port; false if none has.
func (n *Numbers) PortAt(number uint32) (id string, ok bool) {
	if n == nil {
		return "", false
	}
	for id, have := range n.ports {
		if have == number {
			return id, true
		}
	}
	return "", false
}

// WithPort returns the Numbers in which the Port of that ID has that number. The cost follows from
// the number of Ports on the node.
func (n *Numbers) WithPort(id string, number uint32) *Numbers {
	if n.Port(id) == number {
		return n
	}
	return n.change(func(ports map[string]uint32) { ports[id] = number })
}

// WithoutPort returns the Numbers in which the Port of that ID has none.
func (n *Numbers) WithoutPort(id string) *Numbers {
	if n.Port(id) == 0 {
		return n
	}
	return n.change(func(ports map[string]uint32) { delete(ports, id) })
}

func (n *Numbers) change(change func(map[string]uint32)) *Numbers {
	next := &Numbers{ports: map[string]uint32{}}
	if n != nil {
		maps.Copy(next.ports, n.ports)
		next.uplinks = n.uplinks
	}
	change(next.ports)
	return next
}

// differing are the IDs of the Ports with another number in o.
func (n *Numbers) differing(o *Numbers) map[string]bool {
	if n == o {
		return nil
	}
	ids := map[string]bool{}
	if n != nil {
		for id, number := range n.ports {
			if o.Port(id) != number {
				ids[id] = true
			}
		}
	}
	if o != nil {
		for id, number := range o.ports {
			if n.Port(id) != number {
				ids[id] = true
			}
		}
	}
	return ids
}

// sameUplinks reports whether the uplinks of o are the same.
func (n *Numbers) sameUplinks(o *Numbers) bool {
	var a, b map[string]uint32
	if n != nil {
		a = n.uplinks
	}
	if o != nil {
		b = o.uplinks
	}
	return maps.Equal(a, b)
}
