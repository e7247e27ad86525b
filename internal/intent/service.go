// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// ServiceMode says what balances Services.
type ServiceMode string

// The modes. The zero value is KubeProxy: the State then has no Services.
const (
	NativeServices ServiceMode = "native"     // the integration bridge
	KubeProxy      ServiceMode = "kube-proxy" // the node's kernel, behind the gateway port
)

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String is the protocol as Kubernetes writes it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

// Service is a Kubernetes Service as the whole cluster has it: its addresses and ports, its traffic
// policies and all of its endpoints. What one node makes of it is its NodeService.
type Service struct {
	Namespace string
	Name      string
	UID       string
	// Router is the name of the Router of its namespace's Network. ClusterIPs of a private Router
	// are for its ports and for hosts.
	Router string
	Ports  []ServicePort // sorted by family, port and protocol; each has an address
	// AffinitySeconds is for how long after its last connection a client gets the same endpoint
	// (ClientIP); 0: no affinity.
	AffinitySeconds int
	// SourceRanges are the only sources that may use the load balancer's addresses; none: all may.
	// They are disjoint and sorted. A family of the Service that is open to all sources is there as
	// 0.0.0.0/0 or ::/0, one that is open to none as 0.0.0.0/32 or ::/128.
	SourceRanges []netip.Prefix
	// InternalLocal and ExternalLocal are the traffic policies: ClusterIPs, or what comes from
	// outside of the cluster, lead to endpoints of the node only that a packet comes to.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort is where each node tells load balancers whether it has
	// an endpoint; 0: nowhere.
	HealthCheckNodePort uint16
	// Octavia says that a load balancer of Octavia takes clients outside: that of the Service's
	// class. FloatingIPs are its addresses.
	Octavia bool
}

// ServicePort is one port of a Service in one family of addresses: all of its addresses and
// endpoints are of that family.
type ServicePort struct {
	Name     string // of the port, may be empty
	Protocol Protocol
	IPv6     bool
	Port     uint16 // at ClusterIP, ExternalIPs and LoadBalancerIPs
	NodePort uint16 // at the nodes' own addresses; 0: none

	ClusterIP       netip.Addr   // not valid: none
	ExternalIPs     []netip.Addr // sorted
	LoadBalancerIPs []netip.Addr // sorted

	// Endpoints are all that serve, in the order of Endpoint.Compare. The same address and port
	// may be there several times, with different places: what is first of those that mean the same
	// to a node counts.
	Endpoints []ServiceEndpoint
}

// ServiceEndpoint is an endpoint of a port of a Service, and where it is.
type ServiceEndpoint struct {
	Address netip.Addr
	Port    uint16
	// Terminating endpoints are not ready, but still serve: they get new clients only if no
	// endpoint is ready.
	Terminating bool     `json:",omitempty"`
	Topology    Topology `json:"Place,omitzero"` // the name in the cache of earlier releases
}

// NodeService is a Service as the clients of one node see it: at which addresses and ports it is,
// and which endpoints answer there. Which endpoints a client may get (readiness, topology,
// policies) has been decided; what is left depends on where a packet comes from.
type NodeService struct {
	Namespace string
	Name      string
	UID       string
	Router    string            // see Service, as for all fields that have the same name
	Ports     []NodeServicePort // sorted by family, port and protocol; each has an address

	AffinitySeconds              int
	SourceRanges                 []netip.Prefix
	InternalLocal, ExternalLocal bool
	HealthCheckNodePort          uint16
	// LocalEndpoints is how many ready endpoints the node has: addresses of the family that has
	// more of them. Those that are terminating do not count, so that load balancers leave the node
	// while it still answers.
	LocalEndpoints int
}

// NodeServicePort is one port of a NodeService in one family of addresses.
type NodeServicePort struct {
	Name     string
	Protocol Protocol
	IPv6     bool
	Port     uint16
	NodePort uint16 // 0 also if a process of the node's host has the port

	ClusterIP       netip.Addr
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr

	// Endpoints are for all clients but those that a policy keeps on the node, sorted; empty if
	// there are no such clients, with InternalLocal and no address but ClusterIP.
	Endpoints []Endpoint
	// LocalEndpoints are for clients that a policy keeps on the node, sorted; empty if neither
	// policy is Local.
	LocalEndpoints []Endpoint
	// Draining are the endpoints that get no new clients because they are terminating, but still
	// serve those that they have, sorted; none of them is in the other lists.
	Draining []Endpoint
	// Unserved says that there is no endpoint on any node: clients are refused. If there are some,
	// but none that a client may get, its packets are dropped.
	Unserved bool
}

