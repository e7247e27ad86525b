// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// manyPolicies has ports on this node that are isolated, rules with a group and two ports each, of
// which each port has so many, and peers in groups.
func manyPolicies(ports, rules, perPort, peers, groupsPerPeer int) intent.Objects {
	o := intent.Objects{
		Local:   intent.Local{Node: "n0", Encapsulation: intent.NoEncap, ServiceMode: intent.NativeServices, PolicyMode: intent.EnforcedPolicies},
		Routers: []intent.Router{{Name: "default", ID: 1, VNI: 1}}, Networks: []intent.Network{{Name: "default", ID: 1, VNI: 1, Router: "default"}},
	}
	for i := range rules {
		o.Rules = append(o.Rules, ruleOfMany(i))
	}
	for i := range ports {
		p := largePort(i)
		p.UID = fmt.Sprint("u", i)
		s := intent.Subject{Key: p.SubjectKey(), IngressIsolation: []intent.PolicyRef{ruleOfMany(i).Policy}}
		for j := range perPort {
			s.Rules = append(s.Rules, ruleOfMany((i+j)%rules).ID)
		}
		o.Ports, o.Subjects = append(o.Ports, p), append(o.Subjects, s)
	}
	for i := range peers {
		o.Peers = append(o.Peers, peerOfMany(i, rules, groupsPerPeer))
	}
	return o
}

func ruleOfMany(i int) intent.Rule {
	policy := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: fmt.Sprint("p", i)}
	return intent.Rule{
		ID: fmt.Sprintf("NetworkPolicy/default/p%d/ingress/1", i), Policy: policy, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow,
		Groups: []string{fmt.Sprint("g", i)}, Ports: []intent.PortRange{{Protocol: 6, First: 80, Last: 80}, {Protocol: 6, First: uint16(8000 + i%100), Last: uint16(8000 + i%100)}},
	}
}

// peerOfMany is of one of 500 classes.
func peerOfMany(i, rules, groups int) intent.Peer {
	p := intent.Peer{Space: "default", Address: netip.AddrFrom4([4]byte{10, 128 + byte(i>>16), byte(i >> 8), byte(i)})}
	for j := range groups {
		p.Groups = append(p.Groups, fmt.Sprint("g", (i%500+j)%rules))
	}
	return p
}

func flowCount(c *Compiler, state *intent.State) (n int) {
	for _, f := range flowsOf(c.Compile(inputOf(state)), c) {
		n += len(f)
	}
	return n
}

// Flows are as many as ports, rules and peers, and not as their product.
func TestPolicyFlowsAreASum(t *testing.T) {
	none := flowCount(New(), stateFrom(t, manyPolicies(50, 1, 0, 0, 0)))
	for _, tc := range []struct {
		ports, rules, perPort, peers, groupsPerPeer int
		most                                        int
	}{
		// Subjects, verdicts, and ports of two families.
		{50, 50, 50, 0, 0, 50 + 50 + 2*51},
		{50, 50, 50, 1000, 1, 50 + 50 + 2*51 + 1000 + 50 /* classes */},
		{50, 200, 200, 1000, 200, 50 + 200 + 2*101 + 1000 + 500},
	} {
		got := flowCount(New(), stateFrom(t, manyPolicies(tc.ports, tc.rules, tc.perPort, tc.peers, tc.groupsPerPeer))) - none
		if got > tc.most {
			t.Errorf("%+v: %d flows", tc, got)
		}
	}
}

// changedFlows are those that are there before or after, and not both.
func changedFlows(before, after map[string][]openflow.Flow) (n int) {
	texts := map[string]int{}
	for i, flows := range []map[string][]openflow.Flow{before, after} {
		for _, list := range flows {
			for _, f := range list {
				texts[f.String()] |= 1 << i
			}
		}
	}
	for _, in := range texts {
		if in != 3 {
			n++
		}
	}
	return n
}

// One pod more that is like others is one flow; one that is like no other is one more for each
// table and priority that rules ask for it in. Nothing but that is compiled again.
func TestOnePeerIsFewFlows(t *testing.T) {
	store := storeOf(t, manyPolicies(50, 200, 20, 1000, 3))
	c := New()
	for _, tc := range []struct {
		name        string
		peer        intent.Peer
		flows, most int // and units
	}{
		{"like others", peerOfMany(1007, 200, 3), 1, 1},
		{"like no other", intent.Peer{Space: "default", Address: netip.MustParseAddr("10.250.0.1"), Groups: []string{"g1", "g100", "g17", "g33"}}, 2, 2},
		{"in groups of no rule", intent.Peer{Space: "default", Address: netip.MustParseAddr("10.250.0.2"), Groups: []string{"other"}}, 0, 2},
	} {
		before := flowsOf(c.Compile(inputOf(store.State())), c)
		units := map[unitKey]*unit{}
		for key, u := range c.units {
			units[key] = u
		}
		state, err := store.Update(func(tx *intent.Tx) error { tx.SetPeer(tc.peer); return nil })
		if err != nil {
			t.Fatal(err)
		}
		after := flowsOf(c.Compile(inputOf(state)), c)
		compiled := 0
		for key, u := range c.units {
			if units[key] != u {
				compiled++
			}
		}
		if n := changedFlows(before, after); n != tc.flows || compiled > tc.most {
			t.Errorf("%s: %d flows differ, %d units were compiled", tc.name, n, compiled)
		}
	}
}

