// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/rapidtest"
)

// few returns one of some values.
func few[T any](t *rapid.T, what string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, what)
}

func drawLabels(t *rapid.T) labels.Set {
	out := labels.Set{}
	for _, k := range []string{"a", "b"} {
		if v := few(t, k, "", "1", "2"); v != "" {
			out[k] = v
		}
	}
	return out
}

func drawLabelSelector(t *rapid.T) labels.Selector {
	switch rapid.IntRange(0, 19).Draw(t, "kind") {
	case 19:
		return nil
	case 18:
		return labels.Nothing()
	case 0, 1, 2, 3, 4, 5:
		return labels.Everything()
	}
	s := labels.NewSelector()
	for range rapid.IntRange(1, 2).Draw(t, "requirements") {
		var values []string
		op := few(t, "operator", selection.In, selection.Equals, selection.NotIn, selection.Exists, selection.DoesNotExist, selection.GreaterThan)
		switch op {
		case selection.In, selection.NotIn:
			values = few(t, "values", []string{"1"}, []string{"2", "1"}, []string{"1", "2", "3"})
		case selection.Equals, selection.GreaterThan:
			values = []string{few(t, "value", "1", "2")}
		}
		r, err := labels.NewRequirement(few(t, "key", "a", "b"), op, values)
		if err != nil {
			t.Fatal(err)
		}
		s = s.Add(*r)
	}
	return s
}

func drawSelector(t *rapid.T) Selector {
	family := few(t, "family", AnyFamily, AnyFamily, IPv4, IPv6)
	switch few(t, "selects", "nodes", "group", "namespace", "namespace", "namespaces", "namespaces") {
	case "nodes":
		if s := drawLabelSelector(t); s != nil {
			return Selector{Nodes: s, Family: family}
		}
		return Selector{}
	case "group":
		return Selector{SecurityGroup: few(t, "of", "x/g", "y/g"), Family: family}
	case "namespace":
		return Selector{Namespace: few(t, "in", "x", "y"), Pods: drawLabelSelector(t), Family: family}
	}
	return Selector{Namespaces: drawLabelSelector(t), Pods: drawLabelSelector(t), Family: family}
}

func drawBlocks(t *rapid.T) []netip.Prefix {
	return rapid.SliceOfN(rapid.SampledFrom([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.1/30"), netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.2/32"),
		netip.MustParsePrefix("fd00::/64"), {},
	}), 0, 2).Draw(t, "blocks")
}

func drawPort(t *rapid.T) Port {
	if rapid.Bool().Draw(t, "named") {
		return Port{Name: few(t, "port name", "web", "dns"), PortRange: intent.PortRange{Protocol: few(t, "protocol", uint8(0), 6, 17)}}
	}
	first := rapid.Uint16Range(80, 82).Draw(t, "first")
	return Port{PortRange: intent.PortRange{Protocol: few(t, "protocol", uint8(6), 17), First: first, Last: first + 1}}
}

func drawPolicy(t *rapid.T) Policy {
	ref := few(t, "ref",
		intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "x", Name: "one"}, intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "x", Name: "two"},
		intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "all"}, intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "x", Name: "g"})
	p := Policy{Ref: ref}
	action := intent.Allow
	switch ref.Kind {
	case intent.SecurityGroup:
		p.Tier = intent.SecurityGroupTier
	case intent.NetworkPolicy:
		p.Tier = intent.NetworkPolicyTier
		p.Ingress, p.Egress = rapid.Bool().Draw(t, "ingress"), rapid.Bool().Draw(t, "egress")
	default:
		p.Tier, p.Priority = few(t, "tier", intent.AdminTier, intent.BaselineTier), few(t, "priority", uint16(0), 7)
		action = few(t, "action", intent.Allow, intent.Deny, intent.Pass)
	}
	if ref.Kind != intent.SecurityGroup {
		p.Subjects = rapid.SliceOfN(rapid.Custom(drawSelector), 1, 3).Draw(t, "subjects")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "rules") {
		p.Rules = append(p.Rules, Rule{
			Direction: few(t, "direction", intent.Ingress, intent.Egress), Number: i + 1, Action: action,
			AnyPeer: few(t, "any peer", false, false, true), Peers: rapid.SliceOfN(rapid.Custom(drawSelector), 0, 3).Draw(t, "peers"), Blocks: drawBlocks(t),
			AnyPort: few(t, "any port", true, true, false), Ports: rapid.SliceOfN(rapid.Custom(drawPort), 0, 3).Draw(t, "ports"),
			Closed: few(t, "closed", "", "", "", "", "", "", "why"),
		})
	}
	return p
}

