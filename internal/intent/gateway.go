// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
)

// GatewayAddress is the address of an external Network by which one node lets the Ports that it has
// of a Router out of the cluster: all of them are seen as this address.
type GatewayAddress struct {
	Router  string // name
	Node    string // name
	Network string // name of the external Network
	Address netip.Addr
	// Routed says that it is only where the outside sends what is for the Router's Networks. What
	// leaves has the Ports' own addresses.
	Routed bool
}

// GatewayAddresses are those of all nodes, by Network and address.
func (s *State) GatewayAddresses() Table[GatewayAddress] { return s.gatewayAddresses }

// GatewayAddressesAt are those that a node has.
func (s *State) GatewayAddressesAt(node string) iter.Seq[GatewayAddress] {
	return s.gatewayAddresses.by(gatewayAddressesByNode, node)
}

// GatewayAddressesOf are those by which a node lets a Router's Ports out.
func (s *State) GatewayAddressesOf(node, router string) iter.Seq[GatewayAddress] {
	return s.gatewayAddresses.by(gatewayAddressesByUse, node+" "+router)
}

// SetGatewayAddress adds or replaces a GatewayAddress.
func (tx *Tx) SetGatewayAddress(g GatewayAddress) { tx.gatewayAddresses = tx.gatewayAddresses.set(g) }

// DeleteGatewayAddress removes the GatewayAddress with that address of a Network.
func (tx *Tx) DeleteGatewayAddress(network string, a netip.Addr) {
	tx.gatewayAddresses = tx.gatewayAddresses.delete(GatewayAddress{Network: network, Address: a}.key())
}

func (g GatewayAddress) key() string                 { return g.Network + " " + g.Address.String() }
func (g GatewayAddress) equal(o GatewayAddress) bool { return g == o }
func (g GatewayAddress) clone() GatewayAddress       { return g }
