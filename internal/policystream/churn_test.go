// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/streamtest"
)

// Whatever changes while agents come, go and move between replicas: in the end each has its view
// and nothing else.
func TestChurn(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	var replicas [2]*streamtest.Controller
	for i := range replicas {
		if replicas[i], err = streamtest.NewController(authority); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, c := range replicas {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	const nodes, pods, policies, changes = 4, 20, 10, 400
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := policy.NewEngine()
	update := func(change func(*policy.Engine)) {
		change(all)
		for _, c := range replicas {
			c.Update(change)
		}
	}
	update(func(e *policy.Engine) { e.SetNamespace(policy.Namespace{Name: "default"}) })
	agents := make([]*streamtest.Agent, nodes)
	stops := make([]func(), nodes)
	start := func(i int) {
		agents[i], stops[i] = streamtest.StartAgent(t, replicas[0].ClientOptions(fmt.Sprintf("node-%d", i), replicas[1]))
	}
	for i := range nodes {
		start(i)
	}
	for range changes {
		switch n := r.IntN(20); {
		case n < 10:
			p := churnPod(r, pods, nodes)
			update(func(e *policy.Engine) { e.SetEndpoint(p) })
		case n < 12:
			key := intent.PodSubject(fmt.Sprint(r.IntN(pods)))
			update(func(e *policy.Engine) { e.DeleteEndpoint(key) })
		case n < 17:
			p := churnPolicy(r, policies)
			update(func(e *policy.Engine) { e.SetPolicy(p) })
		case n < 19:
			ref := ofPolicy(fmt.Sprint(r.IntN(policies)))
			update(func(e *policy.Engine) { e.DeletePolicy(ref) })
		default:
			i := r.IntN(nodes)
			stops[i]()
			start(i)
		}
	}
	for i, a := range agents {
		want := all.View(fmt.Sprintf("node-%d", i))
		a.Await(t, "its view", func() bool { return a.Status().Complete && has(a, want)() })
		if s := a.Status(); s.InvalidUpdates != 0 {
			t.Errorf("status %+v", s)
		}
		if diff := cmp.Diff(streamtest.ViewOf(want), a.View(), compareAddresses); diff != "" {
			t.Errorf("node %d (-want +got):\n%s", i, diff)
		}
	}
}

var roles = []string{"web", "db", "client"}

func churnPod(r *rand.Rand, pods, nodes int) policy.Endpoint {
	i := r.IntN(pods)
	return policy.Endpoint{
		Key: intent.PodSubject(fmt.Sprint(i)), Namespace: "default", Name: fmt.Sprint(i), Node: fmt.Sprintf("node-%d", r.IntN(nodes)),
		Labels: labels.Set{"role": roles[r.IntN(len(roles))]}, Places: []policy.Place{{
			Space: intent.DefaultRouterName, Address: netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(i)}),
		}},
	}
}

func churnPolicy(r *rand.Rand, policies int) policy.Policy {
	pods := func() policy.Selector {
		return policy.Selector{
			Namespace: "default", Pods: labels.SelectorFromSet(labels.Set{"role": roles[r.IntN(len(roles))]}),
		}
	}
	p := policy.Policy{
		Ref: ofPolicy(fmt.Sprint(r.IntN(policies))), Tier: intent.NetworkPolicyTier, Ingress: true, Subjects: []policy.Selector{pods()},
	}
	for n := range r.IntN(4) {
		p.Rules = append(p.Rules, policy.Rule{
			Direction: intent.Ingress, Number: n + 1, Action: intent.Allow, Peers: []policy.Selector{pods()}, AnyPort: true,
		})
	}
	return p
}
