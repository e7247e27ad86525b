// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// Numbers are what intent does not know of the node's surroundings: the OpenFlow ports of its own
// Ports and of the uplinks to physical networks, the MACs of neighbors on external Networks, and
// which nodes are active for EgressAddresses, and which of their next hops do not work. Numbers
// never change, so that they can be read
// without a lock; WithPort and its like return others. nil is the zero value.
type Numbers struct {
	ports      map[string]uint32 // by the Port's ID
	uplinks    map[string]uint32 // by the physical network's name
	neighbours neighbours
	egress     map[ExternalKey]EgressState
	down       map[NextHopKey]bool
}

// NextHopKey is a next hop of an address of an external Network.
type NextHopKey struct {
	Network         string
	Source, NextHop netip.Addr
}

// text is the key as units have it.
func (k NextHopKey) text() string {
	return k.Network + " " + k.Source.String() + " " + k.NextHop.String()
}

// ExternalKey is an address of an external Network.
type ExternalKey struct {
	Network string
	Address netip.Addr
}

// NeighbourKey is a host on an external Network.
type NeighbourKey = ExternalKey

// text is the key as units have it, which parseNeighbour reads.
func (k ExternalKey) text() string { return k.Network + " " + k.Address.String() }

func parseNeighbour(text string) (NeighbourKey, bool) {
	network, address, _ := strings.Cut(text, " ")
	a, err := netip.ParseAddr(address)
	return NeighbourKey{network, a}, err == nil
}

// EgressState is how this node treats an intent.EgressAddress.
type EgressState struct {
	// Active is the name of the node that translates; empty: none does.
	Active string
	// Silent has this node, which is active, not answer for the address: another one is about to
	// take over.
	Silent bool
}

// neighbours are known MACs.
type neighbours map[NeighbourKey]intent.MAC

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

// WithNeighbours returns the Numbers in which these are the neighbors with a known MAC.
func (n *Numbers) WithNeighbours(known map[NeighbourKey]intent.MAC) *Numbers {
	next := n.copied()
	next.neighbours = maps.Clone(known)
	return next
}

// WithEgress returns the Numbers in which these are the states of EgressAddresses.
func (n *Numbers) WithEgress(states map[ExternalKey]EgressState) *Numbers {
	next := n.copied()
	next.egress = maps.Clone(states)
	return next
}

// WithNextHopsDown returns the Numbers in which these next hops do not work.
func (n *Numbers) WithNextHopsDown(down map[NextHopKey]bool) *Numbers {
	next := n.copied()
	next.down = maps.Clone(down)
	return next
}

// hopDown reports whether a next hop does not work.
func (n *Numbers) hopDown(k NextHopKey) bool { return n != nil && n.down[k] }

func (n *Numbers) copied() *Numbers {
	if n == nil {
		return &Numbers{}
	}
	next := *n
	return &next
}

// egressState is the state of an EgressAddress.
func (n *Numbers) egressState(k ExternalKey) EgressState {
	if n == nil {
		return EgressState{}
	}
	return n.egress[k]
}

// differingUnits are what Numbers stand for that differs in o, but Ports and uplinks.
func (n *Numbers) differingUnits(o *Numbers) []unitKey {
	was, is := n.copied(), o.copied()
	return slices.Concat(
		differingKeys(kindNeighbour, was.neighbours, is.neighbours),
		differingKeys(kindEgressAddress, was.egress, is.egress),
		differingKeys(kindHop, was.down, is.down),
	)
}

// differingKeys are the units of that kind with another value in the one map than in the other.
func differingKeys[K interface {
	comparable
	text() string
}, V comparable](k kind, was, is map[K]V) (list []unitKey) {
	for key, v := range was {
		if is[key] != v {
			list = append(list, unitKey{k, key.text()})
		}
	}
	for key, v := range is {
		if _, both := was[key]; !both && v != *new(V) {
			list = append(list, unitKey{k, key.text()})
		}
	}
	return list
}

// neighbour is the MAC of a neighbor; false if it is not known.
func (n *Numbers) neighbour(k NeighbourKey) (intent.MAC, bool) {
	mac, ok := n.known()[k]
	return mac, ok
}

// known are the neighbors with a known MAC.
func (n *Numbers) known() neighbours {
	if n == nil {
		return nil
	}
	return n.neighbours
}

func (n *Numbers) change(change func(map[string]uint32)) *Numbers {
	next := n.copied()
	ports := maps.Clone(next.ports)
	if ports == nil {
		ports = map[string]uint32{}
	}
	next.ports = ports
	change(ports)
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
