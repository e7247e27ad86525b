// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
)

// describe writes a View with the addresses that groups have instead of their IDs.
func describe(v View) string {
	var out strings.Builder
	for _, s := range v.Subjects {
		fmt.Fprintf(&out, "%s:", s.Key)
		for _, r := range s.Rules {
			out.WriteString(" " + short(r))
		}
		isolation(&out, "ingress of", s.IngressIsolation)
		isolation(&out, "egress of", s.EgressIsolation)
		isolation(&out, "in", s.SecurityGroups)
		if s.Closed != "" {
			out.WriteString(" closed: " + s.Closed)
		}
		out.WriteString("\n")
	}
	for _, r := range v.Rules {
		fmt.Fprintf(&out, "%s: %s", short(r.ID), map[intent.Action]string{intent.Allow: "allow", intent.Deny: "deny", intent.Pass: "pass"}[r.Action])
		if r.AnyPeer {
			out.WriteString(" any")
		}
		var groups []string
		for _, g := range r.Groups {
			var in []string
			for _, p := range v.Peers {
				if slices.Contains(p.Groups, g) {
					in = append(in, intent.PeerKey(p.Space, p.Address))
				}
			}
			slices.Sort(in)
			groups = append(groups, " ["+strings.ReplaceAll(strings.Join(in, ", "), "default ", "")+"]")
		}
		slices.Sort(groups) // by what they have, not by ID
		out.WriteString(strings.Join(groups, ""))
		for _, b := range r.Blocks {
			out.WriteString(" " + b.String())
		}
		for _, p := range r.Ports {
			fmt.Fprintf(&out, " %d:%d-%d", p.Protocol, p.First, p.Last)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// short is the ID of a rule without the policy's kind and namespace.
func short(id string) string { return strings.Join(strings.Split(id, "/")[2:], "/") }

func isolation(out *strings.Builder, what string, refs []intent.PolicyRef) {
	for _, r := range refs {
		out.WriteString(" (" + what + " " + r.Name + ")")
	}
}

// sel is the selector of labels such as "app=web", or of all if that is empty.
func sel(text string) labels.Selector {
	s, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		panic(err)
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return out
}

func at(addresses ...string) []Place {
	var out []Place
	for _, a := range addresses {
		out = append(out, Place{Space: "default", Address: netip.MustParseAddr(a)})
	}
	return out
}

// shop is a cluster of two namespaces on two nodes.
func shop() *Engine {
	e := NewEngine()
	e.SetNode(Node{Name: "n1", Labels: labels.Set{"zone": "a"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.0.1")}})
	e.SetNode(Node{Name: "n2", Labels: labels.Set{"zone": "b"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}})
	e.SetNamespace(Namespace{Name: "shop", Labels: labels.Set{"team": "red"}})
	e.SetNamespace(Namespace{Name: "bank", Labels: labels.Set{"team": "blue"}})
	e.SetEndpoint(Endpoint{
		Key: "pod/web", Namespace: "shop", Node: "n1", Labels: labels.Set{"app": "web"}, Places: at("10.1.0.2", "fd01::2"),
		NamedPorts: []NamedPort{{"http", 6, 8080}, {"http", 17, 8081}}, SecurityGroups: []string{"shop/front"},
	})
	e.SetEndpoint(Endpoint{
		Key: "pod/web2", Namespace: "shop", Node: "n2", Labels: labels.Set{"app": "web", "canary": "yes"}, Places: at("10.2.0.2"),
		NamedPorts: []NamedPort{{"http", 6, 80}},
	})
	e.SetEndpoint(Endpoint{Key: "pod/db", Namespace: "shop", Node: "n2", Labels: labels.Set{"app": "db"}, Places: append(at("10.2.0.3"),
		Place{Space: "red", Address: netip.MustParseAddr("172.16.0.3")}, Place{Space: "default", Address: netip.MustParseAddr("10.9.0.3"), Secondary: true}),
		SecurityGroups: []string{"shop/front"}})
	e.SetEndpoint(Endpoint{Key: "pod/teller", Namespace: "bank", Node: "n1", Labels: labels.Set{"app": "web"}, Places: at("10.1.0.4")})
	e.SetEndpoint(Endpoint{Key: "pod/host", Namespace: "shop", Node: "n1", Labels: labels.Set{"app": "web"}, HostNetwork: true, Places: at("192.0.2.1")})
	return e
}

// netpol is a NetworkPolicy of shop for ingress to some pods, with one rule.
func netpol(subjects string, r Rule) Policy {
	r.Number, r.Action = 1, intent.Allow
	r.Direction = max(r.Direction, intent.Ingress)
	return Policy{
		Ref: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "p"}, Tier: intent.NetworkPolicyTier,
		Ingress: r.Direction == intent.Ingress, Egress: r.Direction == intent.Egress,
		Subjects: []Selector{{Namespace: "shop", Pods: sel(subjects)}}, Rules: []Rule{r},
	}
}

func cluster(r Rule, subjects ...Selector) Policy {
	r.Number = 1
	r.Direction = max(r.Direction, intent.Ingress)
	return Policy{Ref: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "p"}, Tier: intent.AdminTier, Priority: 5, Subjects: subjects, Rules: []Rule{r}}
}

func TestResolve(t *testing.T) {
	group := Policy{
		Ref: intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "shop", Name: "front"}, Tier: intent.SecurityGroupTier,
		Rules: []Rule{{Direction: intent.Ingress, Number: 1, Action: intent.Allow, AnyPort: true, Peers: []Selector{{SecurityGroup: "shop/front", Family: IPv4}}}},
	}
	all := Selector{Namespaces: sel(""), Pods: sel("")}
	blocks := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	tcp := func(first, last uint16) Port {
		return Port{PortRange: intent.PortRange{Protocol: 6, First: first, Last: last}}
	}
	http := Port{Name: "http", PortRange: intent.PortRange{Protocol: 6}}
	tests := []struct {
		name     string
		policies []Policy
		node     string // n1 if empty
		want     string
	}{
		{"nothing", nil, "", `
pod/teller:
pod/web: closed: SecurityGroup shop/front does not exist
`},
		{"pods of the namespace, both families, and not those of others", []Policy{group, netpol("app=web", Rule{AnyPort: true, Peers: []Selector{{Namespace: "shop", Pods: sel("app=web")}}})}, "", `
pod/teller:
pod/web: p/ingress/1 front/ingress/1 (ingress of p) (in front)
p/ingress/1: allow [10.1.0.2, 10.2.0.2, fd01::2]
front/ingress/1: allow [10.1.0.2, 10.2.0.3, 10.9.0.3, red 172.16.0.3]
`},
		{"a peer in a private Router is known by both addresses", []Policy{group, netpol("app=web", Rule{AnyPort: true, Peers: []Selector{{Namespace: "shop", Pods: sel("app in (db)")}}})}, "n2", `
pod/db: front/ingress/1 (in front)
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow [10.2.0.3, red 172.16.0.3]
front/ingress/1: allow [10.1.0.2, 10.2.0.3, 10.9.0.3, red 172.16.0.3]
`},
		{"namespaces by labels", []Policy{group, netpol("app=web", Rule{AnyPort: true, Peers: []Selector{{Namespaces: sel("team notin (red)"), Pods: sel("")}}})}, "n2", `
pod/db: front/ingress/1 (in front)
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow [10.1.0.4]
front/ingress/1: allow [10.1.0.2, 10.2.0.3, 10.9.0.3, red 172.16.0.3]
`},
		{"pods of namespaces, exists", []Policy{netpol("app=web", Rule{AnyPort: true, Peers: []Selector{{Namespaces: sel("team"), Pods: sel("canary")}}})}, "", `
pod/teller:
pod/web: p/ingress/1 (ingress of p) closed: SecurityGroup shop/front does not exist
p/ingress/1: allow [10.2.0.2]
`},
		{"does not exist, and two peers", []Policy{netpol("app=web", Rule{AnyPort: true, Peers: []Selector{{Namespace: "shop", Pods: sel("app=web,!canary")}, {Namespace: "bank", Pods: sel("")}}})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow [10.1.0.2, fd01::2] [10.1.0.4]
`},
		{"nobody is selected: the rule is there, and fits nobody", []Policy{netpol("canary", Rule{AnyPort: true, Peers: []Selector{{Namespace: "nowhere", Pods: sel("")}}})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow []
`},
		{"no peers, no ports and what is closed: isolated only", []Policy{netpol("canary", Rule{AnyPort: true}), with(netpol("canary", Rule{AnyPeer: true}), "q"),
			with(netpol("canary", Rule{AnyPeer: true, AnyPort: true, Closed: "why"}), "r"), with(netpol("canary", Rule{AnyPort: true, Peers: []Selector{{Namespace: "shop"}}}), "s")}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: (ingress of p) (ingress of q) (ingress of r) (ingress of s)
`},
		{"blocks are made disjoint", []Policy{netpol("canary", Rule{AnyPort: true, Blocks: blocks("10.0.0.0/8", "10.1.0.0/16", "fd00::1/64", "9.0.0.0/8", "10.0.0.0/8")})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow 9.0.0.0/8 10.0.0.0/8 fd00::/64
`},
		{"ports", []Policy{netpol("canary", Rule{AnyPeer: true, Ports: []Port{tcp(90, 99), tcp(80, 80), tcp(80, 80)}})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/ingress/1 (ingress of p)
p/ingress/1: allow any 6:80-80 6:90-99
`},
		{"a named port of the subjects: each has its own number", []Policy{group, netpol("app", Rule{AnyPeer: true, Ports: []Port{http}})}, "", `
pod/teller:
pod/web: p/ingress/1/6-8080 front/ingress/1 (ingress of p) (in front)
p/ingress/1/6-8080: allow any 6:8080-8080
front/ingress/1: allow [10.1.0.2, 10.2.0.3, 10.9.0.3, red 172.16.0.3]
`},
		{"the other node has the other number, and who has no such port no rule", []Policy{group, netpol("app", Rule{AnyPeer: true, Ports: []Port{http, tcp(22, 22)}})}, "n2", `
pod/db: p/ingress/1 front/ingress/1 (ingress of p) (in front)
pod/web2: p/ingress/1 p/ingress/1/6-80 (ingress of p)
p/ingress/1: allow any 6:22-22
p/ingress/1/6-80: allow any 6:80-80
front/ingress/1: allow [10.1.0.2, 10.2.0.3, 10.9.0.3, red 172.16.0.3]
`},
		{"a named port of any protocol", []Policy{cluster(Rule{Action: intent.Deny, AnyPeer: true, Ports: []Port{{Name: "http"}}}, Selector{Namespace: "shop", Pods: sel("app=web")})}, "", `
pod/teller:
pod/web: p/ingress/1/17-8081 p/ingress/1/6-8080 closed: SecurityGroup shop/front does not exist
p/ingress/1/17-8081: deny any 17:8081-8081
p/ingress/1/6-8080: deny any 6:8080-8080
`},
		{"a named port of the peers", []Policy{netpol("canary", Rule{Direction: intent.Egress, Ports: []Port{http, tcp(22, 22)}, Peers: []Selector{{Namespace: "shop", Pods: sel("")}}})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/egress/1 p/egress/1/6-80 p/egress/1/6-8080 (egress of p)
p/egress/1: allow [10.1.0.2, 10.2.0.2, 10.2.0.3, fd01::2, red 172.16.0.3] 6:22-22
p/egress/1/6-80: allow [10.2.0.2] 6:80-80
p/egress/1/6-8080: allow [10.1.0.2, fd01::2] 6:8080-8080
`},
		{"a named port of any peer", []Policy{netpol("canary", Rule{Direction: intent.Egress, Ports: []Port{http}, AnyPeer: true})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/egress/1/6-80 p/egress/1/6-8080 (egress of p)
p/egress/1/6-80: allow [10.2.0.2] 6:80-80
p/egress/1/6-8080: allow [10.1.0.2, fd01::2] 6:8080-8080
`},
		{"a named port and a block: of the pods in it", []Policy{netpol("canary", Rule{Direction: intent.Egress, Ports: []Port{http}, Blocks: blocks("10.1.0.0/16")})}, "n2", `
pod/db: closed: SecurityGroup shop/front does not exist
pod/web2: p/egress/1/6-80 p/egress/1/6-8080 (egress of p)
p/egress/1/6-80: allow [] 6:80-80
p/egress/1/6-8080: allow [10.1.0.2] 6:8080-8080
`},
		{"policies of the cluster: a closed Deny is as wide as it says, others fit nothing", []Policy{
			cluster(Rule{Action: intent.Deny, AnyPeer: true, AnyPort: true, Closed: "why"}, all),
			with(cluster(Rule{Action: intent.Pass, AnyPeer: true, AnyPort: true, Closed: "why"}, all), "q"),
			with(cluster(Rule{Action: intent.Pass, AnyPort: true, Peers: []Selector{{Nodes: sel("zone=a")}}}, Selector{Namespaces: sel("team=blue"), Pods: sel("")}), "r"),
		}, "", `
pod/teller: p/ingress/1 r/ingress/1
pod/web: p/ingress/1 closed: SecurityGroup shop/front does not exist
p/ingress/1: deny any
r/ingress/1: pass [10.1.0.1, 192.0.2.1]
`},
		{"nodes are never subjects", []Policy{cluster(Rule{Action: intent.Deny, AnyPeer: true, AnyPort: true}, Selector{Nodes: sel("")})}, "", `
pod/teller:
pod/web: closed: SecurityGroup shop/front does not exist
`},
		{"a node without pods needs nothing", []Policy{cluster(Rule{Action: intent.Deny, AnyPort: true, Peers: []Selector{all}}, all)}, "n3", "\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := shop()
			for _, p := range test.policies {
				e.SetPolicy(p)
			}
			v := e.View(max(test.node, "n1"))
			if diff := cmp.Diff(test.want, "\n"+describe(v)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// with gives a policy another name.
func with(p Policy, name string) Policy {
	p.Ref.Name = name
	return p
}

// A name that stands for more ports than a rule may have opens nothing, and one more causes no
// change for others.
func TestManyPortsOfOneName(t *testing.T) {
	name := []Port{{Name: "http"}}
	all := Selector{Namespaces: sel(""), Pods: sel("")}
	for action, more := range map[intent.Action]string{
		intent.Allow: "", intent.Deny: "p/egress/1/others: deny [10.2.0.2]", intent.Pass: "p/egress/1/others: deny [10.2.0.2]",
	} {
		e := shop()
		e.mostPorts = 2
		e.SetEndpoint(Endpoint{
			Key: "pod/first", Namespace: "bank", Node: "n3", Places: at("10.3.0.5"), NamedPorts: []NamedPort{{"http", 6, 79}, {"http", 6, 78}},
		})
		e.SetPolicy(cluster(Rule{Direction: intent.Egress, Action: action, Peers: []Selector{{Namespace: "bank", Pods: sel("")}, {Namespace: "shop", Pods: sel("canary")}}, Ports: name},
			Selector{Namespace: "bank", Pods: sel("app=web")}))
		verb := map[intent.Action]string{intent.Allow: "allow", intent.Deny: "deny", intent.Pass: "pass"}[action]
		want := fmt.Sprintf("p/egress/1/6-78: %s [10.3.0.5] 6:78-78\np/egress/1/6-79: %s [10.3.0.5] 6:79-79\n", verb, verb)
		if more != "" {
			want += more + "\n"
		}
		v := e.Attach("n1")
		v.Subjects = nil
		if diff := cmp.Diff(want, describe(v)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		e.SetEndpoint(Endpoint{Key: "pod/last", Namespace: "bank", Node: "n3", Places: at("10.3.0.6"), NamedPorts: []NamedPort{{"http", 6, 9999}}})
		if d := e.Deltas()["n1"]; len(d.Subjects)+len(d.RemovedSubjects) > 0 || action == intent.Allow && !d.Empty() || action != intent.Allow && len(d.Rules) != 1 {
			t.Errorf("action %d, of one more: %+v", action, d)
		}
	}
	// Of ingress each subject has its own ports only, however many others have.
	e := shop()
	e.mostPorts = 1
	e.SetPolicy(cluster(Rule{Action: intent.Allow, AnyPeer: true, Ports: name}, all))
	if v := e.View("n1"); len(v.Rules) != 2 {
		t.Errorf("rules for ingress: %+v", v.Rules)
	}
}

func TestTiers(t *testing.T) {
	e := shop()
	p := cluster(Rule{Action: intent.Pass, AnyPeer: true, AnyPort: true}, Selector{Namespaces: sel(""), Pods: sel("")})
	p.Tier, p.Priority = intent.BaselineTier, 7
	e.SetPolicy(p)
	want := []intent.Rule{{
		ID: "ClusterNetworkPolicy//p/ingress/1", Policy: p.Ref, Number: 1, Direction: intent.Ingress, Tier: intent.BaselineTier, Priority: 7,
		Action: intent.Pass, AnyPeer: true,
	}}
	if diff := cmp.Diff(want, e.View("n1").Rules); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A pod that arrives before its namespace is closed, and no selector of namespaces selects it.
func TestUnknownNamespace(t *testing.T) {
	e := shop()
	e.SetPolicy(cluster(Rule{Action: intent.Allow, AnyPort: true, Peers: []Selector{{Namespaces: sel("!team"), Pods: sel("")}}}, Selector{Namespace: "early", Pods: sel("")}))
	e.SetEndpoint(Endpoint{Key: "pod/early", Namespace: "early", Node: "n9", Places: at("10.9.0.9")})
	early := "pod/early: p/ingress/1 closed: namespace early is not known yet\np/ingress/1: allow []\n"
	if diff := cmp.Diff(early, describe(e.Attach("n9"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e.SetNamespace(Namespace{Name: "early"})
	if diff := cmp.Diff("pod/early: p/ingress/1\n", describe(View{Subjects: e.Deltas()["n9"].Subjects})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff("pod/early: p/ingress/1\np/ingress/1: allow [10.9.0.9]\n", describe(e.View("n9"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A pod that a rule denies by its address is closed until that is known, and then all nodes receive
// it at once. A pod that is allowed by its address, or denied like all others, does not wait.
func TestDeniedBeforeItsAddressIsKnown(t *testing.T) {
	web := labels.Set{"app": "web"}
	for name, tc := range map[string]struct {
		rule   Rule
		labels labels.Set
		waits  bool
	}{
		"denied to come":         {Rule{Action: intent.Deny, AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, true},
		"denied to be reached":   {Rule{Action: intent.Deny, Direction: intent.Egress, AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, true},
		"denied at a named port": {Rule{Action: intent.Deny, Ports: []Port{{Name: "http"}}, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, true},
		"passed on":              {Rule{Action: intent.Pass, AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, true},
		"allowed":                {Rule{Action: intent.Allow, AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, false},
		"another":                {Rule{Action: intent.Deny, AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, nil, false},
		"everybody":              {Rule{Action: intent.Deny, AnyPort: true, AnyPeer: true}, web, false},
		"a rule that is unclear": {Rule{Action: intent.Pass, Closed: "?", AnyPort: true, Peers: []Selector{{Namespace: "bank", Pods: sel("app")}}}, web, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := shop()
			e.SetPolicy(cluster(tc.rule, Selector{Namespace: "shop", Pods: sel("app=db")}))
			e.Attach("n1")
			e.Attach("n2")
			fresh := Endpoint{Key: "pod/new", Namespace: "bank", Node: "n1", Labels: tc.labels}
			e.SetEndpoint(fresh)
			if s := e.Deltas()["n1"].Subjects; len(s) != 1 || (s[0].Closed == nowhere) != tc.waits {
				t.Errorf("nowhere: %+v", s)
			}
			fresh.Places = []Place{{Space: "default", Address: netip.MustParseAddr("10.9.0.8"), Secondary: true}}
			e.SetEndpoint(fresh)
			if s := e.Deltas()["n1"].Subjects; len(s) > 0 {
				t.Errorf("with the address of another interface: %+v", s)
			}
			fresh.Places = append(fresh.Places, at("10.9.0.9")...)
			e.SetEndpoint(fresh)
			d := e.Deltas()
			if s := d["n1"].Subjects; tc.waits && (len(s) != 1 || s[0].Closed != "") || !tc.waits && len(s) > 0 {
				t.Errorf("somewhere: %+v", s)
			}
			if told := len(d["n2"].Peers) > 0; tc.rule.Ports == nil && tc.waits && !told {
				t.Errorf("n2 hears of no peer: %+v", d["n2"])
			}
			// A policy that comes or goes meanwhile counts, too.
			fresh.Places = nil
			e.SetEndpoint(fresh)
			e.DeletePolicy(intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "p"})
			if s := e.View("n1").Subjects; slices.ContainsFunc(s, func(s intent.Subject) bool { return s.Closed == nowhere }) {
				t.Errorf("without the policy: %+v", s)
			}
		})
	}
}

// What one node needs causes no change for another.
func TestNodesHearOfTheirOwn(t *testing.T) {
	e := shop()
	// For web2 on n2 only, with the peer db.
	e.SetPolicy(netpol("canary", Rule{AnyPort: true, Peers: []Selector{{Namespace: "shop", Pods: sel("app=db")}}}))
	if v := e.Attach("n1"); len(v.Rules)+len(v.Peers) > 0 {
		t.Errorf("n1 knows what is n2's: %+v", v)
	}
	groups := e.Attach("n2").Rules[0].Groups
	e.SetEndpoint(Endpoint{Key: "pod/db2", Namespace: "shop", Labels: labels.Set{"app": "db"}, Places: at("10.3.0.1")})
	want := map[string]Delta{"n2": {View: View{Peers: []intent.Peer{{
		Space: "default", Address: netip.MustParseAddr("10.3.0.1"), Groups: groups,
	}}}}}
	if diff := cmp.Diff(want, e.Deltas(), options); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// A label that no selector uses changes nothing.
	e.SetEndpoint(Endpoint{Key: "pod/db2", Namespace: "shop", Labels: labels.Set{"app": "db", "version": "2"}, Places: at("10.3.0.1")})
	if got := e.Deltas(); len(got) > 0 {
		t.Errorf("a label of no importance: %+v", got)
	}
	e.DeletePolicy(intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "p"})
	d := e.Deltas()["n2"]
	if len(d.RemovedRules) != 1 || len(d.RemovedPeers) != 3 || len(d.Subjects) != 1 || len(d.RemovedSubjects)+len(d.Rules)+len(d.Peers) > 0 {
		t.Errorf("a policy is gone: %+v", d)
	}
}
