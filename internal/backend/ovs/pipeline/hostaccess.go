// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// isolated is why packets between private routers and the rest are dropped.
const isolated = "the destination's router is isolated from the source's"

// hostAccessFeature guards ports that are in the cluster only for hosts: those of private routers
// and of physical networks, by the addresses that they have in the cluster. A host is this node, or
// another one with its gateway address, or what comes in from outside. Packets of all others have
// nowhere to go, unless they are replies in a connection that this node's kernel has translated.
var hostAccessFeature = &feature{
	number: 14,
	name:   "host-access",
	tables: []Table{hostAccess},
	needed: (*rules).anyGuarded,
	local: func(r *rules) {
		r.on(hostAccess, 10, from(fromGateway)).deliver()
		if r.native() {
			r.on(hostAccess, 10, ofService, openflow.CTState(openflow.CTTrk|openflow.CTRpl, 0)).deliver()
			r.on(hostAccess, 0).drop(isolated)
			return
		}
		r.on(hostAccess, 0).set(toPort(nowhere)).deliver()
		r.on(output, 100, toPort(nowhere)).drop(isolated)
	},
	node: func(r *rules, n intent.Node) {
		for _, s := range n.Subnets {
			r.on(hostAccess, 200, openflow.IPSrc(s.Gateway)).deliver()
			r.on(hostAccess, 100, from(fromGateway), openflow.IPSrc(s.Prefix)).drop(isolated)
		}
	},
	network: func(r *rules, n intent.Network) {
		if r.inCluster(n) {
			for _, s := range n.Subnets {
				r.on(hostAccess, 100, from(fromGateway), openflow.IPSrc(s.Prefix)).drop(isolated)
			}
		}
	},
}

// inCluster says whether a network's addresses are the cluster's.
func (r *rules) inCluster(n intent.Network) bool {
	_, rt, ok := r.lookup(n.Name)
	return ok && n.Physical == "" && !rt.Private()
}
