// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"net/netip"
)

// ExternalAddress is an address of an external Network, and what the node does for it.
type ExternalAddress struct {
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	// InEffect says that the node's bridge answers for the address, with the MAC.
	InEffect bool   `json:"inEffect"`
	MAC      string `json:"mac,omitempty"`
	// Problem is why the address is not in effect although it should be.
	Problem string `json:"problem,omitempty"`
	// NextHop is the gateway of the address's subnet, if the node has looked for it.
	NextHop *NextHop `json:"nextHop,omitempty"`
}

// FloatingIPInfo is an element of the answer to GET /v1/floatingips: one that stands for a Port of
// the node, or for a Service for which the node has been chosen to answer.
type FloatingIPInfo struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      string `json:"port,omitempty"`    // namespace/name
	Service   string `json:"service,omitempty"` // namespace/name
	ExternalAddress
}

// GatewayInfo is an element of the answer to GET /v1/gateways: an address by which the node lets
// the Ports that it has of a Router out of the cluster.
type GatewayInfo struct {
	Router string `json:"router"`
	ExternalAddress
	// Routed says that nothing is translated to the address.
	Routed bool `json:"routed,omitempty"`
	// Translations are those of all addresses that the node has as the Router's gateway; nil: not
	// known.
	Translations *Translations `json:"translations,omitempty"`
}

// Translations are connections that get another address.
type Translations struct {
	Count int `json:"count"`
	// Limit is how many there may be; 0: not known.
	Limit int `json:"limit,omitempty"`
}

// EgressInfo is an element of the answer to GET /v1/egress: an address that Ports of several nodes
// are seen as, as this node knows it.
type EgressInfo struct {
	// Egress is the name of the Egress that has the address; empty: the gateway of the Router has.
	Egress string `json:"egress,omitempty"`
	Router string `json:"router"`
	ExternalAddress
	// Nodes may be active; those that are Leaving are if no other can.
	Nodes   []string `json:"nodes"`
	Leaving []string `json:"leaving,omitempty"`
	// Active is the node that is, as this one sees it, Reported the one that last said so to the
	// API.
	Active   string `json:"active,omitempty"`
	Reported string `json:"reported,omitempty"`
	Failback bool   `json:"failback,omitempty"`
}

// NextHop is an element of the answer to GET /v1/nexthops: a station on an external Network.
type NextHop struct {
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	// Gateway says that it is the gateway of a subnet, and not a host that packets are for.
	Gateway bool `json:"gateway,omitempty"`
	// MAC is empty if it is not known: the node asks for it.
	MAC string `json:"mac,omitempty"`
	// Silent says that it has not answered. A gateway keeps its MAC nevertheless.
	Silent bool `json:"silent,omitempty"`
	// Down says that it is a next hop of an Egress that fails its health check.
	Down bool `json:"down,omitempty"`
}
