// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// sharedRuleSlot are two IDs of rules that share a Slot, sorted.
var sharedRuleSlot = sync.OnceValue(func() [2]string {
	bySlot := map[uint32]string{}
	for i := range 1 << 18 {
		r := intent.Rule{ID: fmt.Sprint("np/default/s", i, "/ingress/1")}
		if other, taken := bySlot[ruleSlot(r.ID)]; taken {
			return [2]string{min(other, r.ID), max(other, r.ID)}
		}
		bySlot[ruleSlot(r.ID)] = r.ID
	}
	panic("no two IDs share a slot")
})

// policyGroups and policyBlocks are what rules of worlds ask for.
var (
	policyGroups = []string{"a", "b", "c", "d"}
	policyBlocks = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.244.0.0/25"),
		netip.MustParsePrefix("8.8.8.8/32"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fd00:244::/64"),
	}
	policyPorts = []intent.PortRange{
		{Protocol: 6, First: 80, Last: 80}, {Protocol: 6, First: 80, Last: 81}, {Protocol: 6, First: 70, Last: 90}, {Protocol: 6, Last: 65535},
		{Protocol: 17, First: 53, Last: 53}, {Protocol: 1, First: 8, Last: intent.AnyICMPCode, ICMP: true}, {Protocol: 58, First: 1, Last: 4, ICMP: true}, {Protocol: 47, Last: 65535},
	}
)

func someOf[T any](t *rapid.T, label string, all []T) (list []T) {
	for _, v := range all {
		if rapid.IntRange(0, 2).Draw(t, label) == 0 {
			list = append(list, v)
		}
	}
	return list
}

// ruleIDs are of rules with names that say nothing about them.
var ruleIDs = sync.OnceValue(func() []string {
	ids := []string{"np/default/a/ingress/1", "np/default/a/egress/1", "np/default/b/ingress/1", "cnp/c/1", "cnp/c/2", "cnp/d/1", "cnp/e/1", "sg/default/f/1", "sg/default/f/2"}
	ids = append(ids, sharedRuleSlot()[0], sharedRuleSlot()[1])
	slices.Sort(ids)
	return ids
})

func drawRule(t *rapid.T, id string) intent.Rule {
	r := intent.Rule{
		ID: id, Number: rapid.IntRange(1, 2).Draw(t, "number"), Direction: rapid.SampledFrom([]intent.Direction{intent.Ingress, intent.Egress}).Draw(t, "direction"),
		Tier: rapid.SampledFrom([]intent.Tier{intent.SecurityGroupTier, intent.AdminTier, intent.AdminTier, intent.NetworkPolicyTier, intent.BaselineTier}).Draw(t, "tier"), Action: intent.Allow,
	}
	switch r.Tier {
	case intent.SecurityGroupTier:
		r.Policy = intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "default", Name: "p" + id}
	case intent.NetworkPolicyTier:
		r.Policy = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "p" + id}
	default:
		r.Policy = intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "p" + id}
		r.Priority = rapid.SampledFrom([]uint16{0, 1, 499, 500, 1000}).Draw(t, "priority")
		r.Action = rapid.SampledFrom([]intent.Action{intent.Allow, intent.Deny, intent.Pass}).Draw(t, "action")
	}
	if rapid.IntRange(0, 15).Draw(t, "cannot be judged") == 0 {
		r.Tier, r.Action = intent.SecurityGroupTier, intent.Deny
	}
	if r.AnyPeer = rapid.IntRange(0, 3).Draw(t, "any peer") == 0; !r.AnyPeer {
		r.Groups, r.Blocks = someOf(t, "group", policyGroups), someOf(t, "block", policyBlocks)
	}
	r.Ports = someOf(t, "port", policyPorts)
	if rapid.IntRange(0, 3).Draw(t, "any port") == 0 {
		r.Ports = nil
	}
	return r
}