// More rules for one port than one message has room for are in several flows, which differ in bits
// that are always 0, and each rule is in one of them.
func TestManyRulesOfOnePort(t *testing.T) {
	o := manyPolicies(1, 17000, 17000, 1, 1)
	c := New()
	ids, flows := map[uint32]int{}, map[openflow.FlowKey]bool{}
	for _, list := range flowsOf(c.Compile(inputOf(stateFrom(t, o))), c) {
		for _, f := range list {
			if err := f.Validate(); err != nil {
				t.Error(err)
			}
			if _, mask := f.Match.Get(openflow.FieldIPProto.All()); f.Table != ingressPolicy.ID || mask == 0 {
				continue
			}
			if port, _ := f.Match.Get(openflow.FieldTCPDst.All()); port != 80 || f.Match != f.Match.With(openflow.EthType(openflow.EthTypeIPv4)) {
				continue
			}
			flows[f.Key()] = true
			for _, a := range f.Actions {
				ids[a.(openflow.ConjunctionAction).ID]++
			}
		}
	}
	if len(ids) != 17000 || len(flows) != 5 {
		t.Errorf("%d rules in %d flows", len(ids), len(flows))
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("conjunction %d is there %d times", id, n)
		}
	}
}

// A node of 110 ports with 1,000 rules, of which each port has 30, and 10,000 peers.
func thousandRules() intent.Objects { return manyPolicies(110, 1000, 30, 10000, 3) }

func BenchmarkThousandRules(b *testing.B) {
	state := stateFrom(b, thousandRules())
	b.ReportAllocs()
	flows := 0
	for b.Loop() {
		c := New()
		flows = 0
		for _, f := range flowsOf(c.Compile(inputOf(state)), c) {
			flows += len(f)
		}
	}
	b.ReportMetric(float64(flows), "flows")
}

// benchmarkChange compiles after each of two changes in turn.
func benchmarkChange(b *testing.B, change ...func(*intent.Tx)) {
	store := storeOf(b, thousandRules())
	c := New()
	c.Compile(inputOf(store.State()))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		state, err := store.Update(func(tx *intent.Tx) error { change[i%len(change)](tx); return nil })
		if err != nil {
			b.Fatal(err)
		}
		c.Compile(inputOf(state))
	}
}

func BenchmarkOnePeerOfThousandRules(b *testing.B) {
	p, q := peerOfMany(1, 1000, 3), peerOfMany(2, 1000, 3)
	q.Address = p.Address
	benchmarkChange(b, func(tx *intent.Tx) { tx.SetPeer(p) }, func(tx *intent.Tx) { tx.SetPeer(q) })
}

func BenchmarkOneRuleOfThousand(b *testing.B) {
	r := ruleOfMany(7)
	benchmarkChange(b, func(tx *intent.Tx) { tx.SetRule(r) }, func(tx *intent.Tx) { tx.DeleteRule(r.ID) })
}

func BenchmarkOneSubjectOfThousandRules(b *testing.B) {
	p := largePort(7)
	p.UID = "u7"
	s := intent.Subject{Key: p.SubjectKey(), Rules: []string{ruleOfMany(1).ID}}
	closed := s
	closed.Closed = "closed"
	benchmarkChange(b, func(tx *intent.Tx) { tx.SetSubject(s) }, func(tx *intent.Tx) { tx.SetSubject(closed) })
}

// manyBlocks is a rule with so many addresses.
func manyBlocks(n int) intent.Rule {
	r := ruleOfMany(0)
	r.Groups = nil
	for i := range n {
		r.Blocks = append(r.Blocks, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	return r
}

func BenchmarkTenThousandBlocks(b *testing.B) {
	none, all, one := manyBlocks(0), manyBlocks(10000), manyBlocks(10001)
	for _, change := range []struct {
		name string
		from intent.Rule
	}{{"all", none}, {"one", one}} {
		b.Run(change.name, func(b *testing.B) {
			benchmarkChange(b, func(tx *intent.Tx) { tx.SetRule(change.from) }, func(tx *intent.Tx) { tx.SetRule(all) })
		})
	}
}
