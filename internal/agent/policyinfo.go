// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"slices"

	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policed says whether policies are enforced.
func (a *Agent) policed() bool { return a.cfg.Policy.Mode == config.EnforcedPolicies }

// How people name directions, tiers and actions.
var (
	directionNames = map[intent.Direction]string{intent.Ingress: "ingress", intent.Egress: "egress"}
	tierNames      = map[intent.Tier]string{
		intent.SecurityGroupTier: "SecurityGroup", intent.AdminTier: "Admin", intent.NetworkPolicyTier: "NetworkPolicy",
		intent.BaselineTier: "Baseline",
	}
	decisionNames = map[intent.Action]string{intent.Allow: "allowed", intent.Deny: "denied", intent.Pass: "passed"}
)

func tracedPolicy(v compile.Verdict) TracedPolicy {
	return TracedPolicy{
		Direction: directionNames[v.Direction], Tier: tierNames[v.Tier], Decision: decisionNames[v.Action], Rule: v.Rule,
		Policies: policyNames(v.Policies), Text: v.String(),
	}
}

func policyNames(refs []intent.PolicyRef) []string {
	var names []string
	for _, p := range refs {
		names = append(names, p.String())
	}
	return names
}

// PolicyStat is an element of the answer to GET /v1/policystats: what a rule has decided on this node, or that no rule of some
// policies has allowed.
type PolicyStat struct {
	// Policies has the one of the rule, or those of which no rule allows the packets; none: Ports are closed.
	Policies []intent.PolicyRef `json:"policies"`
	// Rule is its number in the direction's list, from 1; 0: no rule.
	Rule      int    `json:"rule"`
	Direction string `json:"direction"`
	Tier      string `json:"tier,omitempty"`
	// Decision is allowed, denied or passed.
	Decision string `json:"decision"`
	// Packets and Bytes of the direction in which connections began, since the node's Open vSwitch started or the rule was last written.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`

	others bool // the sum of what has no metrics of its own
}

func (s PolicyStat) compare(o PolicyStat) int {
	return cmp.Or(slices.CompareFunc(s.Policies, o.Policies, intent.PolicyRef.Compare), cmp.Compare(s.Direction, o.Direction),
		cmp.Compare(s.Rule, o.Rule), cmp.Compare(s.Decision, o.Decision), cmp.Compare(s.Tier, o.Tier))
}

// policyStats reads the counters of the flows that decide.
func (a *Agent) policyStats(ctx context.Context) ([]PolicyStat, error) {
	if !a.policed() {
		return []PolicyStat{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	conn, err := a.sw.Conn(ctx)
	if err != nil {
		return nil, err
	}
	cookie, mask := compile.PolicyCookie()
	descs, err := conn.FlowsOf(ctx, &openflow.FlowDescRequest{Table: openflow.TableAll, Cookie: cookie, CookieMask: mask})
	if err != nil {
		return nil, err
	}
	type counters struct{ packets, bytes uint64 }
	byCookie := map[uint64]counters{}
	for _, d := range descs {
		c := byCookie[d.Flow.Cookie]
		byCookie[d.Flow.Cookie] = counters{c.packets + d.Stats.Packets, c.bytes + d.Stats.Bytes}
	}
	stats := []PolicyStat{}
	for cookie, c := range byCookie {
		meaning, ok := a.flows.explain(cookie)
		if !ok || meaning.Verdict == nil {
			continue
		}
		v := meaning.Verdict
		stats = append(stats, PolicyStat{
			Policies: append([]intent.PolicyRef{}, v.Policies...), Rule: v.Rule, Direction: directionNames[v.Direction], Tier: tierNames[v.Tier],
			Decision: decisionNames[v.Action], Packets: c.packets, Bytes: c.bytes,
		})
	}
	return SumPolicyStats(stats), nil
}

// SumPolicyStats adds up what counts the same, and sorts it.
func SumPolicyStats(stats []PolicyStat) []PolicyStat {
	slices.SortFunc(stats, PolicyStat.compare)
	summed := stats[:0]
	for _, s := range stats {
		if n := len(summed); n > 0 && summed[n-1].compare(s) == 0 {
			summed[n-1].Packets += s.Packets
			summed[n-1].Bytes += s.Bytes
			continue
		}
		summed = append(summed, s)
	}
	return summed
}
