// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/intent"
)

// feature is a part of the pipeline. Its functions may be nil; those that are
// not emit the flows that one object needs.
type feature struct {
	number uint8 // in cookies; never used for another feature
	name   string
	tables []Table
	// needed says whether the feature is there at all; nil: always.
	needed func(*rules) bool

	local   func(*rules) // what is always there
	router  func(*rules, intent.Router)
	network func(*rules, intent.Network)
	node    func(*rules, intent.Node)
	port    func(*rules, intent.Port) // ports of this node
	remote  func(*rules, intent.Port) // ports of other nodes
	block   func(*rules, intent.Block)
	service func(*rules, intent.NodeService)

	serviceRange func(*rules, intent.ServiceRange)
	floatingIP   func(*rules, intent.FloatingIP)
	rule         func(*rules, intent.Rule)
	peer         func(*rules, intent.Peer)

	gatewayAddress func(*rules, intent.GatewayAddress)
	egressAddress  func(*rules, intent.EgressAddress)
}

// maxFeature is the greatest number of a feature.
const maxFeature = 33

// features is the pipeline, in the order of a packet's way.
var features []*feature

func init() {
	features = []*feature{
		classifyFeature,
		questionLimitFeature,
		tunnelFeature,
		spoofguardFeature,
		dhcpFeature,
		neighbourFeature,
		serviceFeature,
		affinityFeature,
		l2Feature,
		physicalFeature,
		floatingIPFeature,
		gatewayFeature,
		egressFeature,
		policyRouteFeature,
		floatingServiceFeature,
		l3Feature,
		staticRouteFeature,
		privateFeature,
		hostAccessFeature,
		nodeAddressFeature,
		ttlFeature,
		hairpinFeature,
		serviceReturnFeature,
		policyFeature,
		policySubjectFeature,
		policyPeerFeature,
		policyRuleFeature,
		policyAuditFeature,
		serviceCommitFeature,
		outputFeature,
		nextHopFeature,
		pathMTUFeature,
	}
}

// tunneled says whether packets to other nodes are encapsulated.
func (r *rules) tunneled() bool { return r.local.Encapsulation.Tunneled() }

// native says whether the bridge balances Services.
func (r *rules) native() bool { return r.local.ServiceMode == intent.NativeServices }

// policed says whether policies are enforced.
func (r *rules) policed() bool { return r.local.PolicyMode == intent.EnforcedPolicies }

// compileLocal emits what is always there: the features' own flows and the drop
// at the end of each of their tables.
func (r *rules) compileLocal() {
	for _, f := range features {
		if f.needed != nil && !f.needed(r) {
			continue
		}
		r.begin(f)
		for _, t := range f.tables {
			if t.miss != "" {
				r.on(t, 0).drop(t.miss)
			}
		}
		if f.local != nil {
			f.local(r)
		}
	}
}

// compileObject runs the function that each feature has for such an object.
func compileObject[T any](r *rules, o T, of func(*feature) func(*rules, T)) {
	for _, f := range features {
		if emit := of(f); emit != nil && (f.needed == nil || f.needed(r)) {
			r.begin(f)
			emit(r, o)
		}
	}
}
