// SPDX-License-Identifier: Apache-2.0

package pipeline

import "coelan.io/coelan/openflow"

// ttlFeature counts the sending node as the one router between two nodes' pods.
// What comes from the host has been counted by its kernel, or begins there.
var ttlFeature = &feature{
	number: 7,
	name:   "ttl",
	tables: []Table{ttl},
	needed: (*rules).tunneled,
	local: func(r *rules) {
		private := r.anyPrivate()
		r.on(ttl, 200, from(fromGateway)).deliver()
		for _, ethType := range []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6} {
			ip := openflow.EthType(ethType)
			for _, last := range []uint8{0, 1} {
				// The host's kernel, which would have to forward it as well, answers
				// that the time is exceeded.
				r.on(ttl, 100, ip, openflow.IPTTL(last)).set(viaGateway()...).deliver()
				// It could not answer an address that means nothing to it.
				if private {
					r.on(ttl, 150, ip, openflow.IPTTL(last), tenantSource).drop("the TTL is used up")
				}
			}
			r.on(ttl, 50, ip).do(openflow.DecTTL()).deliver()
		}
	},
}
