// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"net/netip"
)

// ServiceInfo is an element of the answer to GET /v1/services: what the node does for a Service.
type ServiceInfo struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Router is that of its namespace's Network; empty if the Service is not in effect.
	Router string            `json:"router,omitempty"`
	Ports  []ServicePortInfo `json:"ports"`
	// AffinitySeconds is for how long a client gets the same endpoint; 0: it need not.
	AffinitySeconds int            `json:"affinitySeconds,omitempty"`
	SourceRanges    []netip.Prefix `json:"sourceRanges,omitempty"`
	// InternalLocal and ExternalLocal say that the traffic policies are Local.
	InternalLocal       bool   `json:"internalLocal,omitempty"`
	ExternalLocal       bool   `json:"externalLocal,omitempty"`
	HealthCheckNodePort uint16 `json:"healthCheckNodePort,omitempty"`
	// LocalEndpoints is how many ready endpoints the node has.
	LocalEndpoints int `json:"localEndpoints"`
	// Answers are the load balancers' addresses and FloatingIPs that this node answers for.
	Answers []netip.Addr `json:"answers,omitempty"`
	// Problems are what of it is not in effect, and why.
	Problems []string `json:"problems,omitempty"`
}

// ServicePortInfo is one port of a Service in one family of addresses.
type ServicePortInfo struct {
	Name            string           `json:"name,omitempty"`
	Protocol        string           `json:"protocol"`
	Port            uint16           `json:"port"`
	NodePort        uint16           `json:"nodePort,omitempty"`
	ClusterIP       netip.Addr       `json:"clusterIP,omitzero"`
	ExternalIPs     []netip.Addr     `json:"externalIPs,omitempty"`
	LoadBalancerIPs []netip.Addr     `json:"loadBalancerIPs,omitempty"`
	Endpoints       []netip.AddrPort `json:"endpoints"`
	// OnNode are the endpoints for clients that a policy keeps on the node.
	OnNode []netip.AddrPort `json:"onNode,omitempty"`
	// Draining are endpoints that keep their clients and get no new ones.
	Draining []netip.AddrPort `json:"draining,omitempty"`
	// Refused says that there are no endpoints anywhere, and clients are refused.
	Refused bool `json:"refused,omitempty"`
}
