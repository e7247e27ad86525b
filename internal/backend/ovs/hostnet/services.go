// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Services is what the kernel does for Services that the bridge balances. The kernel never chooses
// an endpoint: it leads packets for Services to the gateway interface, and gives them a source that
// brings the answers back here.
type Services struct {
	// Native says that the bridge balances. Otherwise nothing of this is in the
	// kernel: Services are kube-proxy's.
	Native bool
	// Ranges are what ClusterIPs are from. They are led to the bridge whole.
	Ranges []netip.Prefix
	// NodePortAddresses hold those of the host's addresses at which node ports are served; none: at
	// all but loopback, the gateway's own and, in IPv6, link-local addresses.
	NodePortAddresses []netip.Prefix
	// Announced are the addresses of load balancers that only this cluster's nodes answer for: the
	// kernel leads them to the bridge whole, whatever the port, as it must to answer for them. Of
	// all other external addresses it takes the ports of Services alone, because the rest may
	// belong to any host: another node's, a router's, the API server's.
	Announced []netip.Addr
	// ByAddress says that the bridge balances by address and port alone, whatever the client, and
	// leads what is not for pods back to the kernel (OVN). So the kernel marks all clients that the
	// host does not send itself, not those of ClusterIPs alone, and by their TTL; it translates to
	// endpoints that are no pods; it leads clients inside and outside to different addresses where
	// a policy gives them different endpoints; and it judges pods, too, by source ranges.
	ByAddress bool
	// Via are the next hops of routes to the bridge, one for each family, that answer for
	// themselves; none: a neighbor that stands for the bridge.
	Via []netip.Addr
	// Floating are those of Announced that the bridge takes from the wire of a physical network, to
	// which it gives the answers. Cluster are the prefixes that no client on such a wire is in.
	Floating []netip.Addr
	Cluster  []netip.Prefix
	// Ports are all ports of all Services, in any order that is the same each time.
	Ports []ServicePort
}

// ServicePort is one port of a Service in one family of addresses.
type ServicePort struct {
	Protocol intent.Protocol
	IPv6     bool
	Port     uint16 // at ClusterIP, ExternalIPs and LoadBalancerIPs
	NodePort uint16 // 0: none

	ClusterIP       netip.Addr // not valid: none
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr

	// SourceRanges are the only sources that may use LoadBalancerIPs, among clients from outside
	// and the host's own processes; none of this family: all may.
	SourceRanges []netip.Prefix
	// ExternalLocal says that endpoints see the addresses of clients from outside, InternalLocal
	// that ClusterIP leads to the node's endpoints only.
	ExternalLocal, InternalLocal bool
	// Masked says that endpoints do not see these addresses even so: they would not answer by this
	// node.
	Masked bool
	// Unserved says that clients are refused.
	Unserved bool
	// Hosts are endpoints that the kernel translates to itself.
	Hosts HostEndpoints
}

func (s Services) equal(o Services) bool {
	return s.Native == o.Native && s.ByAddress == o.ByAddress && slices.Equal(s.Ranges, o.Ranges) &&
		slices.Equal(s.Via, o.Via) &&
		slices.Equal(s.NodePortAddresses, o.NodePortAddresses) &&
		slices.Equal(s.Announced, o.Announced) && slices.Equal(s.Floating, o.Floating) &&
		slices.Equal(s.Cluster, o.Cluster) &&
		slices.EqualFunc(s.Ports, o.Ports, ServicePort.equal)
}

func (p ServicePort) equal(o ServicePort) bool {
	return p.Protocol == o.Protocol && p.IPv6 == o.IPv6 && p.Port == o.Port && p.NodePort == o.NodePort &&
		p.ClusterIP == o.ClusterIP &&
		p.ExternalLocal == o.ExternalLocal && p.InternalLocal == o.InternalLocal && p.Hosts.equal(o.Hosts) &&
		p.Masked == o.Masked && p.Unserved == o.Unserved && slices.Equal(p.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(p.LoadBalancerIPs, o.LoadBalancerIPs) && slices.Equal(p.SourceRanges, o.SourceRanges)
}
