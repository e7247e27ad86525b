// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// hairpinFeature sends packets of Services back out of the port that they came in by, since their
// client, or a process of its host, is the endpoint itself. It sees another client, the packets to
// which come here: its own address it would not accept.
var hairpinFeature = &feature{
	number: 18,
	name:   "hairpin",
	tables: []Table{serviceHairpin, hairpinCommit, hairpinOutput},
	needed: (*rules).native,
	local: func(r *rules) {
		r.hairpin(datapath.GatewayPort)
		r.on(serviceHairpin, 0).judge()
		for _, a := range []netip.Addr{datapath.ServiceSourceIPv4, datapath.ServiceSourceIPv6} {
			r.on(hairpinCommit, 100, hairpin, familyOf(a)).
				do(openflow.CT{Commit: true, Zone: sourceZone, NAT: &openflow.NAT{SNAT: true, AddrMin: a}}).
				set(noInPort).goTo(output)
			answer, request := openflow.CTState(openflow.CTTrk|openflow.CTRpl, 0),
				openflow.CTState(openflow.CTTrk, openflow.CTRpl)
			r.on(serviceCommit, 160, hairpin, familyOf(a), answer).set(noInPort).goTo(output)
			r.on(serviceCommit, 150, hairpin, familyOf(a), request).do(translated(sourceZone, hairpinOutput)).end()
		}
		r.on(hairpinCommit, 0).goTo(output)
		r.on(hairpinOutput, 0).set(noInPort).goTo(output)
		if n, _, ok := r.network(intent.DefaultNetworkName); ok {
			for _, a := range []netip.Addr{datapath.ServiceSourceIPv4, datapath.ServiceSourceIPv6,
				datapath.NodePortIPv4, datapath.NodePortIPv6} {
				r.neighbourOf(a, n)
			}
		}
	},
	port: func(r *rules, p intent.Port) { r.hairpin(r.number(p)) },
}

// noInPort lets a packet leave by the port that it came in by.
var noInPort = openflow.FieldInPort16.Value(0)

// hairpin finds what leaves by the port that it came in by.
func (r *rules) hairpin(port uint32) {
	r.on(serviceHairpin, 100, openflow.InPort(port), toPort(port), ofService).set(hairpin).judge()
}

// neighbourOf makes the virtual router the host's next hop to an address.
func (r *rules) neighbourOf(a netip.Addr, n intent.Network) {
	r.as(neighbourFeature, func() {
		r.knows(a, datapath.RouterMAC, openflow.NDRouter, inNetwork(n), from(fromGateway))
	})
}
