// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"net/netip"
)

// NetworkInfo is an element of the answer to GET /v1/networks: a Network as it is in
// effect on the node.
type NetworkInfo struct {
	Name   string `json:"name"`
	ID     uint32 `json:"id"`
	VNI    uint32 `json:"vni,omitempty"`
	Router string `json:"router,omitempty"`
	// Uplink is the OpenFlow port that leads to the physical network, VLAN the tag on it.
	Uplink uint32 `json:"uplink,omitempty"`
	VLAN   uint16 `json:"vlan,omitempty"`
	// Those of the node's podCIDRs if it has none of its own.
	Subnets []netip.Prefix `json:"subnets"`
	Blocks  []netip.Prefix `json:"blocks"` // of this node
	Ports   int            `json:"ports"`  // of this node
	// Neutron is the UUID of the network in Neutron; empty: it is none, or not known.
	Neutron string `json:"neutron,omitempty"`
}

// RouterInfo is an element of the answer to GET /v1/routers: a Router as it is in
// effect on the node.
type RouterInfo struct {
	Name string `json:"name"`
	ID   uint16 `json:"id"`
	VNI  uint32 `json:"vni"`
	// Shared says that its addresses are known to the whole cluster.
	Shared   bool        `json:"shared"`
	Imports  []string    `json:"imports"`
	Networks []string    `json:"networks"`
	Routes   []RouteInfo `json:"routes"`
	// Neutron is the UUID of the router in Neutron; empty: it is none, or not known.
	Neutron string `json:"neutron,omitempty"`
}

// RouteInfo is a static route of a Router.
type RouteInfo struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"nextHop"`
}
