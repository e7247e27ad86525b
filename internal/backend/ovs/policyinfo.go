// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// How people name directions, tiers and actions.
var (
	directionNames = map[intent.Direction]string{intent.Ingress: "ingress", intent.Egress: "egress"}
	tierNames      = map[intent.Tier]string{
		intent.SecurityGroupTier: "SecurityGroup", intent.AdminTier: "Admin", intent.NetworkPolicyTier: "NetworkPolicy",
		intent.BaselineTier: "Baseline",
	}
	decisionNames = map[intent.Action]string{intent.Allow: "allowed", intent.Deny: "denied", intent.Pass: "passed"}
)

func tracedPolicy(v pipeline.Verdict) agentapi.TracedPolicy {
	return agentapi.TracedPolicy{
		Direction: directionNames[v.Direction], Tier: tierNames[v.Tier], Decision: decisionNames[v.Action],
		Rule:     v.Rule,
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

// policyCounters reads the counters of the flows that decide.
type policyCounters struct {
	flows *flows
	// dump asks the switch for flows with their counters.
	dump func(ctx context.Context, r *openflow.FlowDescRequest) ([]openflow.FlowDesc, error)
}

func (p *policyCounters) read(ctx context.Context) ([]agentapi.PolicyStat, error) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	cookie, mask := pipeline.PolicyCookie()
	descs, err := p.dump(ctx, &openflow.FlowDescRequest{Table: openflow.TableAll, Cookie: cookie, CookieMask: mask})
	if err != nil {
		return nil, err
	}
	type counters struct{ packets, bytes uint64 }
	byCookie := map[uint64]counters{}
	for _, d := range descs {
		c := byCookie[d.Flow.Cookie]
		byCookie[d.Flow.Cookie] = counters{c.packets + d.Stats.Packets, c.bytes + d.Stats.Bytes}
	}
	stats := []agentapi.PolicyStat{}
	for cookie, c := range byCookie {
		meaning, ok := p.flows.explain(cookie)
		if !ok || meaning.Verdict == nil {
			continue
		}
		v := meaning.Verdict
		stats = append(stats, agentapi.PolicyStat{
			Policies: append([]intent.PolicyRef{}, v.Policies...), Rule: v.Rule, Direction: directionNames[v.Direction],
			Tier:     tierNames[v.Tier],
			Decision: decisionNames[v.Action], Packets: c.packets, Bytes: c.bytes,
		})
	}
	return agentapi.SumPolicyStats(stats), nil
}
