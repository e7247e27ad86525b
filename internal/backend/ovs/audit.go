// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"

	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// auditLog writes a line for each packet that a policy has denied and that its meter lets pass.
type auditLog struct {
	log    *slog.Logger
	intent *intent.Store
	flows  *flows
}

// denied logs a packet that a policy has denied.
func (l *auditLog) denied(_ context.Context, m *openflow.PacketIn2) {
	cookie, ok := pipeline.Denied(m)
	if !ok {
		return
	}
	meaning, ok := l.flows.explain(cookie)
	if !ok || meaning.Verdict == nil {
		return // by a policy that is gone
	}
	d, ok := parseDenied(m.Packet)
	if !ok {
		return
	}
	s, v := l.intent.State(), meaning.Verdict
	zone := zoneOf(m)
	attributes := []any{
		"direction", directionNames[v.Direction], "reason", meaning.Reason, "protocol", d.protocol, "source",
		endText(d.source),
		"destination", endText(d.destination),
	}
	if name := nameOf(s, zone, d.source.Addr()); name != "" {
		attributes = append(attributes, "from", name)
	}
	if name := nameOf(s, zone, d.destination.Addr()); name != "" {
		attributes = append(attributes, "to", name)
	}
	if names := policyNames(v.Policies); len(names) > 0 {
		attributes = append(attributes, "policies", names)
	}
	if v.Rule > 0 {
		attributes = append(attributes, "rule", v.Rule)
	}
	l.log.Info("denied by policy", attributes...)
}
