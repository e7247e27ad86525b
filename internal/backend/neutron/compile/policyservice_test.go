// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// egressRules are the rules by prefixes that a Port gets of a rule of a policy, where a Service's
// endpoints are the pods db and db2.
func egressRules(supplemented bool, r intent.Rule) (rules []string) {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "web"}
	r.ID, r.Policy, r.Number, r.Direction = "NetworkPolicy/shop/web/egress/1", ref, 1, intent.Egress
	r.Tier, r.Action = intent.NetworkPolicyTier, intent.Allow
	s := stateOf(func(o *intent.Objects) {
		o.Local.PolicyMode = intent.EnforcedPolicies
		o.Rules = []intent.Rule{r}
		o.ServiceRanges = []intent.ServiceRange{{Prefix: prefix("10.96.0.0/16")}}
		p := intenttest.Port("shop", "web", "default", "n1", "10.244.1.2")
		p.Interface = "eth0"
		o.Ports = []intent.Port{p}
		o.Subjects = []intent.Subject{{Key: p.SubjectKey(), Rules: []string{r.ID}, EgressIsolation: []intent.PolicyRef{ref}}}
		o.Peers = []intent.Peer{
			{Space: "default", Address: addr("10.244.1.3"), Groups: []string{"db", "first"}},
			{Space: "default", Address: addr("10.244.1.4"), Groups: []string{"db", "second"}},
		}
		o.Services = []intent.Service{
			{Namespace: "shop", Name: "db", Router: "default", Ports: []intent.ServicePort{
				{Protocol: intent.TCP, Port: 80, ClusterIP: addr("10.96.0.9"), Endpoints: []intent.ServiceEndpoint{
					{Address: addr("10.244.1.3"), Port: 5432}, {Address: addr("10.244.1.4"), Port: 5432},
				}},
			}},
			{Namespace: "shop", Name: "nobody", Router: "default", Ports: []intent.ServicePort{
				{Protocol: intent.TCP, Port: 80, ClusterIP: addr("10.96.0.10")},
			}},
		}
	})
	set := Compile(s, Options{Supplemented: supplemented})
	for _, rule := range set.All(resource.SecurityGroupRule) {
		if strings.HasPrefix(rule.Key, "Policy/") && !strings.Contains(rule.Key, "Peers/") {
			rules = append(rules, strings.TrimPrefix(rule.Key, "Policy/NetworkPolicy shop/web egress IPv4 "))
		}
	}
	slices.Sort(rules)
	return rules
}

// A rule lets out to a Service if it lets out to all of its endpoints, at their ports, and prefixes
// let out to no ClusterIP.
func TestRulesOfServices(t *testing.T) {
	const served = "tcp 80-80 10.96.0.9/32"
	ports := func(first, last uint16) []intent.PortRange {
		return []intent.PortRange{{Protocol: 6, First: first, Last: last}}
	}
	blocks := func(list ...string) (b []netip.Prefix) {
		for _, text := range list {
			b = append(b, prefix(text))
		}
		return b
	}
	for name, tc := range map[string]struct {
		rule intent.Rule
		want []string
	}{
		"all endpoints":                      {intent.Rule{Groups: []string{"db"}}, []string{served}},
		"by two groups":                      {intent.Rule{Groups: []string{"first", "second"}}, []string{served}},
		"some endpoints":                     {intent.Rule{Groups: []string{"first"}}, nil},
		"the endpoints' port":                {intent.Rule{Groups: []string{"db"}, Ports: ports(5432, 5432)}, []string{served}},
		"the Service's port alone":           {intent.Rule{Groups: []string{"db"}, Ports: ports(80, 80)}, nil},
		"another protocol":                   {intent.Rule{Groups: []string{"db"}, Ports: []intent.PortRange{{Protocol: 17, Last: 0xffff}}}, nil},
		"a block of pods":                    {intent.Rule{Blocks: blocks("10.244.1.0/24")}, []string{"any 10.244.1.0/24", served}},
		"a block of some pods":               {intent.Rule{Blocks: blocks("10.244.1.3/32")}, []string{"any 10.244.1.3/32"}},
		"a block of ClusterIPs":              {intent.Rule{Blocks: blocks("10.96.0.8/30")}, nil},
		"a block with ClusterIPs":            {intent.Rule{Blocks: blocks("10.96.0.0/15")}, []string{"any 10.97.0.0/16"}},
		"a block of everything":              {intent.Rule{Blocks: blocks("0.0.0.0/0")}, []string{"any any", served}},
		"everything":                         {intent.Rule{AnyPeer: true, Ports: ports(5432, 5432)}, []string{served, "tcp 5432-5432 any"}},
		"a group of pods and another's pods": {intent.Rule{Groups: []string{"first"}, Blocks: blocks("10.244.1.4/32")}, []string{"any 10.244.1.4/32", served}},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.DeleteFunc(egressRules(true, tc.rule), func(r string) bool { return strings.Contains(r, "IPv6") })
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, r := range egressRules(false, tc.rule) {
				if r == served {
					t.Error("there is a rule for a Service that nothing balances")
				}
			}
		})
	}
}

// Where OVN balances, pods that are closed reach themselves by Services, and the Router default has
// a default route to a node for each family; else there is none of both.
func TestSupplemented(t *testing.T) {
	for _, supplemented := range []bool{false, true} {
		set := Compile(stateOf(policies), Options{Supplemented: supplemented})
		for _, problem := range dangling(set) {
			t.Error(problem)
		}
		text := dump(set)
		for _, part := range []string{
			"169.254.64.1/32", "fd69:c0e1::1/128", `{"destination":"0.0.0.0/0","nexthop":"10.244.1.254"}`, `{"destination":"::/0","nexthop":"fd00:10:244:1:ffff:ffff:ffff:ffff"}`,
		} {
			if strings.Contains(text, part) != supplemented {
				t.Errorf("supplemented %t: %s is there: %t", supplemented, part, !supplemented)
			}
		}
		closed, _ := set.Get(PortRef("shop/web"))
		open, _ := set.Get(PortRef("shop/app"))
		for _, p := range []struct {
			port resource.Resource
			want bool
		}{{closed, supplemented}, {open, false}} {
			if got := slices.Contains(p.port.Mutable["security_groups"].([]any), any(groupRef(itselfKey))); got != p.want {
				t.Errorf("supplemented %t: %s is in the group: %t", supplemented, p.port.Ref, got)
			}
		}
	}
}
