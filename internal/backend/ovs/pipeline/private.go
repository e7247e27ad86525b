// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// privateFeature lets the ports of private routers reach what is beyond their
// routes, and be reached, with the addresses that they have in the cluster: node
// addresses, or their own if these are from the nodes' subnets. By these they
// reach the hosts, the outside, and each other; the ports of other routers only
// in connections that a host has translated (Services).
//
// Packets of a host's kernel, which may be such a Service's, cross to another node
// with the gateway's MAC as inner source; routed ones have the router's.
var privateFeature = &feature{
	number: 11,
	name:   "private",
	tables: []Table{defaultRoute, clusterSource, cluster},
	needed: (*rules).anyPrivate,
	local: func(r *rules) {
		r.on(clusterSource, 100, from(fromTunnel)).toCluster()
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			r.on(cluster, 10, from(fromPod), openflow.EthType(ethType)).set(viaGateway()...).deliver()
		}
		if r.native() {
			r.privateServices()
			return
		}
		r.on(defaultRoute, 300, from(fromGateway)).goTo(clusterSource)
		r.on(defaultRoute, 300, from(fromTunnel), openflow.EthSrc(gatewayMAC)).goTo(clusterSource)
		r.on(clusterSource, 100, from(fromGateway)).toCluster()
		r.withService(r.on(cluster, 10, from(fromGateway)))

		if r.policed() {
			return // all of them are in the cluster's zone
		}
		// The endpoint's answer comes in the private router, or in the default one if the endpoint
		// is in that: mark both.
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			r.on(serviceReturn, 110, openflow.EthType(ethType), from(fromGateway), ofPrivate).
				do(commitMarked(openflow.CT{Zone: uint16(intent.DefaultRouter)}),
					commitMarked(openflow.CT{ZoneFrom: regZone})).
				goTo(output)
		}
	},
	node: func(r *rules, n intent.Node) {
		for _, s := range n.Subnets {
			r.on(defaultRoute, 200, openflow.IPDst(s.Prefix)).goTo(clusterSource)
			switch {
			case n.Name == r.local.Node:
				r.ownPrefix(s)
			case r.tunneled():
				r.prefixBeyond(n, s)
			default:
				// Without a tunnel nothing tells the other node the packet's router.
				r.beyond(host(s.Gateway), from(fromPod)).set(viaGateway()...).deliver()
				r.beyond(s.Prefix, from(fromPod)).drop(isolated)
			}
		}
	},
	network: func(r *rules, n intent.Network) {
		if r.inCluster(n) {
			for _, s := range n.Subnets {
				r.beyond(s.Prefix, from(fromPod)).drop(isolated)
			}
		}
	},
	serviceRange: func(r *rules, s intent.ServiceRange) {
		if r.native() {
			r.on(defaultRoute, 200, openflow.IPDst(s.Prefix)).goTo(clusterSource)
		}
	},
}

// toCluster ends a flow of packets with the cluster's addresses, and those of its connection.
func (w flow) toCluster() {
	if w.rules.policed() && !w.rules.native() {
		w = w.set(asked)
	}
	w.goTo(cluster)
}

// privateServices keep packets of Services, known by the cluster's addresses, from a
// private router's default route.
func (r *rules) privateServices() {
	r.on(defaultRoute, 300, ofService).goTo(clusterSource)
	for _, a := range []netip.Addr{datapath.ServiceSourceIPv4, datapath.ServiceSourceIPv6} {
		r.on(defaultRoute, 200, openflow.IPDst(a)).goTo(clusterSource)
	}
	r.on(clusterSource, 110, ofService).goTo(cluster)
}

// beyond begins the flow for packets to a prefix of the cluster; longer prefixes win.
func (r *rules) beyond(prefix netip.Prefix, when ...openflow.FieldValue) flow {
	return r.on(cluster, byLength(prefix), append(when, openflow.IPDst(prefix))...)
}

// withService ends a flow of packets of a Service for which the host's kernel has chosen an
// endpoint that is not in the client's router.
func (r *rules) withService(w flow) {
	if whole, ok := r.defaultRouter(); ok {
		w.set(inRouter(whole), notOfPrivate).do(openflow.Resubmit(l3.ID)).end()
	}
}

// ownPrefix is for this node's addresses that no port of the private router has.
func (r *rules) ownPrefix(s intent.Subnet) {
	r.beyond(host(s.Gateway), from(fromPod)).set(viaGateway()...).deliver()
	r.beyond(s.Prefix, from(fromPod)).drop(isolated)
	if r.native() {
		// From another node's port of the router, which may be an endpoint that answers.
		r.on(l3, 600, from(fromTunnel), notAsked,
			openflow.IPDst(s.Prefix)).set(asked).do(openflow.Resubmit(service.ID)).end()
		return
	}
	r.withService(r.beyond(s.Prefix, from(fromTunnel), openflow.EthSrc(gatewayMAC)))
}

// prefixBeyond is for another node's addresses. That node knows which of them are of ports in the
// private router. Its VNI is set.
func (r *rules) prefixBeyond(n intent.Node, s intent.Subnet) {
	remote, ok := r.endpoint(n, s.Prefix)
	whole, known := r.defaultRouter()
	if !ok || !known {
		return
	}
	out := toPort(datapath.TunnelPort)
	r.beyond(host(s.Gateway), from(fromPod)).
		set(throughTunnel(routerMAC, remote)...).set(openflow.TunnelID(uint64(whole.VNI)), out,
		inRouter(whole)).goTo(ttl)
	r.beyond(s.Prefix, from(fromPod)).set(throughTunnel(routerMAC, remote)...).set(out).goTo(ttl)
	if !r.native() {
		r.beyond(s.Prefix, from(fromGateway)).set(throughTunnel(gatewayMAC, remote)...).set(out).goTo(ttl)
	}
}