// Endpoint is an address and a port that answers.
type Endpoint struct {
	Address netip.Addr
	Port    uint16
}

// Compare orders endpoints by address and port.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(e.Address.Compare(o.Address), cmp.Compare(e.Port, o.Port))
}

// Endpoint is the endpoint without its place.
func (e ServiceEndpoint) Endpoint() Endpoint { return Endpoint{e.Address, e.Port} }

// ServiceRange is a prefix that ClusterIPs are from.
type ServiceRange struct {
	Prefix netip.Prefix // masked
}

// Listener is a port that a process of this node's host listens on, so that it is no
// Service's node port here.
type Listener struct {
	Protocol Protocol
	Port     uint16
}

func (v Service) key() string { return v.Namespace + "/" + v.Name }

func (v Service) equal(o Service) bool {
	return v.Namespace == o.Namespace && v.Name == o.Name && v.UID == o.UID && v.Router == o.Router &&
		slices.EqualFunc(v.Ports, o.Ports, ServicePort.equal) && v.AffinitySeconds == o.AffinitySeconds &&
		slices.Equal(v.SourceRanges, o.SourceRanges) && v.InternalLocal == o.InternalLocal &&
		v.ExternalLocal == o.ExternalLocal && v.HealthCheckNodePort == o.HealthCheckNodePort && v.Octavia == o.Octavia
}

func (p ServicePort) equal(o ServicePort) bool {
	return p.Name == o.Name && p.Protocol == o.Protocol && p.IPv6 == o.IPv6 && p.Port == o.Port &&
		p.NodePort == o.NodePort && p.ClusterIP == o.ClusterIP && slices.Equal(p.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) && slices.Equal(p.Endpoints, o.Endpoints)
}

func (v Service) clone() Service {
	v.SourceRanges = slices.Clone(v.SourceRanges)
	v.Ports = slices.Clone(v.Ports)
	for i, p := range v.Ports {
		v.Ports[i].ExternalIPs = slices.Clone(p.ExternalIPs)
		v.Ports[i].LoadBalancerIPs = slices.Clone(p.LoadBalancerIPs)
		v.Ports[i].Endpoints = slices.Clone(p.Endpoints)
	}
	return v
}

func (v NodeService) key() string { return v.Namespace + "/" + v.Name }

func (v NodeService) equal(o NodeService) bool {
	return v.Namespace == o.Namespace && v.Name == o.Name && v.UID == o.UID && v.Router == o.Router &&
		slices.EqualFunc(v.Ports, o.Ports, NodeServicePort.equal) && v.AffinitySeconds == o.AffinitySeconds &&
		slices.Equal(v.SourceRanges, o.SourceRanges) && v.InternalLocal == o.InternalLocal &&
		v.ExternalLocal == o.ExternalLocal && v.HealthCheckNodePort == o.HealthCheckNodePort &&
		v.LocalEndpoints == o.LocalEndpoints
}

func (p NodeServicePort) equal(o NodeServicePort) bool {
	return p.Name == o.Name && p.Protocol == o.Protocol && p.IPv6 == o.IPv6 && p.Port == o.Port &&
		p.NodePort == o.NodePort && p.ClusterIP == o.ClusterIP && p.Unserved == o.Unserved &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) &&
		slices.Equal(p.Endpoints, o.Endpoints) && slices.Equal(p.LocalEndpoints, o.LocalEndpoints) &&
		slices.Equal(p.Draining, o.Draining)
}

func (v NodeService) clone() NodeService {
	v.SourceRanges = slices.Clone(v.SourceRanges)
	v.Ports = slices.Clone(v.Ports)
	for i, p := range v.Ports {
		v.Ports[i].ExternalIPs = slices.Clone(p.ExternalIPs)
		v.Ports[i].LoadBalancerIPs = slices.Clone(p.LoadBalancerIPs)
		v.Ports[i].Endpoints = slices.Clone(p.Endpoints)
		v.Ports[i].LocalEndpoints = slices.Clone(p.LocalEndpoints)
		v.Ports[i].Draining = slices.Clone(p.Draining)
	}
	return v
}

func (r ServiceRange) key() string               { return r.Prefix.String() }
func (r ServiceRange) equal(o ServiceRange) bool { return r == o }
func (r ServiceRange) clone() ServiceRange       { return r }

// Key is the key of the Listener in its Table.
func (l Listener) Key() string { return l.Protocol.String() + " " + strconv.Itoa(int(l.Port)) }

func (l Listener) key() string           { return l.Key() }
func (l Listener) equal(o Listener) bool { return l == o }
func (l Listener) clone() Listener       { return l }
