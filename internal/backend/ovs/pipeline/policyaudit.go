// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policyAuditFeature tells the agent of the packets of some Ports that policies deny, as many a
// second as each Port's meter lets pass.
var policyAuditFeature = &feature{
	number: 24,
	name:   "policy-audit",
	tables: []Table{policyAudit},
	needed: (*rules).policed,
	local:  func(r *rules) { r.on(policyAudit, 0).end() },
	port: func(r *rules, p intent.Port) {
		if !p.Audited {
			return
		}
		r.on(policyAudit, 100,
			r.isPort(p)).do(openflow.Controller{MaxLen: auditBytes, Userdata: AuditUserdata,
			Meter: r.agentMeter(r.number(p))}).end()
	},
}

// auditBytes is how much of a denied packet the agent is told: enough for the ports behind the
// headers of IPv6 and a few of its extensions.
const auditBytes = 128

// agentMeter has a meter bound how many packets that came in by a port, or that policies keep from
// it, the agent gets in a second. It returns the meter's number, which is the port's.
func (r *rules) agentMeter(port uint32) uint32 {
	if slices.ContainsFunc(r.meters, func(m openflow.Meter) bool { return m.ID == port }) {
		return port
	}
	rate := uint32(auditRate)
	if r.anyNarrow() {
		rate = answerRate
	}
	r.meter(port, rate)
	return port
}

// meter adds a meter that lets so many packets pass in a second, and as many more at once.
func (r *rules) meter(id, rate uint32) {
	r.meters = append(r.meters, openflow.Meter{
		ID: id, Flags: openflow.MeterPktps | openflow.MeterBurst | openflow.MeterCount,
		Bands: []openflow.MeterBand{{Type: openflow.MeterDrop, Rate: rate, Burst: rate}},
	})
}

// Packets of a port in a second: more if some are too big for their way, which have to be answered.
const (
	auditRate  = 10
	answerRate = 50
)

// AuditUserdata is what packets bring along that a policy has denied.
const AuditUserdata = "coelan/denied"

// Denied is the cookie of the flow that has denied a packet, of which the agent was told.
func Denied(p *openflow.PacketIn2) (cookie uint64, ok bool) {
	if string(p.Userdata) != AuditUserdata {
		return 0, false
	}
	cookie, mask := p.Metadata.Get(regDenied.All())
	return cookie, mask != 0
}
