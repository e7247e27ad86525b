// SPDX-License-Identifier: Apache-2.0

package compile

import "coelan.io/coelan/openflow"

// outputFeature sends a packet out of the port that reg3 holds. Open vSwitch
// never sends one back out of the port on which it came in.
var outputFeature = &feature{
	number: 9,
	name:   "output",
	tables: []Table{output},
	local: func(r *rules) {
		r.on(output, 100, toPort(0)).drop("no output port was chosen")
		r.on(output, 0).do(openflow.OutputField(regOutput)).end()
	},
}
