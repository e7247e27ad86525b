// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"encoding/json"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/translate"
)

// states are what each node knows: the objects translated, given to an Engine in any order, and the Views of the nodes.
func (w *world) states(t *rapid.T) map[string]*intent.State {
	engine, endpoints := policy.NewEngine(), translate.NewPolicyEndpoints()
	var give []func()
	well := func(p policy.Policy, problems []translate.Problem) {
		if len(problems) > 0 {
			t.Fatalf("%s: %v", p.Ref, problems)
		}
		give = append(give, func() { engine.SetPolicy(p) })
	}
	for _, o := range w.Namespaces {
		give = append(give, func() { engine.SetNamespace(translate.PolicyNamespace(o)) })
	}
	for _, o := range w.Nodes {
		give = append(give, func() { engine.SetNode(translate.PolicyNode(o)) })
	}
	for _, o := range w.NetworkPolicies {
		well(translate.NetworkPolicy(o))
	}
	for _, o := range w.ClusterNetworkPolicies {
		well(translate.ClusterNetworkPolicy(o))
	}
	for _, o := range w.SecurityGroups {
		well(translate.SecurityGroup(o))
		endpoints.SetSecurityGroup(o.Namespace, o.Name)
	}
	for _, o := range w.routers {
		give = append(give, func() { endpoints.SetRouter(o) })
	}
	for _, o := range w.networks {
		give = append(give, func() { endpoints.SetNetwork(o) })
	}
	for _, o := range w.Pods {
		give = append(give, func() { endpoints.SetPod(o) })
	}
	for _, o := range slices.Concat(w.Ports, w.podPorts) {
		give = append(give, func() { endpoints.SetPort(o) })
	}
	take := func() {
		set, gone := endpoints.Changes()
		for _, key := range gone {
			engine.DeleteEndpoint(key)
		}
		for _, e := range set {
			engine.SetEndpoint(e)
		}
	}
	looks := rapid.IntRange(0, len(give)).Draw(t, "an early look")
	for i, f := range rapid.Permutation(give).Draw(t, "order") {
		if i == looks {
			take()
			engine.View("n1")
		}
		f()
	}
	take()
	nodes, problems := translate.Nodes(w.Nodes)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	states := map[string]*intent.State{}
	for _, n := range nodes {
		v, store := engine.View(n.Name), intent.NewStore()
		if _, err := store.Update(func(tx *intent.Tx) error {
			tx.Replace(intent.Objects{
				Local: intent.Local{Node: n.Name, PolicyMode: intent.EnforcedPolicies}, Nodes: nodes,
				Rules: v.Rules, Subjects: v.Subjects, Peers: v.Peers,
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		states[n.Name] = store.State()
	}
	return states
}

// port is as the node of an end has it.
func (e End) port() intent.Port {
	if e.Pod != nil {
		return intent.Port{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, Interface: e.Interface, UID: string(e.Pod.UID), Node: e.node()}
	}
	return intent.Port{Namespace: e.Port.Namespace, Pod: e.Port.Name, Node: e.node()}
}

// enforced is the verdict of what is enforced: of the sender's node, then of the receiver's.
func enforced(states map[string]*intent.State, space string, k Connection) Verdict {
	c := evaluate.Connection{Space: space, Source: k.Source.Address, Destination: k.Destination.Address, Protocol: k.Protocol, Port: k.Port}
	if k.Protocol == icmp4 || k.Protocol == icmp6 {
		c.Port = evaluate.ICMP(k.Type, k.Code)
	}
	v := Verdict{Allowed: true}
	if k.Source.governed() {
		v = verdict(Egress, evaluate.Egress(states[k.Source.node()], k.Source.port(), c))
	}
	if v.Allowed && k.Destination.governed() {
		c.Host = k.Source.Node != nil && k.Source.Node.Name == k.Destination.node() && !k.Source.Masked
		v = verdict(Ingress, evaluate.Ingress(states[k.Destination.node()], k.Destination.port(), c))
	}
	return v
}

func verdict(direction string, e evaluate.Verdict) Verdict {
	v := Verdict{Allowed: e.Allowed, Direction: direction, Tier: [...]string{"", SecurityGroups, Admin, Namespaced, Baseline}[e.Tier]}
	switch {
	case e.Tier == 0:
	case e.Rule.ID != "":
		v.By = []string{fmt.Sprintf("%s, rule %d", e.Rule.Policy, e.Rule.Number)}
	case !e.Allowed:
		v.By = []string{e.Reason}
	}
	return v
}

// equal says whether the oracle's verdict is the one that is enforced. Where several rules allow the same, any of them may be told.
func equal(want, got Verdict) bool {
	if want.Allowed != got.Allowed || want.Direction != got.Direction || want.Tier != got.Tier || (len(want.By) == 0) != (len(got.By) == 0) {
		return false
	}
	return len(got.By) == 0 || slices.Contains(want.By, got.By[0]) || got.By[0] == noneAllows(want.By)
}

// noneAllows is the text of a denial by policies none of whose rules allows the connection.
func noneAllows(names []string) string {
	var refs []intent.PolicyRef
	for _, name := range names {
		kind, key, _ := strings.Cut(name, " ")
		namespace, name, _ := strings.Cut(key, "/")
		refs = append(refs, intent.PolicyRef{Kind: intent.PolicyKind(kind), Namespace: namespace, Name: name})
	}
	slices.SortFunc(refs, intent.PolicyRef.Compare)
	return evaluate.NoneAllows(refs)
}

// drawPackets are some protocols and ports, each of both families if they differ.
func drawPackets(t *rapid.T) []Connection {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Connection {
		switch p := pick(t, "protocol", tcp, tcp, tcp, udp, udp, sctp, icmp4, icmp6, 47); p {
		case tcp, udp, sctp:
			return Connection{Protocol: uint8(p), Port: pick(t, "port", uint16(80), 80, 8080, 53, 443, 81, 1, 8081, 65535)}
		case icmp4, icmp6:
			return Connection{Protocol: uint8(p), Type: pick(t, "type", uint8(8), 128, 3), Code: pick(t, "code", uint8(0), 1)}
		default:
			return Connection{Protocol: uint8(p)}
		}
	}), 3, 6).Draw(t, "packets")
}

// connections are all that those ends may have with each other.
func connections(ends []End, packets []Connection, yield func(Connection)) {
	for _, from := range ends {
		for _, to := range ends {
			if !from.governed() && !to.governed() || from.Address == to.Address && !from.same(to) || to.Masked ||
				from.Address.Is4() != to.Address.Is4() {
				continue
			}
			if from.same(to) && from.Address != to.Address {
				continue // by two of its addresses: not what is meant by itself
			}
			for _, k := range packets {
				if k.Protocol == icmp4 && !to.Address.Is4() || k.Protocol == icmp6 && to.Address.Is4() {
					continue
				}
				k.Source, k.Destination = from, to
				yield(k)
			}
		}
	}
}

// Whatever the cluster and its policies: what translate, the Engine and the evaluator of the nodes' intent make of a connection is what the kinds
// promise. TestPoliciesTrace of package compile shows that flows decide as this evaluator does.
//
// More cases: -rapid.checks=10000.
func TestEnforcedIsPromised(t *testing.T) {
	ends := map[string]int{}
	clusters, cases := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		states := w.states(t)
		packets := drawPackets(t)
		clusters++
		for _, space := range []string{intent.DefaultRouterName, "red", "blue"} {
			connections(w.ends[space], packets, func(k Connection) {
				want, got := w.Judge(k), enforced(states, space, k)
				if !equal(want, got) {
					objects, _ := json.MarshalIndent(w.Cluster, "", " ")
					t.Fatalf("%s in space %s:\nwant %+v\ngot  %+v\n%s\n%s", k, space, want, got, known(states), objects)
				}
				cases++
				ends[fmt.Sprintf("%s, %s, allowed: %v, by a policy: %v", want.Direction, want.Tier, want.Allowed, len(want.By) > 0)]++
			})
		}
	})
	t.Logf("%d connections in %d clusters, by what decided: %v", cases, clusters, ends)
	if len(ends) < 17 {
		t.Errorf("too few ends: %v", ends)
	}
}

// known is what the nodes know, for a reader.
func known(states map[string]*intent.State) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintln(&b, name, "knows:")
		for r := range states[name].Rules().All() {
			fmt.Fprintf(&b, "rule %+v\n", r)
		}
		for s := range states[name].Subjects().All() {
			fmt.Fprintf(&b, "subject %+v\n", s)
		}
		for p := range states[name].Peers().All() {
			fmt.Fprintf(&b, "peer %+v\n", p)
		}
	}
	return b.String()
}

func (k Connection) String() string {
	return fmt.Sprintf("%s to %s, protocol %d, port %d, type %d, code %d", k.Source, k.Destination, k.Protocol, k.Port, k.Type, k.Code)
}

func (e End) String() string {
	switch {
	case e.Pod != nil:
		return fmt.Sprintf("pod %s/%s %s at %s", e.Pod.Namespace, e.Pod.Name, e.Interface, e.Address)
	case e.Port != nil:
		return fmt.Sprintf("port %s/%s at %s", e.Port.Namespace, e.Port.Name, e.Address)
	case e.Node != nil:
		return fmt.Sprintf("node %s (masked: %v) at %s", e.Node.Name, e.Masked, e.Address)
	}
	return "outside " + e.Address.String()
}
