// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// l3Feature routes by destination: to ports of this node, to this node's gateway,
// to the nodes that other prefixes are on. Everything else of a pod goes to the
// host, whose kernel has more routes, translates addresses and reports errors.
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
	router: func(r *rules, rt intent.Router) {
		if rt.Name != intent.DefaultRouterName {
			return // the host behind the gateway port is in the default router only
		}
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			r.on(l3, 10, from(fromPod), inRouter(rt), openflow.EthType(ethType)).
				set(viaGateway()...).
				goTo(delivery)
		}
	},
	node: func(r *rules, n intent.Node) {
		for _, s := range n.Subnets {
			network, rt, ok := r.network(s.Network)
			switch {
			case !ok:
			case n.Name == r.local.Node:
				// An address of the subnet that no port has goes to the host too: its
				// kernel tells the sender that the address cannot be reached.
				r.route(rt, s.Prefix).set(viaGateway()...).goTo(delivery)
				r.route(rt, host(s.Gateway)).set(viaGateway()...).goTo(delivery)
			case tunnelled(r.local):
				r.routeToNode(n, s, network, rt)
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		if _, rt, ok := r.network(p.Network); ok {
			for _, a := range p.Addresses {
				r.route(rt, host(a)).
					set(openflow.EthSrc(routerMAC), openflow.EthDst(openflow.MAC(p.MAC)), toPort(p.OFPort)).
					goTo(delivery)
			}
		}
	},
}

// route begins the flow for packets to prefix in router rt; longer prefixes win.
func (r *rules) route(rt intent.Router, prefix netip.Prefix) flow {
	return r.on(l3, 100+uint16(prefix.Bits()), inRouter(rt), openflow.IPDst(prefix))
}

// routeToNode sends a subnet's packets through the tunnel to its node.
func (r *rules) routeToNode(n intent.Node, s intent.Subnet, network intent.Network, rt intent.Router) {
	remote := n.AddressIn(r.local.TunnelIP)
	if !remote.IsValid() {
		r.problem("no address of the family of this node's tunnel address %s: subnet %s is out of reach", r.local.TunnelIP, s.Prefix)
		return
	}
	r.route(rt, s.Prefix).set(
		openflow.EthSrc(routerMAC), openflow.EthDst(routerMAC),
		openflow.TunDst(remote), openflow.TunnelID(uint64(network.VNI)),
		toPort(intent.TunnelPort),
	).goTo(ttl)
}

// viaGateway are the fields that send a packet to the host.
func viaGateway() []openflow.FieldValue {
	return []openflow.FieldValue{openflow.EthSrc(routerMAC), openflow.EthDst(gatewayMAC), toPort(intent.GatewayPort)}
}

// host is the prefix of a single address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
