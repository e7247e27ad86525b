// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/rendezvous"
)

// order are three nodes in the order in which they are chosen.
func order() []string { return rendezvous.Rank(office.Address, []string{"n1", "n2", "n3"}) }

// takeover is the longest time that a power cut may cost.
const takeover = 800 * time.Millisecond

func TestFirstChoice(t *testing.T) {
	w := newWorld(t, order()...)
	if !w.agreed() || w.active() != order()[0] || w.claim != order()[0] {
		t.Errorf("%s is active, want %s; claim %s", w.active(), order()[0], w.claim)
	}
}

func TestPowerCut(t *testing.T) {
	for _, api := range []bool{true, false} {
		w := newWorld(t, order()...)
		for _, n := range w.nodes {
			n.api = api
		}
		first := w.node(w.active())
		first.on = false
		w.within(takeover, "the next node is active", func() bool { return w.active() == order()[1] })
		w.pass(time.Second)
		if !w.agreed() {
			t.Error("not all send to the active node")
		}
		first.on = true
		w.restart(first, false)
		w.pass(time.Minute)
		if w.active() != order()[1] || !w.sends(2) {
			t.Errorf("API %v: %q is active after the first one is back\n%s", api, w.active(), strings.Join(w.log, "\n"))
		}
	}
}

func TestFailback(t *testing.T) {
	w := newWorld(t, order()...)
	w.failback = true
	first := w.node(w.active())
	first.on = false
	w.pass(2 * time.Second)
	first.on = true
	w.restart(first, false)
	w.within(settling+2*time.Second, "it returns", func() bool { return w.active() == order()[0] && w.agreed() })
}

// Without an agent the data path goes on, and nothing moves.
func TestAgentAway(t *testing.T) {
	w := newWorld(t, order()...)
	first := w.node(w.active())
	first.silent = true
	w.pass(time.Minute)
	if w.active() != order()[0] || !w.agreed() {
		t.Error("the address moved")
	}
	first.silent = false
	w.restart(first, true)
	for range 200 {
		w.pass(tick)
		if w.active() != order()[0] || !w.agreed() {
			t.Fatal("the address moved when the agent came back")
		}
	}
}

// The data path, and with it what it answers, may have gone while the agent was away.
func TestTakenOverMeanwhile(t *testing.T) {
	for _, api := range []bool{true, false} {
		w := newWorld(t, order()...)
		first := w.node(w.active())
		for _, n := range w.nodes {
			n.api = api
		}
		first.on = false
		w.pass(2 * time.Second)
		first.on = true
		w.restart(first, true) // it does not know that its data path was away
		w.pass(5 * time.Second)
		if w.active() != order()[1] || !w.sends(2) {
			t.Errorf("API %v: active is %q, want %q\n%s", api, w.active(), order()[1], strings.Join(w.log, "\n"))
		}
	}
}

// A node that leaves hands over while it still works: at any time one node translates for all.
func TestDrain(t *testing.T) {
	w := newWorld(t, order()...)
	w.leaving = order()[:1]
	for range 300 {
		w.pass(tick)
		for _, n := range w.nodes {
			to := w.node(n.states[office].Active)
			if at := to.states[office]; at.Active != to.name && w.node(at.Active).states[office].Active != at.Active {
				t.Fatalf("%s sends to %s, which sends to %s, which is not active", n.name, to.name, at.Active)
			}
		}
	}
	if w.active() != order()[1] || !w.agreed() {
		t.Errorf("active is %q, want %q\n%s", w.active(), order()[1], strings.Join(w.log, "\n"))
	}
}

// All candidates leave: one of them goes on.
func TestAllLeave(t *testing.T) {
	w := newWorld(t, order()...)
	w.leaving = order()
	w.pass(time.Minute)
	if w.active() != order()[0] {
		t.Errorf("active is %q", w.active())
	}
}

// A node that is to take over may be unable to. The old one answers again.
func TestNoneTakesOver(t *testing.T) {
	w := newWorld(t, order()[:2]...)
	w.node(order()[1]).silent = true
	w.leaving = order()[:1]
	w.within(settling+time.Second, "it is silent", func() bool { return w.active() == "" })
	w.within(settling+time.Second, "it answers again", func() bool { return w.active() == order()[0] })
}

