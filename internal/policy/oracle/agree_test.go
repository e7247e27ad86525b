// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/policy/oracle"
	"coelan.io/coelan/internal/policy/oracle/world"
)

// port is as the node of an end has it.
func port(e oracle.End) intent.Port {
	if e.Pod != nil {
		return intent.Port{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, Interface: e.Interface, UID: string(e.Pod.UID), Node: e.NodeName()}
	}
	return intent.Port{Namespace: e.Port.Namespace, Pod: e.Port.Name, Node: e.NodeName()}
}

// enforced is the verdict of what is enforced: of the sender's node, then of the receiver's.
func enforced(states map[string]*intent.State, space string, k oracle.Connection) oracle.Verdict {
	c := evaluate.Connection{Space: space, Source: k.Source.Address, Destination: k.Destination.Address, Protocol: k.Protocol, Port: k.Port}
	if k.Protocol == oracle.ICMP || k.Protocol == oracle.ICMPv6 {
		c.Port = evaluate.ICMP(k.Type, k.Code)
	}
	v := oracle.Verdict{Allowed: true}
	if k.Source.PoliciesApply() {
		v = verdict(oracle.Egress, evaluate.Egress(states[k.Source.NodeName()], port(k.Source), c))
	}
	if v.Allowed && k.Destination.PoliciesApply() {
		c.Host = k.Source.Node != nil && k.Source.Node.Name == k.Destination.NodeName() && !k.Source.Masked
		v = verdict(oracle.Ingress, evaluate.Ingress(states[k.Destination.NodeName()], port(k.Destination), c))
	}
	return v
}

func verdict(direction string, e evaluate.Verdict) oracle.Verdict {
	v := oracle.Verdict{Allowed: e.Allowed, Direction: direction, Tier: [...]string{"", oracle.SecurityGroups, oracle.Admin, oracle.Namespaced, oracle.Baseline}[e.Tier]}
	switch {
	case e.Tier == 0:
	case e.Rule.ID != "":
		v.By = []string{fmt.Sprintf("%s, rule %d", e.Rule.Policy, e.Rule.Number)}
	case !e.Allowed:
		v.By = []string{e.Reason}
	}
	return v
}

// equal says whether the oracle's verdict is the one that is enforced. Where several rules allow
// the same, any of them may be reported.
func equal(want, got oracle.Verdict) bool {
	if want.Allowed != got.Allowed || want.Direction != got.Direction || want.Tier != got.Tier || (len(want.By) == 0) != (len(got.By) == 0) {
		return false
	}
	return len(got.By) == 0 || slices.Contains(want.By, got.By[0]) || got.By[0] == noneAllows(want.By)
}

// noneAllows is the text of a denial by policies that have no rule that allows the connection.
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

// For any cluster and policies, from any state before: what translate, the Engine and evaluate make
// of a connection, on the nodes of both ends, is what the kinds promise. That flows decide as
// evaluate does is shown by TestPoliciesTrace of package pipeline.
//
// More cases: -rapid.checks=10000.
func TestEnforcedIsPromised(t *testing.T) {
	ends := map[string]int{}
	clusters, cases := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w, controller := world.Draw(t), world.NewController()
		for range rapid.IntRange(2, 3).Draw(t, "worlds") {
			controller.Follow(t, w)
			states := map[string]*intent.State{}
			for _, n := range w.Nodes {
				states[n.Name] = controller.State(n.Name)
			}
			packets := world.DrawPackets(t)
			clusters++
			for _, space := range []string{intent.DefaultRouterName, "red", "blue"} {
				w.Connections(space, packets, func(k oracle.Connection) {
					want, got := w.Judge(k), enforced(states, space, k)
					if !equal(want, got) {
						objects, _ := json.MarshalIndent(w.Cluster, "", " ")
						t.Fatalf("%s in space %s:\nwant %+v\ngot  %+v\n%s\n%s", k, space, want, got, known(states), objects)
					}
					cases++
					ends[fmt.Sprintf("%s, %s, allowed: %v, by a policy: %v", want.Direction, want.Tier, want.Allowed, len(want.By) > 0)]++
				})
			}
			w = w.DrawNext(t)
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
