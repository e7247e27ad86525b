// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
)

var (
	web   = intent.Port{ID: "web", Namespace: "shop", Pod: "web", Interface: "eth0", UID: "w", Node: "n1"}
	extra = intent.Port{ID: "extra", Namespace: "shop", Pod: "web", Interface: "net1", UID: "w", Node: "n1"}
	guest = intent.Port{ID: "vm", Namespace: "shop", Pod: "vm", Node: "n1"}

	client = netip.MustParseAddr("10.244.2.7")
	server = netip.MustParseAddr("10.244.1.5")
	node   = netip.MustParseAddr("192.0.2.1")
)

const tcp, icmp = 6, 1

func policy(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: name}
}

func clusterPolicy(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: name}
}

func group(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "shop", Name: name}
}

// rule is an ingress rule for all peers, changed by what follows.
func rule(t intent.Tier, p intent.PolicyRef, number int, a intent.Action, change ...func(*intent.Rule)) intent.Rule {
	r := intent.Rule{Policy: p, Number: number, Direction: intent.Ingress, Tier: t, Action: a, AnyPeer: true}
	for _, c := range change {
		c(&r)
	}
	r.ID = p.String() + "/" + string('0'+rune(r.Direction)) + "/" + string('0'+rune(number))
	return r
}

func priority(p uint16) func(*intent.Rule) { return func(r *intent.Rule) { r.Priority = p } }
func out(r *intent.Rule)                   { r.Direction = intent.Egress }

func peers(groups ...string) func(*intent.Rule) {
	return func(r *intent.Rule) { r.AnyPeer, r.Groups = false, groups }
}

func blocks(list ...string) func(*intent.Rule) {
	return func(r *intent.Rule) {
		r.AnyPeer = false
		for _, b := range list {
			r.Blocks = append(r.Blocks, netip.MustParsePrefix(b))
		}
	}
}

func ports(list ...intent.PortRange) func(*intent.Rule) {
	return func(r *intent.Rule) { r.Ports = list }
}

func isolated(p ...intent.PolicyRef) func(*intent.Subject) {
	return func(s *intent.Subject) { s.IngressIsolation = p }
}

func isolatedOut(p ...intent.PolicyRef) func(*intent.Subject) {
	return func(s *intent.Subject) { s.EgressIsolation = p }
}

func member(p ...intent.PolicyRef) func(*intent.Subject) {
	return func(s *intent.Subject) { s.SecurityGroups = p }
}

