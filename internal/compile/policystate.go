// SPDX-License-Identifier: Apache-2.0

package compile

import "coelan.io/coelan/openflow"

// policyFeature is the frame that policies are judged in: it finds the packet's connection, lets pass what is not
// judged, and remembers of connections that they are allowed, or not any more.
var policyFeature = &feature{
	number: 19,
	name:   "policy",
	tables: []Table{policyState, policyConnection, policyVerdict, policyDenied},
	needed: (*rules).policed,
}

// deny adds the flow, which drops; cookie says why. If the packet's connection is known, it is marked, so that replies
// are dropped as well.
func (w flow) deny(cookie uint64) {
	w.f.Cookie = cookie
	w.f.Actions = append(w.f.Actions, openflow.Resubmit(policyDenied.ID))
	w.rules.flows = append(w.rules.flows, w.f)
}
