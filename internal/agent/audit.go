// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/openflow"
)

// port is the intent of an attachment of this node.
func (a *Agent) port(at attachment.Attachment) intent.Port {
	p := translate.Port(at, a.opts.NodeName)
	p.Audited = a.audited(p.Namespace)
	return p
}

// audited says whether what policies deny of a namespace's Ports is logged.
func (a *Agent) audited(namespace string) bool {
	if !a.policed() {
		return false
	}
	if a.cfg.Policy.AuditDenied {
		return true
	}
	n := a.view.State().Namespaces[namespace]
	return n != nil && n.Annotations[v1alpha1.AnnotationAuditDenied] == "true"
}

// refreshAudited follows the annotations of namespaces.
func (a *Agent) refreshAudited(tx *intent.Tx) {
	for p := range a.intent.State().Ports().All() {
		if want := a.audited(p.Namespace); p.OFPort != 0 && p.Audited != want {
			p.Audited = want
			tx.SetPort(p)
		}
	}
}

// maxDenied is how many packets may wait to be logged.
const maxDenied = 256

// noteDenied takes a packet that a policy has denied. The switch sends no more of them than each Port's meter lets pass; what is
// too much even so is left out.
func (a *Agent) noteDenied(m *openflow.PacketIn2) {
	select {
	case a.denied <- m:
	default:
	}
}

// logDenied logs these packets until ctx ends.
func (a *Agent) logDenied(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-a.denied:
			a.audit(m)
		}
	}
}

// audit logs a packet that a policy has denied.
func (a *Agent) audit(m *openflow.PacketIn2) {
	cookie, ok := compile.Denied(m)
	if !ok {
		return
	}
	meaning, ok := a.flows.explain(cookie)
	if !ok || meaning.Verdict == nil {
		return // by a policy that is gone
	}
	d, ok := parseDenied(m.Packet)
	if !ok {
		return
	}
	s, v := a.intent.State(), meaning.Verdict
	zone := zoneOf(m)
	attributes := []any{
		"direction", directionNames[v.Direction], "reason", meaning.Reason, "protocol", d.protocol, "source", endText(d.source),
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
	a.log.Info("denied by policy", attributes...)
}