func TestVerdicts(t *testing.T) {
	np, other, cnp, sg := policy("web"), policy("other"), clusterPolicy("c"), group("g")
	toWeb := Connection{Space: intent.DefaultRouterName, Source: client, Destination: server, Protocol: tcp, Port: 80}
	toNode := Connection{Space: intent.DefaultRouterName, Source: server, Destination: node, Protocol: tcp, Port: 80}
	fromNode := Connection{Space: intent.DefaultRouterName, Source: node, Destination: server, Protocol: tcp, Port: 80, Host: true}
	both := func(first, last uint16) intent.PortRange {
		return intent.PortRange{Protocol: tcp, First: first, Last: last}
	}
	for name, tc := range map[string]struct {
		port    intent.Port
		subject []func(*intent.Subject) // nil: none is known
		rules   []intent.Rule
		peers   []intent.Peer
		c       Connection
		egress  bool
		off     bool
		want    string // "+" allowed, "-" denied
	}{
		"off":                       {port: web, c: toWeb, off: true, want: "+ policies are not enforced"},
		"not known":                 {port: web, c: toWeb, want: "- policies of the Port are not known yet"},
		"not known, from the node":  {port: web, c: fromNode, want: "+ it is the Port's own node"},
		"another interface, closed": {port: extra, c: toWeb, want: "- policies of the Port are not known yet"},
		"closed": {
			port: web, c: toWeb, subject: []func(*intent.Subject){func(s *intent.Subject) { s.Closed = "SecurityGroup x does not exist" }},
			want: "- SecurityGroup x does not exist",
		},
		"nothing": {port: web, c: toWeb, subject: []func(*intent.Subject){isolated()}, want: "+ no policy forbids it"},
		"isolated": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(other, np)},
			want: "- no rule of NetworkPolicy shop/other, shop/web allows it",
		},
		"isolated in the other direction": {port: web, c: toWeb, subject: []func(*intent.Subject){isolatedOut(np)}, want: "+ no policy forbids it"},
		"isolated, another interface":     {port: extra, c: toWeb, subject: []func(*intent.Subject){isolated(np)}, want: "+ no policy forbids it"},
		"isolated guest": {
			port: guest, c: toWeb, subject: []func(*intent.Subject){isolated(np)}, want: "- no rule of NetworkPolicy shop/web allows it",
		},
		"allowed by a rule": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 2, intent.Allow)}, want: "+ NetworkPolicy shop/web, rule 2",
		},
		"a rule of the other direction": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 2, intent.Allow, out)}, want: "- no rule of NetworkPolicy shop/web allows it",
		},
		"a group": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, peers("clients"))},
			peers: []intent.Peer{{Space: intent.DefaultRouterName, Address: client, Groups: []string{"clients"}}},
			want:  "+ NetworkPolicy shop/web, rule 1",
		},
		"a group of another space": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, peers("clients"))},
			peers: []intent.Peer{{Space: "red", Address: client, Groups: []string{"clients"}}},
			want:  "- no rule of NetworkPolicy shop/web allows it",
		},
		"a block": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, blocks("10.244.2.0/24"))}, want: "+ NetworkPolicy shop/web, rule 1",
		},
		"no peers": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, blocks())}, want: "- no rule of NetworkPolicy shop/web allows it",
		},
		"the last port": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, ports(both(70, 80)))}, want: "+ NetworkPolicy shop/web, rule 1",
		},
		"the port behind": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.NetworkPolicyTier, np, 1, intent.Allow, ports(both(70, 79)))},
			want:  "- no rule of NetworkPolicy shop/web allows it",
		},
		"the admin first": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{
				rule(intent.NetworkPolicyTier, np, 1, intent.Allow), rule(intent.AdminTier, cnp, 1, intent.Deny, priority(10)),
			},
			want: "- ClusterNetworkPolicy c, rule 1",
		},
		"an admin's Allow ends it": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.AdminTier, cnp, 1, intent.Allow)}, want: "+ ClusterNetworkPolicy c, rule 1",
		},
		"an admin's Pass leads on": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.AdminTier, cnp, 1, intent.Pass), rule(intent.AdminTier, cnp, 2, intent.Deny)},
			want:  "- no rule of NetworkPolicy shop/web allows it",
		},
		"the lower priority": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated()},
			rules: []intent.Rule{
				rule(intent.AdminTier, cnp, 1, intent.Deny, priority(10)), rule(intent.AdminTier, clusterPolicy("d"), 5, intent.Allow, priority(9)),
			},
			want: "+ ClusterNetworkPolicy d, rule 5",
		},
		"the same priority": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated()},
			rules: []intent.Rule{rule(intent.AdminTier, cnp, 1, intent.Allow), rule(intent.AdminTier, clusterPolicy("d"), 1, intent.Deny)},
			want:  "- ClusterNetworkPolicy d, rule 1",
		},
		"the same priority, Pass": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.AdminTier, cnp, 1, intent.Allow), rule(intent.AdminTier, clusterPolicy("d"), 1, intent.Pass)},
			want:  "- no rule of NetworkPolicy shop/web allows it",
		},
		"a rule that is not known": {
			port: web, c: toWeb, subject: []func(*intent.Subject){func(s *intent.Subject) { s.Rules = []string{"gone"} }},
			want: "- policies of the Port are not known yet",
		},
		"the baseline": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated()},
			rules: []intent.Rule{rule(intent.BaselineTier, cnp, 3, intent.Deny)}, want: "- ClusterNetworkPolicy c, rule 3",
		},
		"no baseline for isolated Ports": {
			port: web, c: toWeb, subject: []func(*intent.Subject){isolated(np)},
			rules: []intent.Rule{rule(intent.BaselineTier, cnp, 3, intent.Deny), rule(intent.NetworkPolicyTier, np, 1, intent.Allow)},
			want:  "+ NetworkPolicy shop/web, rule 1",
		},
		"a group of Ports": {
			port: extra, c: toWeb, subject: []func(*intent.Subject){member(sg)}, want: "- no rule of SecurityGroup shop/g allows it",
		},
		"a group allows, a policy does not": {
			port: web, c: toWeb, subject: []func(*intent.Subject){member(sg), isolated(np)},
			rules: []intent.Rule{rule(intent.SecurityGroupTier, sg, 1, intent.Allow)}, want: "- no rule of NetworkPolicy shop/web allows it",
		},
		"ICMP of a type": {
			port: web, subject: []func(*intent.Subject){member(sg)},
			c: Connection{Space: intent.DefaultRouterName, Source: client, Destination: server, Protocol: icmp, Port: ICMP(8, 0)},
			rules: []intent.Rule{rule(intent.SecurityGroupTier, sg, 1, intent.Allow,
				ports(intent.PortRange{Protocol: icmp, First: 8, Last: intent.AnyICMPCode, ICMP: true}))},
			want: "+ no policy forbids it",
		},
		"ICMP of another code": {
			port: web, subject: []func(*intent.Subject){member(sg)},
			c: Connection{Space: intent.DefaultRouterName, Source: client, Destination: server, Protocol: icmp, Port: ICMP(3, 1)},
			rules: []intent.Rule{rule(intent.SecurityGroupTier, sg, 1, intent.Allow,
				ports(intent.PortRange{Protocol: icmp, First: 3, Last: 4, ICMP: true}))},
			want: "- no rule of SecurityGroup shop/g allows it",
		},
		"out to the own node": {
			port: web, c: toNode, egress: true, subject: []func(*intent.Subject){isolatedOut(np)}, want: "+ it is the Port's own node",
		},
		"out to the own node, denied by the admin": {
			port: web, c: toNode, egress: true, subject: []func(*intent.Subject){isolatedOut(np)},
			rules: []intent.Rule{rule(intent.AdminTier, cnp, 1, intent.Deny, out)}, want: "- ClusterNetworkPolicy c, rule 1",
		},
		"out to the own node, denied by the baseline": {
			port: web, c: toNode, egress: true, subject: []func(*intent.Subject){isolatedOut()},
			rules: []intent.Rule{rule(intent.BaselineTier, cnp, 1, intent.Deny, out)}, want: "- ClusterNetworkPolicy c, rule 1",
		},
		"to itself": {
			port: web, c: Connection{Space: intent.DefaultRouterName, Source: server, Destination: server, Protocol: tcp, Port: 80},
			subject: []func(*intent.Subject){isolated(np)}, want: "+ a Port may always reach itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := intent.NewStore()
			s, err := store.Update(func(tx *intent.Tx) error {
				local := intent.Local{Node: "n1", PolicyMode: intent.EnforcedPolicies}
				if tc.off {
					local.PolicyMode = intent.UnenforcedPolicies
				}
				o := intent.Objects{Local: local, Nodes: []intent.Node{{Name: "n1", Addresses: []netip.Addr{node}}}, Rules: tc.rules, Peers: tc.peers}
				if tc.subject != nil {
					subject := intent.Subject{Key: tc.port.SubjectKey()}
					for _, r := range tc.rules {
						subject.Rules = append(subject.Rules, r.ID)
					}
					for _, change := range tc.subject {
						change(&subject)
					}
					o.Subjects = []intent.Subject{subject}
				}
				tx.Replace(o)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			verdict := Ingress
			if tc.egress {
				verdict = Egress
			}
			v := verdict(s, tc.port, tc.c)
			got := map[bool]string{true: "+ ", false: "- "}[v.Allowed] + v.Reason
			if got != tc.want {
				t.Errorf("verdict %q, want %q", got, tc.want)
			}
		})
	}
}
