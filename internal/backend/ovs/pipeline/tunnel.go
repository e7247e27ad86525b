// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// tunnelFeature takes packets from other nodes. Only the addresses of nodes may send, and the
// tunnel's key (VNI) is the network or, if a private router has routed the packet, that router. The
// sending node has checked the packet's source.
var tunnelFeature = &feature{
	number: 2,
	name:   "tunnel",
	tables: []Table{tunnel},
	needed: (*rules).tunneled,
	local: func(r *rules) {
		r.on(classify, 50, openflow.InPort(datapath.TunnelPort)).
			drop("the outer source address is not a node's")
	},
	node: func(r *rules, n intent.Node) {
		if n.Name == r.local.Node {
			return
		}
		for _, a := range n.Addresses {
			if a.Is4() == r.local.TunnelIP.Is4() {
				r.on(classify, 100, openflow.InPort(datapath.TunnelPort), openflow.TunSrc(a)).
					set(from(fromTunnel)).
					goTo(tunnel)
			}
		}
	},
	network: func(r *rules, n intent.Network) {
		if n.Physical != "" || n.Name != intent.DefaultNetworkName && !r.attached(n.Name) {
			return
		}
		if n, rt, ok := r.network(n.Name); ok {
			r.on(tunnel, 100, openflow.TunnelID(uint64(n.VNI))).
				set(inNetwork(n), inRouter(rt)).
				set(r.ask(n, rt)...).
				forward()
		}
	},
	router: func(r *rules, rt intent.Router) {
		if !rt.Private() {
			return
		}
		r.on(tunnel, 100, openflow.TunnelID(uint64(rt.VNI))).set(inRouter(rt)).goTo(l3)
		if r.policed() && !r.native() { // l3 of native Services does
			for _, s := range r.localSubnets() {
				r.on(tunnel, 110, openflow.TunnelID(uint64(rt.VNI)), openflow.IPDst(s.Prefix)).set(inRouter(rt),
					asked).goTo(l3)
			}
		}
	},
}
