// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
)

// ServiceMode says who balances Services.
type ServiceMode string

// The modes. The zero value is KubeProxy: the State then has no Services.
const (
	NativeServices ServiceMode = "native"     // the integration bridge
	KubeProxy      ServiceMode = "kube-proxy" // the node's kernel, behind the gateway port
)

// Addresses that are the same on every node and mean something between its
// bridge and its kernel only.
var (
	// ServiceSourceIPv4 and ServiceSourceIPv6 are who a client seems to be whose packets leave the bridge by the port that
	// they came in by, because it, or a process of its host, is the endpoint itself.
	ServiceSourceIPv4 = netip.MustParseAddr("169.254.64.1")
	ServiceSourceIPv6 = netip.MustParseAddr("fd69:c0e1::1")
	// NodePortIPv4 and NodePortIPv6 are what the node's kernel translates its own addresses to in packets for a NodePort,
	// whose port stays. They are also the next hop of its routes to Services.
	NodePortIPv4 = netip.MustParseAddr("169.254.64.2")
	NodePortIPv6 = netip.MustParseAddr("fd69:c0e1::2")
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

// Service is a Kubernetes Service as this node's clients see it: at which
// addresses and ports it is, and who answers there. Which endpoints a client may
// get (readiness, topology, policies) has been decided; what is left depends on
// where a packet comes from.
type Service struct {
	Namespace string
	Name      string
	UID       string
	// Router is the name of the Router of its namespace's Network. ClusterIPs of a private Router are for its ports and for
	// hosts.
	Router string
	Ports  []ServicePort // sorted by family, port and protocol; each has an address
	// AffinitySeconds is for how long after its last connection a client gets the same endpoint (ClientIP); 0: no affinity.
	AffinitySeconds int
	// SourceRanges are the only sources that may use the load balancer's addresses; none: all may. They are disjoint and
	// sorted. A family of the Service that all may use is there as 0.0.0.0/0 or ::/0, one that nobody may use as 0.0.0.0/32 or ::/128.
	SourceRanges []netip.Prefix
	// InternalLocal and ExternalLocal are the traffic policies: ClusterIPs, or what comes from outside of the cluster,
	// lead to endpoints of this node only.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort is where the node tells load balancers whether it has an endpoint; 0: nowhere.
	HealthCheckNodePort uint16
	// LocalEndpoints is how many ready endpoints this node has: addresses of the family that has more of them. Those that
	// are terminating do not count, so that load balancers leave the node while it still answers.
	LocalEndpoints int
	// EndpointNodes are the names of the nodes that have a ready endpoint, or one that still serves if none is ready anywhere,
	// sorted, if ExternalLocal and there is an address of a load balancer: only these may answer for it.
	EndpointNodes []string
}

// ServicePort is one port of a Service in one family of addresses: all of its addresses
// and endpoints are of that family.
type ServicePort struct {
	Name     string // of the port, may be empty
	Protocol Protocol
	IPv6     bool
	Port     uint16 // at ClusterIP, ExternalIPs and LoadBalancerIPs
	NodePort uint16 // at the node's own addresses; 0: none

	ClusterIP       netip.Addr   // not valid: none
	ExternalIPs     []netip.Addr // sorted
	LoadBalancerIPs []netip.Addr // sorted

	// Endpoints are for all clients but those that a policy keeps on the node, sorted; empty if there are no such clients,
	// with InternalLocal and no address but ClusterIP.
	Endpoints []Endpoint
	// LocalEndpoints are for clients that a policy keeps on the node, sorted; empty if neither policy is Local.
	LocalEndpoints []Endpoint
	// Draining are the endpoints that get no new clients because they are terminating, but still serve those that they have,
	// sorted; none of them is in the other lists.
	Draining []Endpoint
	// Unserved says that there is no endpoint on any node: clients are refused. If there are some, but none
	// that a client may get, its packets are dropped.
	Unserved bool
}

// Endpoint is who answers.
type Endpoint struct {
	Address netip.Addr
	Port    uint16
}

// Compare orders endpoints by address and port.
func (e Endpoint) Compare(o Endpoint) int {
	if c := e.Address.Compare(o.Address); c != 0 {
		return c
	}
	return int(e.Port) - int(o.Port)
}

// ServiceRange is a prefix that ClusterIPs are from.
type ServiceRange struct {
	Prefix netip.Prefix // masked
}

// slotBits is the length of a Slot.
const slotBits = 18

// Slot is a number of 18 bits made from namespace and name. Few services share
// one, so slot and place among these are a short number that other services do not change.
func (v Service) Slot() uint32 {
	h := fnv.New32a()
	h.Write([]byte(v.key()))
	sum := h.Sum32()
	return (sum ^ sum>>slotBits) & (1<<slotBits - 1)
}

func slotKey(slot uint32) string { return strconv.FormatUint(uint64(slot), 36) }

func (v Service) key() string { return v.Namespace + "/" + v.Name }

func (v Service) equal(o Service) bool {
	return v.Namespace == o.Namespace && v.Name == o.Name && v.UID == o.UID && v.Router == o.Router &&
		slices.EqualFunc(v.Ports, o.Ports, ServicePort.equal) && v.AffinitySeconds == o.AffinitySeconds &&
		slices.Equal(v.SourceRanges, o.SourceRanges) && v.InternalLocal == o.InternalLocal && v.ExternalLocal == o.ExternalLocal &&
		v.HealthCheckNodePort == o.HealthCheckNodePort && v.LocalEndpoints == o.LocalEndpoints &&
		slices.Equal(v.EndpointNodes, o.EndpointNodes)
}

func (p ServicePort) equal(o ServicePort) bool {
	return p.Name == o.Name && p.Protocol == o.Protocol && p.IPv6 == o.IPv6 && p.Port == o.Port && p.NodePort == o.NodePort &&
		p.ClusterIP == o.ClusterIP && p.Unserved == o.Unserved &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) &&
		slices.Equal(p.Endpoints, o.Endpoints) && slices.Equal(p.LocalEndpoints, o.LocalEndpoints) && slices.Equal(p.Draining, o.Draining)
}

func (v Service) clone() Service {
	v.SourceRanges = slices.Clone(v.SourceRanges)
	v.EndpointNodes = slices.Clone(v.EndpointNodes)
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
