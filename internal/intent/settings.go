// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"net/netip"
)

// GuardedPort is a port of the nodes' own addresses that only nodes of the cluster may reach.
type GuardedPort struct {
	Protocol Protocol
	Port     uint16
}

// NodePortAddress is a prefix of nodes' own addresses at which Services have their node ports.
// Without any, node ports are at all addresses.
type NodePortAddress struct {
	Prefix netip.Prefix
}

// Uplink is what this node has of a physical network.
type Uplink struct {
	Physical string // the key: the physical network's name, as in Network.Physical
	// Bridge is the name of the node's bridge that has the network card.
	Bridge string
	// Card is the network card that is to be given to the bridge, which is made for it; empty: an
	// administrator makes the bridge.
	Card string
	// Shared says that the card has the node's own addresses, which move to the bridge.
	Shared bool
}

// GuardedPorts are the ports that only nodes of the cluster may reach, by number and protocol.
func (s *State) GuardedPorts() Table[GuardedPort] { return s.guarded }

// NodePortAddresses are the nodes' own addresses that have node ports, by prefix.
func (s *State) NodePortAddresses() Table[NodePortAddress] { return s.nodePortsAt }

// Uplinks are the physical networks that this node is to be connected to, by name.
func (s *State) Uplinks() Table[Uplink] { return s.uplinks }

// ReplaceGuardedPorts makes these the only guarded ports, and leaves everything else.
func (tx *Tx) ReplaceGuardedPorts(ports []GuardedPort) { tx.guarded = replace(tx.guarded, ports) }

// ReplaceNodePortAddresses makes these the only addresses with node ports, and
// leaves everything else.
func (tx *Tx) ReplaceNodePortAddresses(addresses []NodePortAddress) {
	tx.nodePortsAt = replace(tx.nodePortsAt, addresses)
}

// ReplaceUplinks makes these the only uplinks, and leaves everything else.
func (tx *Tx) ReplaceUplinks(uplinks []Uplink) { tx.uplinks = replace(tx.uplinks, uplinks) }

func (p GuardedPort) key() string              { return fmt.Sprintf("%05d %s", p.Port, p.Protocol) }
func (p GuardedPort) equal(o GuardedPort) bool { return p == o }
func (p GuardedPort) clone() GuardedPort       { return p }

func (a NodePortAddress) key() string                  { return a.Prefix.String() }
func (a NodePortAddress) equal(o NodePortAddress) bool { return a == o }
func (a NodePortAddress) clone() NodePortAddress       { return a }

func (u Uplink) key() string         { return u.Physical }
func (u Uplink) equal(o Uplink) bool { return u == o }
func (u Uplink) clone() Uplink       { return u }
