// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// l2Feature sends what is addressed to a MAC of the same network on this node to
// its port, and what is addressed to the virtual router to l3. Nothing is flooded.
var l2Feature = &feature{
	number: 5,
	name:   "l2",
	tables: []Table{l2},
	local: func(r *rules) {
		group := openflow.MAC{0x01}
		r.on(l2, 200, openflow.EthDstMask(group, group)).
			drop("broadcast and multicast are not forwarded")
		r.on(l2, 100, openflow.EthDst(routerMAC)).goTo(l3)
		if n, _, ok := r.network(intent.DefaultNetworkName); ok {
			r.on(l2, 100, from(fromPod), inNetwork(n), openflow.EthDst(gatewayMAC)).
				set(toPort(intent.GatewayPort)).
				goTo(delivery)
		}
	},
	port: func(r *rules, p intent.Port) {
		if n, _, ok := r.network(p.Network); ok {
			r.on(l2, 100, inNetwork(n), openflow.EthDst(openflow.MAC(p.MAC))).
				set(toPort(p.OFPort)).
				goTo(delivery)
		}
	},
}
