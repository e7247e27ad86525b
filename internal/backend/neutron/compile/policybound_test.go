// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// ruleOf is a rule of a NetworkPolicy, namespace/name, that lets in from so many blocks at so many
// ports.
func ruleOf(policy string, number, blocks, ports int) intent.Rule {
	namespace, name, _ := strings.Cut(policy, "/")
	r := intent.Rule{
		ID:     fmt.Sprintf("NetworkPolicy/%s/ingress/%d", policy, number),
		Policy: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: namespace, Name: name},
		Number: number, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow,
	}
	for i := range blocks {
		r.Blocks = append(r.Blocks, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 32))
	}
	for i := range ports {
		at := uint16(2*i + 1)
		r.Ports = append(r.Ports, intent.PortRange{Protocol: 6, First: at, Last: at})
	}
	return r
}

// isolated has a pod in each namespace that the rules of all of its policies are for.
func isolated(rules ...intent.Rule) *intent.State {
	o := intent.Objects{
		Local:   intent.Local{PolicyMode: intent.EnforcedPolicies},
		Routers: []intent.Router{{Name: "default", ID: 1}}, Networks: []intent.Network{{Name: "default", Router: "default"}},
		Rules: rules,
	}
	node := intenttest.Node("n1", 1)
	node.Subnets = []intent.Subnet{{Network: "default", Prefix: prefix("10.1.0.0/24"), Gateway: addr("10.1.0.1")}}
	o.Nodes = []intent.Node{node}
	of := map[string]int{}
	for _, r := range rules {
		at, there := of[r.Policy.Namespace]
		if !there {
			at = len(o.Ports)
			of[r.Policy.Namespace] = at
			p := intenttest.Port(r.Policy.Namespace, "web", "default", "n1", fmt.Sprint("10.1.0.", at+2))
			p.Interface, p.UID = "eth0", "uid-"+r.Policy.Namespace
			o.Ports, o.Subjects = append(o.Ports, p), append(o.Subjects, intent.Subject{Key: p.SubjectKey()})
		}
		o.Subjects[at].Rules = append(o.Subjects[at].Rules, r.ID)
		o.Subjects[at].IngressIsolation = append(o.Subjects[at].IngressIsolation, r.Policy)
	}
	return intenttest.State(o)
}

// A rule of too many blocks times ports lets nothing in, and says so; the others of its
// policy and those of other namespaces are as they are without it.
func TestTooManyRules(t *testing.T) {
	const cannot = "name fewer blocks and ports, except fewer, or use ranges of ports"
	for _, c := range []struct {
		name     string
		rules    []intent.Rule
		want     map[string]int
		problems []resource.Problem
	}{
		{
			"one of a policy",
			[]intent.Rule{ruleOf("shop/web", 1, 400, 300), ruleOf("shop/web", 2, 3, 2), ruleOf("lab/web", 1, 10, 10)},
			map[string]int{"NetworkPolicy shop/web": 6, "NetworkPolicy lab/web": 100},
			[]resource.Problem{{Object: "NetworkPolicy shop/web", Reason: "TooManyRules", Message: "rule ingress/1 takes 120000 rules of Neutron, one for each block and selector at each port, and a policy may " +
				"have 10000 together: the rule allows nothing; " + cannot}},
		},
		{
			"as many as may be, and one more",
			[]intent.Rule{ruleOf("shop/web", 1, 100, 100), ruleOf("shop/web", 2, 1, 1)},
			map[string]int{"NetworkPolicy shop/web": 10_000},
			[]resource.Problem{{Object: "NetworkPolicy shop/web", Reason: "TooManyRules", Message: "rule ingress/2 takes 1 rules of Neutron, one for each block and selector at each port, and a policy may have " +
				"10000 together: the rule allows nothing; " + cannot}},
		},
		{
			"many policies of a namespace",
			[]intent.Rule{ruleOf("shop/a", 1, 90, 100), ruleOf("shop/b", 1, 90, 100), ruleOf("shop/c", 1, 90, 100), ruleOf("lab/web", 1, 90, 100)},
			map[string]int{"NetworkPolicy shop/a": 9000, "NetworkPolicy shop/b": 9000, "NetworkPolicy lab/web": 9000},
			[]resource.Problem{{Object: "NetworkPolicy shop/c", Reason: "TooManyRules", Message: "rule ingress/1 takes 9000 rules of Neutron, one for each block and selector at each port, and all policies of " +
				"namespace shop may have 20000 together: the rule allows nothing; " + cannot}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := Compile(isolated(c.rules...), Options{})
			made := map[string]int{}
			for _, r := range set.All(resource.SecurityGroupRule) {
				if strings.HasPrefix(r.Object, "NetworkPolicy ") {
					made[r.Object]++
				}
			}
			if diff := cmp.Diff(c.want, made); diff != "" {
				t.Errorf("rules of policies (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.problems, set.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
