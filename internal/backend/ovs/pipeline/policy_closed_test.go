// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// Whatever is not understood of a Port's policies closes it, in both directions, and is told; other
// Ports are not concerned.
func TestClosedPorts(t *testing.T) {
	policy := intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "p"}
	good := intent.Rule{ID: "r", Policy: policy, Number: 1, Direction: intent.Ingress, Tier: intent.AdminTier, Action: intent.Deny, AnyPeer: true}
	with := func(change func(*intent.Rule)) []intent.Rule {
		r := good
		change(&r)
		return []intent.Rule{r}
	}
	var crowd []intent.Rule // of one Slot, which has too few places
	for _, id := range sharedRuleSlot() {
		r := good
		r.ID = id
		crowd = append(crowd, r)
	}
	for name, tc := range map[string]struct {
		rules   []intent.Rule
		subject *intent.Subject
		want    string // empty: not closed
		told    bool
	}{
		"all is well":       {[]intent.Rule{good}, &intent.Subject{Rules: []string{"r"}}, "", false},
		"a shared slot":     {crowd, &intent.Subject{Rules: []string{crowd[0].ID, crowd[1].ID}}, "", false},
		"no subject":        {nil, nil, "policies of the Port are not known yet", false},
		"closed":            {nil, &intent.Subject{Closed: "it is to be closed"}, "it is to be closed", false},
		"unknown rule":      {nil, &intent.Subject{Rules: []string{"r"}}, "policies of the Port are not known yet", true},
		"number too great":  {with(func(r *intent.Rule) { r.Number = 26 }), &intent.Subject{Rules: []string{"r"}}, "ClusterNetworkPolicy p, rule 26, cannot be enforced", true},
		"no number":         {with(func(r *intent.Rule) { r.Number = 0 }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
		"priority":          {with(func(r *intent.Rule) { r.Priority = 1001 }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
		"unknown tier":      {with(func(r *intent.Rule) { r.Tier = 9 }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
		"unknown direction": {with(func(r *intent.Rule) { r.Direction = 0 }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
		"unknown action":    {with(func(r *intent.Rule) { r.Action = 0 }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
		"deny of a group":   {with(func(r *intent.Rule) { r.Tier = intent.SecurityGroupTier }), &intent.Subject{Rules: []string{"r"}}, "cannot be enforced", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := smallWorld()
			o.Rules = tc.rules
			o.Subjects = []intent.Subject{{Key: o.Ports[1].SubjectKey()}}
			if tc.subject != nil {
				s := *tc.subject
				s.Key = o.Ports[0].SubjectKey()
				o.Subjects = append(o.Subjects, s)
			}
			o.Ports = o.Ports[:2]
			c := New()
			flows := flowsOf(c.Compile(inputOf(stateOf(t, o))), c)
			for i, p := range o.Ports {
				in := map[uint8]Meaning{}
				for _, f := range flows["port/"+p.Name()+"#"+p.ID] {
					port, mask := f.Match.Get(openflow.FieldInPort.All())
					out, outMask := f.Match.Get(regOutput)
					if f.Table == egressSubject.ID && mask != 0 && uint32(port) == ofPort(p.ID) || f.Table == ingressSubject.ID && outMask != 0 && uint32(out) == ofPort(p.ID) {
						if len(f.Match.Fields()) == 1 { // all of its packets
							in[f.Table], _ = c.Explain(f.Cookie)
						}
					}
				}
				want := tc.want
				if i == 1 {
					want = ""
				}
				if got := Closed(c.last.State, p.Node)[p.ID]; (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("port %d is closed: %q, want %q", i, got, want)
				}
				for _, table := range []Table{egressSubject, ingressSubject} {
					if m, ok := in[table.ID]; !ok || m.Drops() != (want != "") || !strings.Contains(m.Reason, want) {
						t.Errorf("port %d in %s: %+v, want %q", i, table.Name, m, want)
					}
				}
			}
			if told := len(c.Problems()) > 0; told != tc.told {
				t.Errorf("problems: %v", c.Problems())
			}
		})
	}
}

// Of two rules the one of the lower priority wins, then of the lower number, then the stricter one;
// and none but those of the same rank and action have the same level.
func TestRanks(t *testing.T) {
	for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
		for tier, levels := range map[intent.Tier][]intent.Action{intent.AdminTier: {intent.Deny, intent.Pass, intent.Allow}, intent.BaselineTier: {intent.Deny, intent.Allow}} {
			last := judged{priority: 65535}
			for priority := range uint16(1001) {
				for number := 1; number <= 25; number++ {
					for _, action := range levels {
						j := judged{rule: intent.Rule{Direction: d, Tier: tier, Priority: priority, Number: number, Action: action}}
						if problem := j.stage(tablesOf(d)); problem != "" {
							t.Fatal(problem)
						}
						if later := j.table.ID > last.table.ID; !later && j.priority >= last.priority || j.priority <= groupAllows || j.priority > firstRank+2 {
							t.Fatalf("tier %d, priority %d, rule %d, action %d: %s %d after %s %d", tier, priority, number, action, j.table.Name, j.priority, last.table.Name, last.priority)
						}
						last = j
					}
				}
			}
		}
	}
	pass := judged{rule: intent.Rule{Tier: intent.BaselineTier, Number: 1, Action: intent.Pass}}
	allow := judged{rule: intent.Rule{Tier: intent.BaselineTier, Number: 1, Action: intent.Allow}}
	pass.stage(egressTables)
	allow.stage(egressTables)
	if pass.next != allow.next || pass.priority != allow.priority {
		t.Error("after the baseline there is no tier to pass on to")
	}
}
