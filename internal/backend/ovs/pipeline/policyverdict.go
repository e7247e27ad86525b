// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/openflow"
)

// Verdict is what policies decide of a connection in one direction.
type Verdict struct {
	Direction intent.Direction
	Tier      intent.Tier   // 0 if the Port is closed
	Action    intent.Action // Pass leads on to another Verdict
	// Policies has the one with the rule that decides, or those of which no rule allows the
	// connection, sorted; none if the Port is closed.
	Policies []intent.PolicyRef
	Rule     int    // the rule's number; 0 if no rule decides
	RuleID   string // the rule's ID
	// Port is the ID of the Port that the flow is for; empty: all that the rule is for.
	Port string
	// Closed says why the Port is closed, or closed to such a packet whatever its policies are;
	// empty: it is not.
	Closed string
}

// String is such as "denied by ClusterNetworkPolicy guard, rule 2".
func (v Verdict) String() string {
	switch {
	case v.Closed != "":
		return v.Closed
	case v.Rule == 0:
		return evaluate.NoneAllows(v.Policies)
	}
	how := map[intent.Action]string{intent.Allow: "allowed", intent.Deny: "denied", intent.Pass: "passed on"}[v.Action]
	return fmt.Sprintf("%s by %s, rule %d", how, v.Policies[0], v.Rule)
}

// verdictCookie is that of flows that decide so.
func (r *rules) verdictCookie(v Verdict) uint64 {
	text := v.String()
	c := cookie(policyRuleNumber, r.owner, fmt.Sprint(text, "\x00", v.RuleID, "\x00", v.Direction, " ", v.Tier))
	m := Meaning{Feature: policyRuleName, Owner: r.owner, Verdict: &v}
	if v.Action == intent.Deny {
		m.Reason = text
	}
	r.meanings = append(r.meanings, meant{c, m})
	return c
}

// decide adds the flow that decides, and leads what it does not deny to table next.
func (w flow) decide(v Verdict, next Table) {
	c := w.rules.verdictCookie(v)
	if v.Action == intent.Deny {
		if v.Closed != "" {
			w = w.set(regSubject.Value(uint64(w.rules.numbers.Port(v.Port))))
		}
		w.deny(c)
		return
	}
	w.f.Cookie, w.f.Goto = c, next.ID
	w.rules.flows = append(w.rules.flows, w.f)
}

// PolicyCookie is what the cookies of all flows have that decide about a packet, and the bits
// of it that count.
func PolicyCookie() (cookie, mask uint64) {
	return CookieBase | policyRuleNumber<<40, CookieMask | 0xff<<40
}

const (
	policyRuleNumber = 23
	policyRuleName   = "policy-rule"
)

// policyRuleFeature decides what rules fit: the verdicts of conjunctions, the flows
// of which others satisfy.
var policyRuleFeature = &feature{
	number: policyRuleNumber,
	name:   policyRuleName,
	tables: []Table{
		egressGroup, egressAdmin, egressAdminLater, egressPolicy,
		ingressGroup, ingressAdmin, ingressAdminLater, ingressPolicy,
	},
	needed: (*rules).policed,
	local: func(r *rules) {
		for _, t := range []policyTables{egressTables, ingressTables} {
			r.on(t.group, notHere, without(inGroup)).goTo(t.admin)
			r.on(t.admin, notHere, without(inAdmin)).goTo(t.adminLater)
			r.on(t.adminLater, notHere, without(inAdminLater)).goTo(t.policy)
			r.on(t.policy, notHere, without(inPolicy)).goTo(t.end)
			// What no rule fits; the Ports that it is not for have flows of their own.
			r.on(t.admin, 0).goTo(t.adminLater)
			r.on(t.adminLater, 0).goTo(t.policy)
			r.on(t.policy, 0).goTo(t.end)
		}
		r.on(egressPolicy, ownNodePasses, regSubject.Masked(isolatedBit, isolatedBit), toOwnNode).goTo(egressTables.end)
	},
	rule: func(r *rules, o intent.Rule) {
		j, problem := judge(r.state, o)
		switch {
		case problem != "":
			r.problem("%s: the Ports that it is for are closed", problem)
		case j.clauses > 1 && !fitsNothing(o):
			r.on(j.table, j.priority, openflow.ConjID(j.id)).decide(j.verdict(""), j.next)
		}
	},
}

// without matches Ports that have no rules in a table.
func without(bit uint64) openflow.FieldValue { return regSubject.Masked(0, bit) }
