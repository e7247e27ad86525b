// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// classifyFeature loads what is known of a packet from its input port. All later
// tables match these registers and not the port.
var classifyFeature = &feature{
	number: 1,
	name:   "classify",
	tables: []Table{classify},
	local: func(r *rules) {
		// Matches of Ethernet types look behind a tag, so it must be refused first.
		r.on(classify, 200, openflow.AnyVLAN()).drop("VLAN tags are not allowed, but from the uplinks of their networks")
		if n, rt, ok := r.network(intent.DefaultNetworkName); ok {
			w := r.on(classify, 100, openflow.InPort(datapath.GatewayPort)).
				set(from(fromGateway), inNetwork(n), inRouter(rt))
			if r.native() || r.policed() {
				w = w.set(asked, markFromGateway)
			}
			w.goTo(spoofguard)
		}
	},
	port: func(r *rules, p intent.Port) {
		if n, rt, ok := r.network(p.Network); ok {
			r.on(classify, 100, openflow.InPort(r.number(p))).set(r.source(n, rt)...).goTo(spoofguard)
		}
	},
}

// source is what is known of a packet of a Port of this node.
func (r *rules) source(n intent.Network, rt intent.Router) []openflow.FieldValue {
	return append([]openflow.FieldValue{from(fromPod), inNetwork(n), inRouter(rt)}, r.ask(n, rt)...)
}