func drawEndpoint(t *rapid.T) Endpoint {
	e := Endpoint{
		Key: few(t, "endpoint", "pod/1", "pod/2", "pod/3", "port/y/4"), Namespace: few(t, "namespace", "x", "y"),
		Labels: drawLabels(t), Node: few(t, "node", "", "n1", "n1", "n2"), HostNetwork: few(t, "host", false, false, false, false, true),
		SecurityGroups: few(t, "groups", nil, nil, []string{"x/g"}, []string{"x/g", "y/g"}),
	}
	e.Places = rapid.SliceOfN(rapid.SampledFrom([]Place{
		{Space: "default", Address: netip.MustParseAddr("10.0.0.1")}, {Space: "default", Address: netip.MustParseAddr("10.0.0.2")},
		{Space: "default", Address: netip.MustParseAddr("fd00::1")}, {Space: "own", Address: netip.MustParseAddr("10.0.0.1")},
		{Space: "default", Address: netip.MustParseAddr("10.0.0.1"), Secondary: true},
	}), 0, 3).Draw(t, "places")
	e.NamedPorts = rapid.SliceOfN(rapid.SampledFrom([]NamedPort{{"web", 6, 80}, {"web", 6, 8080}, {"web", 17, 80}, {"dns", 17, 53}}), 0, 2).Draw(t, "container ports")
	return e
}