// drawSubject draws how one is governed, by rules that mostly are there.
func drawSubject(t *rapid.T, key string, rules []intent.Rule) intent.Subject {
	s := intent.Subject{Key: key}
	var refs []intent.PolicyRef
	for _, r := range rules {
		if rapid.IntRange(0, 1).Draw(t, "has the rule") == 0 {
			s.Rules = append(s.Rules, r.ID)
			refs = append(refs, r.Policy)
		}
	}
	if rapid.IntRange(0, 15).Draw(t, "unknown rule") == 0 {
		s.Rules = append(s.Rules, "~gone")
	}
	if len(refs) > 0 {
		for _, list := range []*[]intent.PolicyRef{&s.IngressIsolation, &s.EgressIsolation, &s.SecurityGroups} {
			if rapid.IntRange(0, 2).Draw(t, "isolated") == 0 {
				*list = refs[:rapid.IntRange(1, len(refs)).Draw(t, "policies")]
			}
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "closed") == 0 {
		s.Closed = "it is to be closed"
	}
	return s
}

// drawPolicies draws rules, and for ports of this node how these govern them. Peers are
// drawn of all addresses.
func (w *clusterWorld) drawPolicies(t *rapid.T, o *intent.Objects) {
	if rapid.IntRange(0, 2).Draw(t, "no policies") == 0 {
		return
	}
	o.Local.PolicyMode = intent.EnforcedPolicies
	for _, id := range ruleIDs() {
		if rapid.IntRange(0, 2).Draw(t, "no rule") > 0 {
			o.Rules = append(o.Rules, drawRule(t, id))
		}
	}
	subjects := map[string]bool{}
	for i := range o.Ports {
		p := &o.Ports[i]
		if p.UID = p.Pod; rapid.IntRange(0, 9).Draw(t, "not a pod's") == 0 {
			p.Interface = ""
		}
		if key := p.SubjectKey(); p.Node == o.Local.Node && !subjects[key] && rapid.IntRange(0, 9).Draw(t, "known") > 0 {
			subjects[key] = true
			o.Subjects = append(o.Subjects, drawSubject(t, key, o.Rules))
		}
	}
	peers := map[string]intent.Peer{}
	for _, a := range w.addresses() {
		space := rapid.SampledFrom([]string{"default", "default", "red", "blue", "iso", "shared", "gone"}).Draw(t, "space")
		if groups := someOf(t, "member", policyGroups); len(groups) > 0 {
			peers[intent.PeerKey(space, a)] = intent.Peer{Space: space, Address: a, Groups: groups}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(peers)) {
		o.Peers = append(o.Peers, peers[key])
	}
}

// policySteps are steps that make the rules, subjects and peers of a State.
func policySteps(s *intent.State) (steps []step) {
	for r := range s.Rules().All() {
		steps = append(steps, step{"rule " + r.ID, func(o *intent.Objects) { o.Rules = append(o.Rules, r) }})
	}
	for v := range s.Subjects().All() {
		steps = append(steps, step{"subject " + v.Key, func(o *intent.Objects) { o.Subjects = append(o.Subjects, v) }})
	}
	for p := range s.Peers().All() {
		steps = append(steps, step{"peer " + p.Space + " " + p.Address.String(), func(o *intent.Objects) { o.Peers = append(o.Peers, p) }})
	}
	return steps
}

// smallWorld has three ports on one node, and a private router.
func smallWorld() intent.Objects {
	o := intent.Objects{
		Local: intent.Local{Node: "o1", Encapsulation: intent.NoEncap, PolicyMode: intent.EnforcedPolicies}, Nodes: []intent.Node{nodeForm(1, 2, "default")},
		Routers: []intent.Router{{Name: "red", ID: 20, VNI: 70020}},
	}
	for n := range 3 {
		p := portForm(n+1, 1, "default")
		p.UID = fmt.Sprint("u", n)
		o.Ports = append(o.Ports, p)
	}
	return o
}

func drawSmall(t *rapid.T) (o intent.Objects) {
	for _, id := range ruleIDs() {
		if rapid.IntRange(0, 2).Draw(t, "no rule") > 0 {
			o.Rules = append(o.Rules, drawRule(t, id))
		}
	}
	for n := range 3 {
		if rapid.IntRange(0, 5).Draw(t, "known") > 0 {
			o.Subjects = append(o.Subjects, drawSubject(t, intent.PodSubject(fmt.Sprint("u", n)), o.Rules))
		}
	}
	for i := range 12 {
		a := address4(10, 244, 1, 2+i/4)
		if i%4 > 1 {
			a = netip.MustParseAddr(fmt.Sprint("fd00:1::", 2+i/4))
		}
		if groups := someOf(t, "member", policyGroups); len(groups) > 0 {
			o.Peers = append(o.Peers, intent.Peer{Space: []string{"default", "red"}[i%2], Address: a, Groups: groups})
		}
	}
	return o
}

// Policies that come, go and change, in any order, leave the flows that compiling the last State
// gives; and another order of what leads to the same State leaves the same ones.
func TestPoliciesIncremental(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, all := intent.NewStore(), things{}
		for _, s := range objectsOf(stateOf(t, smallWorld())) {
			s.apply(all)
		}
		all.update(t, store)
		incremental := New()
		var done []string
		for range 3 {
			to := drawSmall(t)
			var steps []step
			for _, name := range slices.Sorted(maps.Keys(all)) {
				switch kind, _, _ := strings.Cut(name, " "); kind {
				case "rule", "subject", "peer":
					steps = append(steps, step{name: name})
				}
			}
			steps = append(steps, policySteps(stateFrom(t, to))...)
			for r := range store.State().Rules().All() {
				if other := drawRule(t, r.ID); rapid.Bool().Draw(t, "one thing changes") {
					rapid.SampledFrom([]func(){
						func() { r.Action = other.Action }, func() { r.Number = other.Number }, func() { r.Priority = other.Priority }, func() { r.Tier = other.Tier },
						func() { r.Direction = other.Direction }, func() { r.AnyPeer = other.AnyPeer }, func() { r.Policy = other.Policy },
						func() { r.Groups = other.Groups }, func() { r.Blocks = other.Blocks }, func() { r.Ports = other.Ports },
					}).Draw(t, "thing")()
					steps = append(steps, step{"rule " + r.ID, func(o *intent.Objects) { o.Rules = append(o.Rules, r) }})
				}
			}
			steps = rapid.Permutation(steps).Draw(t, "order")
			for _, s := range steps[:min(len(steps), 12)] {
				done = append(done, fmt.Sprintf("%s (set: %v)", s.name, s.add != nil))
				s.apply(all)
				state := all.update(t, store)
				full := New()
				want, got := full.Compile(inputOf(state)), incremental.Compile(inputOf(state))
				if !sameRules(rulesOf(want, full), rulesOf(got, incremental)) {
					t.Fatalf("after %v (-full +incremental):\n%s", done, cmp.Diff(texts(full, want), texts(incremental, got)))
				}
				if diff := cmp.Diff(full.Problems(), incremental.Problems()); diff != "" {
					t.Fatalf("problems after %v (-full +incremental):\n%s", done, diff)
				}
				if diff := cmp.Diff(meanings(full), meanings(incremental)); diff != "" {
					t.Fatalf("meanings after %v (-full +incremental):\n%s", done, diff)
				}
			}
		}
	})
}
