// SPDX-License-Identifier: Apache-2.0

package compile

// policySubjectFeature finds how the ports that send and receive are governed.
var policySubjectFeature = &feature{
	number: 21,
	name:   "policy-subject",
	tables: []Table{
		egressSubject, egressPeer, egressGroup, egressAdmin, egressAdminLater, egressPolicy,
		ingressSubject, ingressPeer, ingressGroup, ingressAdmin, ingressAdminLater, ingressPolicy,
	},
	needed: (*rules).policed,
	local: func(r *rules) {
		r.on(egressSubject, 0).goTo(ingressSubject)
		r.on(ingressSubject, 0).goTo(policyVerdict)
	},
}