func drawNode(t *rapid.T) Node {
	return Node{
		Name: few(t, "name", "n1", "n2", "n3"), Labels: drawLabels(t),
		Addresses: rapid.SliceOfN(rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1")}), 0, 2).Draw(t, "addresses"),
	}
}

// event changes one object, in an Engine and in the reference.
type event struct {
	name string
	do   func(*Engine, *reference)
}

func drawEvent(t *rapid.T) event {
	gone := few(t, "gone", false, false, false, false, true)
	switch few(t, "object", "endpoint", "endpoint", "endpoint", "policy", "policy", "policy", "namespace", "node") {
	case "endpoint":
		p := drawEndpoint(t)
		if gone {
			return event{"delete " + p.Key, func(e *Engine, r *reference) { e.DeleteEndpoint(p.Key); delete(r.endpoints, p.Key) }}
		}
		return event{fmt.Sprintf("%+v", p), func(e *Engine, r *reference) { e.SetEndpoint(p); r.endpoints[p.Key] = p }}
	case "policy":
		p := drawPolicy(t)
		if gone {
			return event{"delete " + p.Ref.String(), func(e *Engine, r *reference) { e.DeletePolicy(p.Ref); delete(r.policies, p.Ref) }}
		}
		return event{fmt.Sprintf("%+v", p), func(e *Engine, r *reference) { e.SetPolicy(p); r.policies[p.Ref] = p }}
	case "namespace":
		n := Namespace{Name: few(t, "name", "x", "y"), Labels: drawLabels(t)}
		if gone {
			return event{"delete namespace " + n.Name, func(e *Engine, r *reference) { e.DeleteNamespace(n.Name); delete(r.namespaces, n.Name) }}
		}
		return event{fmt.Sprintf("%+v", n), func(e *Engine, r *reference) { e.SetNamespace(n); r.namespaces[n.Name] = n }}
	}
	n := drawNode(t)
	if gone {
		return event{"delete node " + n.Name, func(e *Engine, r *reference) { e.DeleteNode(n.Name); delete(r.nodes, n.Name) }}
	}
	return event{fmt.Sprintf("%+v", n), func(e *Engine, r *reference) { e.SetNode(n); r.nodes[n.Name] = n }}
}

var testNodes = []string{"n1", "n2", "n3"}

// allViews are those of the nodes, and the one of all of them.
var allViews = append([]string{AllNodes}, testNodes...)

// agent is the state that follows from a View and then Deltas.
type agent struct {
	rules    map[string]intent.Rule
	subjects map[string]intent.Subject
	peers    map[string]intent.Peer
}

func newAgent(v View) *agent {
	a := &agent{map[string]intent.Rule{}, map[string]intent.Subject{}, map[string]intent.Peer{}}
	a.apply(Delta{View: v})
	return a
}

func (a *agent) apply(d Delta) {
	for _, r := range d.Rules {
		a.rules[r.ID] = r
	}
	for _, s := range d.Subjects {
		a.subjects[s.Key] = s
	}
	for _, p := range d.Peers {
		a.peers[intent.PeerKey(p.Space, p.Address)] = p
	}
	for _, id := range d.RemovedRules {
		delete(a.rules, id)
	}
	for _, key := range d.RemovedSubjects {
		delete(a.subjects, key)
	}
	for _, key := range d.RemovedPeers {
		delete(a.peers, key)
	}
}

func (a *agent) view() View {
	v := View{
		slices.Collect(maps.Values(a.rules)), slices.Collect(maps.Values(a.subjects)), slices.Collect(maps.Values(a.peers)),
	}
	v.sort()
	return v
}

// options of comparisons: an empty list is no list, prefixes are compared whole.
var options = cmp.Options{
	cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// Whatever happens, in whichever order and portions: Deltas lead to what there would be if all were
// computed anew, which is what it should be; and nothing is left when all is gone.
func TestEngineIsTheReference(t *testing.T) {
	for i := range 10 { // as often again as rapid does, which is not enough for this
		t.Run(strconv.Itoa(i), func(t *testing.T) { rapidtest.Round(t, i, checkEngine) })
	}
}

func checkEngine(t *rapid.T) {
	e, r := NewEngine(), newReference()
	e.mostPorts = few(t, "most ports", 1, 2, maxNamedPorts)
	r.mostPorts = e.mostPorts
	agents := map[string]*agent{}
	for _, name := range []string{"x", "y"} { // without which little happens
		n := Namespace{Name: name, Labels: drawLabels(t)}
		e.SetNamespace(n)
		r.namespaces[name] = n
	}
	for range rapid.IntRange(20, 60).Draw(t, "steps") {
		switch few(t, "step", "event", "event", "event", "event", "event", "event", "event", "attach", "attach", "detach", "deltas", "deltas") {
		case "event":
			ev := drawEvent(t)
			t.Log(ev.name)
			ev.do(e, r)
		case "attach":
			n := few(t, "node", allViews...)
			t.Log("attach", n)
			agents[n] = newAgent(e.Attach(n))
		case "detach":
			n := few(t, "node", allViews...)
			t.Log("detach", n)
			e.Detach(n)
			delete(agents, n)
		case "deltas":
			t.Log("deltas")
			follow(t, e, r, agents)
		}
	}
	follow(t, e, r, agents)
	for _, n := range allViews {
		if diff := cmp.Diff(r.viewOf(n), e.View(n), options); diff != "" {
			t.Fatalf("node %q (-reference +engine):\n%s", n, diff)
		}
	}
	for ref := range r.policies {
		if diff := cmp.Diff(r.nodesOf(ref), e.NodesOf(ref), options); diff != "" {
			t.Fatalf("nodes of %s (-reference +engine):\n%s", ref, diff)
		}
	}
	for key := range r.endpoints {
		e.DeleteEndpoint(key)
	}
	for name := range r.namespaces {
		e.DeleteNamespace(name)
	}
	for name := range r.nodes {
		e.DeleteNode(name)
	}
	for ref := range r.policies {
		e.DeletePolicy(ref)
	}
	for n, d := range e.Deltas() {
		if agents[n].apply(d); len(agents[n].rules)+len(agents[n].subjects)+len(agents[n].peers) > 0 {
			t.Fatalf("node %s is left with %+v", n, agents[n].view())
		}
	}
	for _, n := range allViews {
		e.Detach(n)
	}
	if n := len(e.namespaces) + len(e.nodes) + len(e.endpoints) + len(e.policies) + len(e.selectors) + len(e.scopes) + len(e.groups) +
		len(e.naming) + len(e.holders) + len(e.scopeSelectors.pairs) + len(e.scopeSelectors.rest) + len(e.nodeSelectors.pairs) + len(e.nodeSelectors.rest) + len(e.attached); n > 0 {
		t.Fatalf("%d things are left: %+v", n, e)
	}
}

// follow gives the Deltas to the agents and looks at what they know then.
func follow(t *rapid.T, e *Engine, r *reference, agents map[string]*agent) {
	for n, d := range e.Deltas() {
		if agents[n] == nil {
			t.Fatalf("node %s is not attached and gets %+v", n, d)
		}
		agents[n].apply(d)
	}
	for n, a := range agents {
		if diff := cmp.Diff(r.viewOf(n), a.view(), options); diff != "" {
			t.Fatalf("node %q (-reference +engine):\n%s", n, diff)
		}
	}
	if d := e.Deltas(); len(d) > 0 {
		t.Fatalf("changes where nothing has changed: %+v", d)
	}
}