// Two nodes that do not reach each other ask on the wire.
func TestPartitionOfPair(t *testing.T) {
	for _, agent := range []bool{true, false} {
		w := newWorld(t, order()...)
		w.node(order()[0]).silent = !agent
		w.cut[[2]string{order()[0], order()[1]}] = true
		w.pass(time.Minute)
		if w.active() != order()[0] {
			t.Errorf("agent %v: active is %q", agent, w.active())
		}
		delete(w.cut, [2]string{order()[0], order()[1]})
		w.node(order()[0]).silent = false
		w.pass(5 * time.Second)
		if w.active() != order()[0] || !w.agreed() {
			t.Errorf("agent %v: active is %q after the partition", agent, w.active())
		}
	}
}

// A node that is cut off from all, the wire too, comes back.
func TestIsolated(t *testing.T) {
	for _, api := range []bool{true, false} {
		w := newWorld(t, order()...)
		first := w.node(w.active())
		first.wire, first.api = 2, false
		for _, n := range w.nodes {
			w.cut[[2]string{first.name, n.name}] = true
		}
		w.pass(10 * time.Second)
		if w.node(order()[1]).answers() != true {
			t.Fatalf("the next one is not active\n%s", strings.Join(w.log, "\n"))
		}
		clear(w.cut)
		first.wire, first.api = 1, api
		w.pass(10 * time.Second) // which fails if both answer for long
		if !w.sends(2) {
			t.Errorf("API %v: no agreement\n%s", api, strings.Join(w.log, "\n"))
		}
	}
}

// A node that reaches the API server alone does not dispute the address with the one that works.
func TestIsolatedWithAPI(t *testing.T) {
	w := newWorld(t, order()...)
	first := w.node(w.active())
	first.wire = 2
	for _, n := range w.nodes {
		w.cut[[2]string{first.name, n.name}] = true
	}
	w.pass(30 * time.Second)
	if w.claim != order()[1] || w.claims > 2 {
		t.Errorf("%d claims, the last one of %s; want 2, of %s", w.claims, w.claim, order()[1])
	}
	clear(w.cut)
	first.wire = 1
	w.within(2*time.Second, "it follows the claim", func() bool { return w.active() == order()[1] && w.agreed() })
}

// One candidate needs no question.
func TestOneCandidate(t *testing.T) {
	m := New("n1", nil, true)
	m.SetAddresses([]Address{{Key: office, Nodes: []string{"n1"}}})
	d := m.Decide(time.Unix(1e9, 0))
	if d.States[office].Active != "n1" || len(d.Probes) > 0 || len(d.Claims) != 1 || !d.Next.IsZero() {
		t.Errorf("%+v", d)
	}
}

func TestNoCandidate(t *testing.T) {
	m := New("n1", nil, true)
	m.SetAddresses([]Address{{Key: office}})
	if d := m.Decide(time.Unix(1e9, 0)); d.States[office].Active != "" || len(d.Claims) > 0 {
		t.Errorf("%+v", d)
	}
}

// An address that goes is forgotten.
func TestGone(t *testing.T) {
	m := New("n1", map[Key]State{office: {Active: "n1"}}, true)
	m.SetAddresses(nil)
	if d := m.Decide(time.Unix(1e9, 0)); len(d.States)+len(d.Claims)+len(d.Probes) > 0 {
		t.Errorf("%+v", d)
	}
}

// Whatever happens in which order: never do two nodes of one segment answer for longer than the
// detection takes, and when all is well again, all agree about one.
func TestGenerated(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // for tests
		w := newWorld(t, order()...)
		w.failback = seed%3 == 0
		for range 12 {
			n := w.nodes[r.IntN(len(w.nodes))]
			switch r.IntN(8) {
			case 0:
				if n.on = !n.on; n.on {
					w.restart(n, false)
				}
			case 1:
				w.restart(n, true)
			case 2:
				n.silent = !n.silent
			case 3:
				n.api = !n.api
			case 4, 5:
				pair := [2]string{n.name, w.nodes[r.IntN(len(w.nodes))].name}
				if w.cut[pair] = !w.cut[pair]; !w.cut[pair] {
					delete(w.cut, pair)
				}
			case 6:
				w.leaving = order()[:r.IntN(4)]
			case 7:
				w.pass(4 * time.Second)
			}
			w.pass(time.Duration(r.IntN(1500)) * time.Millisecond)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		clear(w.cut)
		w.leaving = nil
		for _, n := range w.nodes {
			if !n.on {
				n.on = true
				w.restart(n, false)
			}
			n.silent, n.api = false, true
		}
		w.within(30*time.Second, "all agree", func() bool { return w.agreed() && w.claim == w.active() })
		if most := 2 + int(w.now.Sub(time.Unix(1e9, 0))/settling); w.claims > most {
			t.Errorf("%d claims, want %d at most", w.claims, most)
		}
	}
}
