// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// A policy that the switch refuses has its ports closed. Others' policies are written in the same
// sync, and the policy's next version is tried at once.
func TestRefusedPolicy(t *testing.T) {
	r := newRefusals(t)
	r.sw.set(false, has("tp_dst=7777"))
	bad, good := testRule("bad", 80, 7777), testRule("good", 80)
	r.update(func(tx *intent.Tx) {
		tx.SetRule(bad)
		tx.SetRule(good)
		tx.SetSubject(testSubject(0, bad))
		tx.SetSubject(testSubject(1, good))
		tx.SetSubject(testSubject(2, bad, good))
	})
	r.must(r.sync())
	r.without(policyNamed("bad"))
	r.event("NetworkPolicy default/bad")
	reasons := pipeline.Closed(r.flows.effective(), "n1")
	for n, closed := range []bool{true, false, true, false} {
		why := reasons[testPort(n).ID]
		if (why != "") != closed || closed && !strings.Contains(why, "the switch refuses NetworkPolicy default/bad: OFPBAC_BAD_ARGUMENT") {
			t.Errorf("pod %d is closed: %q, want %v", n, why, closed)
		}
	}
	if why := r.Conditions.All()[condFlows]; why != "" {
		t.Errorf("the node is not ready: %s", why)
	}
	mended := testRule("bad", 80, 7778)
	r.update(func(tx *intent.Tx) { tx.SetRule(mended) })
	r.must(r.sync())
	r.without()
	r.update(func(tx *intent.Tx) { tx.SetRule(bad) })
	r.must(r.sync())
	r.without(policyNamed("bad"))
	r.update(func(tx *intent.Tx) {
		tx.DeleteRule(bad.ID)
		tx.SetSubject(testSubject(0))
		tx.SetSubject(testSubject(2, good))
	})
	r.must(r.sync())
	r.without()
}

// Of policies that share a flow, the one that came last is left out.
func TestRefusedSharedFlow(t *testing.T) {
	r := newRefusals(t)
	old, added := testRule("old", 80), testRule("added", 80)
	r.update(func(tx *intent.Tx) { tx.SetRule(old); tx.SetSubject(testSubject(0, old)) })
	r.must(r.sync())
	before := strings.Join(r.sw.Text(), "\n")
	r.update(func(tx *intent.Tx) { tx.SetRule(added); tx.SetSubject(testSubject(1, added)) })
	r.sw.set(true, func(rule string) bool {
		return strings.Contains(rule, "tp_dst=80") && !strings.Contains(before, strings.TrimSpace(rule))
	})
	r.must(r.sync())
	r.without(policyNamed("added"))
}

// After a restart nothing says which of them is at fault: all are left out, and those that the
// switch takes come back one by one.
func TestRefusedSharedFlowOfNewAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(t)
		a, b, c := testRule("a", 80), testRule("b", 80), testRule("c", 443)
		r.update(func(tx *intent.Tx) {
			for n, rule := range []intent.Rule{a, b, c} {
				tx.SetRule(rule)
				tx.SetSubject(testSubject(n, rule))
			}
		})
		r.must(r.sync())
		both := regexpConjunctions(t, r.sw.Text(), "tp_dst=80")
		r.flows.lost(fmt.Errorf("restarted"))
		r.sw.set(true, func(rule string) bool { return strings.Contains(rule, both[1]) && strings.Contains(rule, "tp_dst") })
		r.update(func(tx *intent.Tx) { tx.SetPort(testPort(pods)) })
		r.sw.Fake = bridge.NewFake()
		r.flows.bridge = bridge.New(bridge.Options{
			Connect: func(context.Context) (bridge.Switch, error) { return r.sw, nil }, Learned: pipeline.Learned,
		})
		r.must(r.sync())
		r.without(policyNamed("a"), policyNamed("b"))
		for range 4 {
			next, _ := r.flows.quarantine.Next()
			time.Sleep(time.Until(next))
			r.must(r.sync())
		}
		if n := len(r.flows.quarantine.List()); n != 1 {
			t.Errorf("%d policies are left out, want 1", n)
		}
	})
}

// regexpConjunctions are the conjunctions in the flow with that text.
func regexpConjunctions(t *testing.T, flows []string, match string) (ids []string) {
	t.Helper()
	for _, f := range flows {
		if !strings.Contains(f, match) {
			continue
		}
		for _, part := range strings.Split(f, "conjunction(")[1:] {
			id, _, _ := strings.Cut(part, ",")
			ids = append(ids, "conjunction("+id+",")
		}
		if len(ids) > 1 {
			return ids
		}
	}
	t.Fatalf("no flow of two rules with %s in:\n%s", match, strings.Join(flows, "\n"))
	return nil
}

// A Service that the switch refuses is left out alone, whether it is named when it is added or at
// the commit.
func TestRefusedService(t *testing.T) {
	for _, first := range []bool{false, true} {
		r := newRefusals(t)
		r.sw.set(first, has("nw_dst=10.96.0.7,", "nw_dst=10.96.0.7 "))
		r.update(func(tx *intent.Tx) {
			tx.SetNodeService(testService(7))
			tx.SetNodeService(testService(8))
		})
		r.must(r.sync())
		r.without(intent.Ref{Kind: intent.KindService, Key: "default/svc-7"})
		r.event("Service default/svc-7")
		r.update(func(tx *intent.Tx) { tx.DeleteNodeService("default/svc-7") })
		r.must(r.sync())
		r.without()
	}
}

