// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/openflow"
)

// serviceReturnFeature leads replies back to the host that translated the
// request's address (kube-proxy). The endpoint sees the client's own address and
// would answer it directly, from an address that the client never asked. So a
// connection that comes from the gateway port is marked when it is committed, and
// replies in a marked connection go to the gateway port. Packets to the gateway
// port need no conntrack.
var serviceReturnFeature = &feature{
	number: 8,
	name:   "service-return",
	tables: []Table{serviceReturn, serviceReply},
	// else policyFeature asks conntrack.
	needed: func(r *rules) bool { return !r.native() && !r.policed() },
	local: func(r *rules) {
		r.on(serviceReturn, 200, toPort(datapath.GatewayPort)).goTo(output)
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			ip := openflow.EthType(ethType)
			r.on(serviceReturn, 100, ip, from(fromGateway)).
				do(commitMarked(openflow.CT{ZoneFrom: regZone})).
				goTo(output)
			r.on(serviceReturn, 50, ip).
				do(openflow.CT{ZoneFrom: regZone, Table: openflow.Table(serviceReply.ID)}).
				end()
			r.on(serviceReply, 100, ip, openflow.CTState(openflow.CTTrk|openflow.CTRpl, 0), ctFromGateway).
				set(viaGateway()...).
				goTo(output)
		}
		r.on(serviceReply, 0).goTo(output)
	},
}

// commitMarked marks the connection in a zone as one that came from the gateway
// port. Without a table the packet is not recirculated.
func commitMarked(zone openflow.CT) openflow.CT {
	zone.Commit, zone.Exec = true, []openflow.Action{openflow.SetField(ctFromGateway)}
	return zone
}
