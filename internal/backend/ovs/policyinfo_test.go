// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"fmt"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
)

func stat(name string, rule int, packets uint64) agentapi.PolicyStat {
	return agentapi.PolicyStat{
		Policies: []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "lab", Name: name}}, Rule: rule, Direction: "ingress",
		Decision: "allowed", Packets: packets, Bytes: 100 * packets,
	}
}

func TestStatisticsAreSummed(t *testing.T) {
	got := agentapi.SumPolicyStats([]agentapi.PolicyStat{stat("b", 1, 1), stat("a", 2, 2), stat("b", 1, 3), stat("a", 1, 4)})
	want := []agentapi.PolicyStat{stat("a", 1, 4), stat("a", 2, 2), stat("b", 1, 4)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// However many rules there are, there are so many metrics; and a rule that had one keeps it.
func TestMetricsOfRulesAreBounded(t *testing.T) {
	c := &policyCollector{}
	first := c.bounded([]agentapi.PolicyStat{stat("z", 1, 5)})
	if len(first) != 1 {
		t.Fatalf("%d series, want 1", len(first))
	}
	var all []agentapi.PolicyStat
	for i := range maxRuleSeries + 10 {
		all = append(all, stat(fmt.Sprintf("p%05d", i), 1, 1))
	}
	got := c.bounded(append(all, stat("z", 1, 6)))
	if len(got) != maxRuleSeries+1 {
		t.Errorf("%d series, want %d and one of all others", len(got), maxRuleSeries)
	}
	kept, others := false, uint64(0)
	for _, s := range got {
		switch {
		case s.others:
			others += s.Packets
		case s.Policies[0].Name == "z":
			kept = true
		}
	}
	if !kept || others != 11 {
		t.Errorf("kept: %v; others have %d packets, want 11", kept, others)
	}
}

func TestReasonOfADenial(t *testing.T) {
	steps := []agentapi.TraceStep{
		{Table: 92, Feature: "policy-rule", Owner: "port/a", Reason: "no rule allows it"},
		{Table: 99, Feature: "policy-audit", Owner: "local"}, {Table: 94, Feature: "policy", Owner: "local"},
	}
	if got := dropReason(steps); got != "no rule allows it" {
		t.Errorf("reason %q", got)
	}
	if got := dropReason(steps[1:]); got != "the flow of policy for local does not send it on" {
		t.Errorf("without a reason: %q", got)
	}
}
