// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// tick is the step of a world's time, and detection the time until a tunnel that is gone is
// noticed: that of BFD, and a little for what follows.
const (
	tick      = 10 * time.Millisecond
	detection = 400 * time.Millisecond
)

var office = Key{"office", netip.MustParseAddr("192.0.2.30")}

// world is some nodes with their tunnels, a wire, and an API server.
type world struct {
	t     testing.TB
	now   time.Time
	nodes []*station
	// cut are pairs of nodes without a tunnel between them.
	cut map[[2]string]bool
	// claim is what the API has; since is when.
	claim string
	since time.Time
	address
	// both is for how long two nodes have answered at once.
	both time.Duration
	// claims counts the writes of claims.
	claims int
	log    []string
}

// address is what the API says of the address.
type address struct {
	nodes, leaving []string
	failback       bool
}

// station is a node.
type station struct {
	name    string
	machine *Machine
	on      bool // it has power
	silent  bool // its agent is not there
	// wire is the segment that it is connected to; two segments are a partition.
	wire int
	// api says that it reaches the API server.
	api    bool
	states map[Key]State
	// seen is when a node was in reach last.
	seen  map[string]time.Time
	known string // the claim that it knows
	asked bool   // it has asked on the wire
}

// newWorld has candidates, and one node more that is none.
func newWorld(t testing.TB, candidates ...string) *world {
	w := &world{t: t, now: time.Unix(1e9, 0), cut: map[[2]string]bool{}, address: address{nodes: candidates}}
	for _, name := range append(slices.Clone(candidates), "user") {
		n := &station{name: name, on: true, wire: 1, api: true, seen: map[string]time.Time{}}
		n.machine = New(name, nil, true)
		w.nodes = append(w.nodes, n)
	}
	w.pass(2 * time.Second)
	return w
}

func (w *world) node(name string) *station {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	w.t.Fatalf("no node %s", name)
	return nil
}

func (w *world) reach(a, b *station) bool {
	return a.on && b.on && !w.cut[[2]string{a.name, b.name}] && !w.cut[[2]string{b.name, a.name}]
}

// answers reports whether a node answers for the address on the wire.
func (n *station) answers() bool {
	s := n.states[office]
	return n.on && n.wire != 0 && s.Active == n.name && !s.Silent
}

// pass lets time pass, and checks all the time that no two nodes of a segment answer for longer
// than the detection takes.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(tick) {
		for _, n := range w.nodes {
			w.step(n)
		}
		answering := map[int][]string{}
		for _, n := range w.nodes {
			if n.answers() {
				answering[n.wire] = append(answering[n.wire], n.name)
			}
		}
		two := false
		for _, names := range answering {
			two = two || len(names) > 1
		}
		if w.both += tick; !two {
			w.both = 0
		}
		if w.both > w.most() {
			w.t.Fatalf("%v answer for one address for %v\n%s", answering, w.both, strings.Join(w.log, "\n"))
		}
	}
}

// most is for how long two nodes of a segment may answer: until both know of each other, and have
// asked. Claims that not all see take longer to decide which one gives way.
func (w *world) most() time.Duration {
	most := detection + (probes+1)*probeEvery
	for _, n := range w.nodes {
		if !n.api || n.silent {
			return most + 12*patience
		}
	}
	return most
}

func (w *world) step(n *station) {
	if !n.on {
		return
	}
	alive := map[string]bool{}
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		if w.reach(n, o) {
			n.seen[o.name] = w.now
		}
		alive[o.name] = !n.seen[o.name].IsZero() && w.now.Sub(n.seen[o.name]) < detection
	}
	if n.silent {
		return
	}
	if n.api && w.now.Sub(w.since) >= 2*tick {
		n.known = w.claim
	}
	if n.asked {
		n.asked = false
		for _, o := range w.nodes {
			switch {
			case o == n || !o.on || n.wire != o.wire:
			case o.answers():
				n.machine.Answered(office, w.now)
			case !o.silent:
				o.machine.Asked(office, n.name < o.name, w.now)
			}
		}
	}
	n.machine.SetAlive(alive)
	n.machine.SetAddresses([]Address{{
		Key: office, Nodes: w.address.nodes, Leaving: w.leaving, Claimed: n.known, Failback: w.failback,
	}})
	d := n.machine.Decide(w.now)
	if d.States[office] != n.states[office] {
		w.log = append(w.log, fmt.Sprintf("%v %s: %+v", w.now.Sub(time.Unix(1e9, 0)), n.name, d.States[office]))
	}
	n.states, n.asked = d.States, len(d.Probes) > 0
	// The API refuses the write of a node that has not seen the last one.
	if len(d.Claims) > 0 && n.api && w.claim == n.known {
		w.claim, w.since = n.name, w.now
		w.claims++
		w.log = append(w.log, fmt.Sprintf("%v %s claims", w.now.Sub(time.Unix(1e9, 0)), n.name))
	}
}

// restart has a node's agent begin anew; sure says that its data path goes on.
func (w *world) restart(n *station, sure bool) {
	n.machine = New(n.name, n.states, sure)
}

// active is the one that answers; empty if none, or more than one, does.
func (w *world) active() (name string) {
	for _, n := range w.nodes {
		if n.answers() {
			if name != "" {
				return ""
			}
			name = n.name
		}
	}
	return name
}

// within waits until a condition holds.
func (w *world) within(d time.Duration, what string, holds func() bool) {
	w.t.Helper()
	for end := w.now.Add(d); !holds(); w.pass(tick) {
		if w.now.After(end) {
			w.t.Fatalf("not within %v: %s\n%s", d, what, strings.Join(w.log, "\n"))
		}
	}
}

// agreed reports whether all that are on send to the one that answers.
func (w *world) agreed() bool { return w.sends(0) }

// sends reports whether what all send reaches the one that answers, by at most so many others that
// pass it on.
func (w *world) sends(others int) bool {
	a := w.active()
	for _, n := range w.nodes {
		if !n.on || n.silent {
			continue
		}
		to := n.states[office].Active
		for range others {
			if to != "" {
				to = w.node(to).states[office].Active
			}
		}
		if to != a {
			return false
		}
	}
	return a != ""
}
