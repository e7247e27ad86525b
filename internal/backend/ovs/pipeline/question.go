// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// questionLimitFeature limits how many ARP packets and neighbor solicitations a Port has looked at
// in a second. ovs-vswitchd makes each answer itself, and has a flow of the datapath for each
// question: without a limit a Port can keep it from all others.
//
// A meter is an action of the datapath, and a packet that the datapath has no flow for is given to
// ovs-vswitchd before any action. So the datapath's first flow must be the same for all questions
// of a Port: it matches the port and the kind of packet, has the meter, and recirculates. The group
// is there for that: Open vSwitch recirculates before it chooses a bucket by dp_hash. What the
// meter drops never comes to the second lookup.
var questionLimitFeature = &feature{
	number: 26,
	name:   "question-limit",
	needed: func(r *rules) bool { return r.neighbourRate > 0 },
	local: func(r *rules) {
		r.groups = append(r.groups, openflow.Group{
			ID: questionGroup, Type: openflow.GroupSelect, SelectionMethod: "dp_hash",
			Buckets: []openflow.Bucket{{
				Weight: 1, Actions: []openflow.Action{openflow.Resubmit(spoofguard.ID)},
			}},
		})
	},
	port: func(r *rules, p intent.Port) {
		n, rt, ok := r.network(p.Network)
		if !ok {
			return
		}
		id := questionMeter + r.number(p)
		r.meter(id, r.neighbourRate)
		for _, question := range []openflow.FieldValue{
			openflow.EthType(openflow.EthTypeARP), openflow.ICMPv6Type(icmp6Solicit),
		} {
			r.on(classify, 110, openflow.InPort(r.number(p)), question).
				set(r.source(n, rt)...).
				do(openflow.MeterAction{Meter: id}, openflow.ToGroup(questionGroup)).
				end()
		}
	},
}

const (
	// questionGroup is a number that no Service's groups have: see serviceNumber.
	questionGroup = openflow.GroupMax
	// questionMeter and the number of a Port are that of its meter. Lower ones are agentMeter's.
	questionMeter = 1 << 16
)
