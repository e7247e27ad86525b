// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// outputFeature sends a packet out of the port that reg3 holds, unless it came in
// there. Open vSwitch would not send it either, but would not tell.
var outputFeature = &feature{
	number: 9,
	name:   "output",
	tables: []Table{output},
	local: func(r *rules) {
		r.on(output, 100, toPort(0)).drop("no output port was chosen")
		r.notBack(datapath.GatewayPort)
		if r.tunneled() {
			r.notBack(datapath.TunnelPort)
		}
		r.on(output, 0).do(openflow.OutputField(regOutput)).end()
	},
	port: func(r *rules, p intent.Port) { r.notBack(r.number(p)) },
}

func (r *rules) notBack(port uint32) {
	r.on(output, 100, openflow.InPort(port), toPort(port)).
		drop("a packet does not leave by the port that it came in by")
}
