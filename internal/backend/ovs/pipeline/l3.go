// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// l3Feature routes by destination: to ports of this node, to this node's gateway, to the nodes that
// other prefixes are on. What else a pod of a shared router sends goes to the host. The kernel
// there has more routes, translates addresses and reports errors.
var l3Feature = &feature{
	number: 6,
	name:   "l3",
	tables: []Table{l3},
	local: func(r *rules) {
		linkLocal := netip.MustParsePrefix("fe80::/10")
		const reason = "link-local addresses are not routed"
		r.on(l3, 300, openflow.IPDst(linkLocal)).drop(reason)
		r.on(l3, 300, openflow.IPSrc(linkLocal)).drop(reason)
	},
	router:  missed,
	network: ownSubnets,
	node: func(r *rules, n intent.Node) {
		for _, s := range n.Subnets {
			_, rt, ok := r.network(s.Network)
			switch {
			case !ok:
			case n.Name == r.local.Node:
				// An address of the subnet that no port has goes to the host too: its
				// kernel tells the sender that the address cannot be reached.
				r.route(rt, s.Prefix).set(viaGateway()...).deliver()
				r.route(rt, host(s.Gateway)).set(viaGateway()...).deliver()
			default:
				r.routeToNode(l3, rt, rt, s.Prefix, n)
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		if n, rt, ok := r.network(p.Network); ok && n.Physical == "" {
			for _, reader := range r.readers(rt) {
				for _, a := range p.Addresses {
					r.deliver(l3, reader, rt, host(a), p)
				}
			}
		}
	},
	remote: func(r *rules, p intent.Port) {
		for _, a := range p.Addresses {
			r.prefixOfNode(p.Network, host(a), p.Node)
		}
	},
	block: func(r *rules, b intent.Block) {
		if b.Node != r.local.Node {
			r.prefixOfNode(b.Network, b.Prefix, b.Node)
		}
	},
}

// prefixOfNode routes a part of a network to the other node that has it.
func (r *rules) prefixOfNode(network string, prefix netip.Prefix, node string) {
	n, rt, ok := r.network(network)
	if !ok || n.Physical != "" || !r.tunneled() {
		return
	}
	if node, ok := r.node(node); ok {
		for _, reader := range r.readers(rt) {
			r.routeToNode(l3, reader, rt, prefix, node)
		}
	}
}

// missed says where packets go that no route of the router is for.
func missed(r *rules, rt intent.Router) {
	switch {
	case rt.Name == intent.DefaultRouterName:
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			r.on(l3, 10, from(fromPod), inRouter(rt), openflow.EthType(ethType)).
				set(viaGateway()...).
				deliver()
			if r.native() { // to an endpoint of a Service
				r.on(l3, 10, from(fromGateway), ofService, inRouter(rt), openflow.EthType(ethType)).
					set(viaGateway()...).
					deliver()
			}
		}
	case !rt.Private():
		if whole, ok := r.defaultRouter(); ok {
			r.on(l3, 10, inRouter(rt)).set(inRouter(whole)).do(openflow.Resubmit(l3.ID)).end()
		}
	default:
		r.beyondRoutes(r.on(l3, 10, inRouter(rt)), rt, clusterSource)
	}
}

// beyondRoutes ends a flow of packets that no route of the private router rt is
// for. By its VNI other nodes will know it.
func (r *rules) beyondRoutes(w flow, rt intent.Router, t Table) {
	if r.tunneled() {
		w = w.set(openflow.TunnelID(uint64(rt.VNI)))
	}
	w.goTo(t)
}

// ownSubnets drops packets to unused addresses of the network.
func ownSubnets(r *rules, n intent.Network) {
	if n.Physical != "" || len(n.Subnets) == 0 {
		return
	}
	_, rt, ok := r.network(n.Name)
	if !ok {
		return
	}
	for _, reader := range r.readers(rt) {
		if !rt.Private() && !reader.Private() && !r.tunneled() {
			continue // the host's kernel has routes to the other nodes' blocks
		}
		for _, s := range n.Subnets {
			r.route(reader, s.Prefix).drop("no port is known to have the address")
		}
	}
}
