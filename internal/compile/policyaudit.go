// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policyAuditFeature tells the agent of the packets of some Ports that policies deny, as many a second as each Port's meter lets
// pass.
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
		r.meters = append(r.meters, openflow.Meter{
			ID: p.OFPort, Flags: openflow.MeterPktps | openflow.MeterBurst | openflow.MeterCount,
			Bands: []openflow.MeterBand{{Type: openflow.MeterDrop, Rate: auditRate, Burst: auditRate}},
		})
		r.on(policyAudit, 100, isPort(p)).do(openflow.Controller{MaxLen: auditBytes, Userdata: AuditUserdata, Meter: p.OFPort}).end()
	},
}

// Bounds of what the agent is told: packets of a Port in a second, and bytes of a packet, enough for the ports behind the headers of
// IPv6 and a few of its extensions.
const (
	auditRate  = 10
	auditBytes = 128
)

// AuditUserdata is what packets bring along that a policy has denied.
const AuditUserdata = "coelan/denied"

// Denied is the cookie of the flow that has denied a packet, of which the agent was told.
func Denied(p *openflow.PacketIn2) (cookie uint64, ok bool) {
	if string(p.Userdata) != AuditUserdata {
		return 0, false
	}
	cookie, mask := p.Metadata.Get(openflow.XReg(2).All())
	return cookie, mask != 0
}
