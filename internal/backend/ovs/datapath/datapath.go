// SPDX-License-Identifier: Apache-2.0

// Package datapath holds the numbers and addresses that the parts of the Open vSwitch backend agree
// on: OpenFlow ports of the integration bridge, zones of conntrack, and the addresses between the
// bridge and the node's kernel.
package datapath

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// OpenFlow port numbers on the integration bridge. They are chosen here and not by Open vSwitch, so
// that flows can be compiled before a port exists and stay the same after every restart. Package
// attachment hands out those from FirstPodPort on.
const (
	TunnelPort      uint32 = 1
	GatewayPort     uint32 = 2
	FirstUplinkPort uint32 = 3
	LastUplinkPort  uint32 = 15
	FirstPodPort    uint32 = 16
)

// SessionVNI is that of the tunnels by which nodes watch each other (BFD). No Network and no Router
// has it.
const SessionVNI = 0

// Zones of conntrack that are not one Router's. No Router has such a number.
const (
	// PhysicalZone is the zone of physical networks, which have no Router.
	PhysicalZone intent.RouterID = 0xfffe
	// HairpinZone is the zone of Services' clients that are their own endpoints.
	HairpinZone intent.RouterID = 0xffff
)

// GatewayZone is the zone of what leaves the cluster by a Router's gateway.
func GatewayZone(r intent.RouterID) uint16 { return 1<<15 | uint16(r) }

var (
	// RouterMAC is the virtual router's address, on every node: what pods and the host resolve a
	// gateway address to.
	RouterMAC = reserved.RouterMAC(1)
	// GatewayMAC is the address of the gateway interface, on every node.
	GatewayMAC = reserved.RouterMAC(2)
	// RelayMAC is the inner source of what a node sends to another one because it is, or was,
	// active for an address of an external Network.
	RelayMAC = reserved.RouterMAC(3)
)

// Addresses that mean something between a node's bridge and its kernel only.
var (
	// ServiceSourceIPv4 and ServiceSourceIPv6 replace the source of packets that leave the bridge
	// by the port that they came in by, because the client, or a process of its host, is the
	// endpoint itself. They are also the next hop of the kernel's routes to Services.
	ServiceSourceIPv4 = reserved.NodeLocalIPv4[0]
	ServiceSourceIPv6 = reserved.NodeLocalIPv6[0]
	// NodePortIPv4 and NodePortIPv6 are what the node's kernel translates its own addresses to in
	// packets for a NodePort. The port stays.
	NodePortIPv4 = reserved.NodeLocalIPv4[1]
	NodePortIPv6 = reserved.NodeLocalIPv6[1]
)

// ForwardedDSCP marks what the host's kernel leads to a ClusterIP and has not sent itself.
const ForwardedDSCP = reserved.ForwardedDSCP

// TunnelUDPPort is where tunnel packets are sent (RFC 7348, RFC 8926); 0 if there are none.
func TunnelUDPPort(e intent.Encapsulation) uint16 {
	switch e {
	case intent.VXLAN:
		return 4789
	case intent.Geneve:
		return 6081
	}
	return 0
}
