// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// affinityFeature gives a client the endpoint that it had before. A flow that the
// client's first packet leaves behind (learn) says which it is, for as long after the
// client's last connection as the Service asks for. If that endpoint is gone, the
// client gets another one.
var affinityFeature = &feature{
	number: 16,
	name:   "affinity",
	tables: []Table{affinityPin, affinity, affinityLearn},
	needed: (*rules).native,
}

// Learned says whether flows of a table are made by packets.
func Learned(table uint8) bool { return table == affinityPin.ID }

// maxPinned is how many clients of a list of endpoints are remembered.
const maxPinned = 1 << 16

// pinned emits the flows of one list of endpoints of a Service with affinity.
func (r *rules) pinned(c *choice, v intent.NodeService, p intent.NodeServicePort, list []intent.Endpoint,
	ids []uint32,
) {
	here := regServed.Value(uint64(c.number))
	for _, one := range c.parts {
		r.on(affinity, 10, append(one.when, ipType(p), here)...).do(openflow.ToGroup(one.group)).end()
	}
	for i, e := range list {
		r.on(affinity, 100, ipType(p), openflow.IPProto(uint8(p.Protocol)), here, regEndpoint.Value(uint64(ids[i]))).
			set(openflow.IPDst(e.Address), openflow.L4Dst(uint8(p.Protocol), e.Port)).goTo(serviceRoute)
	}
	source := sourceField(p.IPv6).All()
	learn := openflow.Learn{
		Table: affinityPin.ID, Priority: 100, Cookie: r.cookie(""), DeleteLearned: true, Limit: maxPinned,
		IdleTimeout: uint16(min(v.AffinitySeconds, 0xffff)),
		Specs: []openflow.LearnSpec{
			openflow.LearnMatchValue(ipType(p)), openflow.LearnMatchField(source, source),
			openflow.LearnMatchValue(here),
			openflow.LearnLoadField(regEndpoint.All(), regEndpoint.All()),
		},
	}
	r.on(affinityLearn, 100, ipType(p), here).do(learn, openflow.Resubmit(affinity.ID)).end()
}