// A pod fails to start if its own Port is refused. Others start meanwhile.
func TestRefusedPort(t *testing.T) {
	r := newRefusals(t)
	r.sw.set(true, has("in_port=27"))
	state := r.update(func(tx *intent.Tx) {
		for n := 6; n <= 8; n++ {
			tx.SetPort(testPort(n))
			tx.SetSubject(testSubject(n))
		}
	})
	r.must(r.sync())
	r.without(intent.Ref{Kind: intent.KindPort, Key: "c7/eth0"})
	r.event("Pod default/pod-7")
	for n := 6; n <= 8; n++ {
		r.must(r.flows.wait(t.Context(), state.Revision()))
		e, refused := r.flows.quarantine.Of(state, testPort(n))
		if refused != (n == 7) || refused && !strings.Contains(e.Err, "OFPBAC_BAD_ARGUMENT") {
			t.Errorf("pod %d: %v %+v", n, refused, e)
		}
	}
	r.update(func(tx *intent.Tx) { tx.DeletePort("c7/eth0") })
	r.must(r.sync())
	r.without()
}

// Many are left out in one sync, although the switch names only the first each time.
func TestManyRefused(t *testing.T) {
	r := newRefusals(t)
	const many = 100
	var refs []intent.Ref
	refused := map[string]bool{}
	r.update(func(tx *intent.Tx) {
		for n := range 2 * many {
			v := testService(n + 256)
			tx.SetNodeService(v)
			if n%2 == 0 {
				refs = append(refs, intent.Ref{Kind: intent.KindService, Key: v.Namespace + "/" + v.Name})
				refused["nw_dst="+v.Ports[0].ClusterIP.String()] = true
			}
		}
	})
	r.sw.set(true, func(rule string) bool {
		for _, field := range strings.FieldsFunc(rule, func(c rune) bool { return c == ',' || c == ' ' }) {
			if refused[field] {
				return true
			}
		}
		return false
	})
	r.must(r.sync())
	r.without(refs...)
}

// What the switch refuses for a while only, it gets again, with growing pauses, and without harm to
// others.
func TestRefusalsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(t)
		r.sw.set(false, has("nw_dst=10.96.0."))
		r.update(func(tx *intent.Tx) {
			for n := range 3 {
				tx.SetNodeService(testService(n + 1))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.flows.run(ctx) }()
		synctest.Wait()
		if n := len(r.flows.quarantine.List()); n != 3 {
			t.Fatalf("%d objects are left out, want 3", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(r.flows.quarantine.List()); n != 3 {
			t.Errorf("%d objects are left out after an hour, want 3", n)
		}
		if syncs := r.flows.status().Syncs; syncs > 100 {
			t.Errorf("%d syncs in an hour", syncs)
		}
		r.sw.set(false, nil)
		time.Sleep(6 * time.Minute) // the longest pause is 5
		synctest.Wait()
		r.without()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What belongs to no object, or is vital, cannot be left out: the error stays, the switch keeps
// what it has.
func TestRefusedForNoObject(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		change func(*intent.Tx)
	}{
		"flows of every node": {"MTU", func(tx *intent.Tx) {}},
		"default network": {"", func(tx *intent.Tx) {
			tx.ReplaceNetworks(
				[]intent.Router{{Name: intent.DefaultRouterName, ID: intent.DefaultRouter, Shared: true, VNI: 1}},
				[]intent.Network{{Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, VNI: 99, Router: intent.DefaultRouterName}}, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusals(t)
			if tc.text != "" {
				r.flows.bridge = bridge.New(bridge.Options{
					Connect: func(context.Context) (bridge.Switch, error) { return r.sw, nil }, Learned: pipeline.Learned,
				})
				r.sw.Fake = bridge.NewFake()
			}
			before := r.sw.Text()
			r.sw.set(true, func(string) bool { return true })
			r.update(tc.change)
			err := r.sync()
			if err == nil || !strings.Contains(err.Error(), "rule refused: OFPBAC_BAD_ARGUMENT") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(before, r.sw.Text()); diff != "" {
				t.Errorf("the switch has other flows:\n%s", diff)
			}
			if r.Conditions.All()[condFlows] == "" {
				t.Error("the node is ready without its flows")
			}
		})
	}
}

// A switch that comes back gets everything again.
func TestRefusedByAnotherSwitch(t *testing.T) {
	r := newRefusals(t)
	r.sw.set(false, has("nw_dst=10.96.0.7,", "nw_dst=10.96.0.7 "))
	r.update(func(tx *intent.Tx) { tx.SetNodeService(testService(7)) })
	r.must(r.sync())
	r.without(intent.Ref{Kind: intent.KindService, Key: "default/svc-7"})
	r.sw.set(false, nil)
	r.flows.lost(fmt.Errorf("restarted"))
	r.must(r.sync())
	r.without()
}
