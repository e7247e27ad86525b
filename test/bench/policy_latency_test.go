// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

// logOf is a stream of 2,000 packets, one each millisecond, each of which takes 2 ms if it comes.
func logOf(comes func(number int) bool) (l packetLog, at func(ms int) time.Time) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at = func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	l.last = -1
	for i := range 2000 {
		l.add(at(i))
		if comes(i) {
			l.arrive(i, at(i+2))
		}
	}
	return l, at
}

func TestPacketsDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		comes func(int) bool
		now   int
		want  int // -1: not denied
	}{
		"from one packet on":               {func(i int) bool { return i < 1000 }, 2000, 1000},
		"lost before is not denied":        {func(i int) bool { return i < 1000 && i != 900 }, 2000, 1000},
		"not long enough":                  {func(i int) bool { return i < 1800 }, 2000, -1},
		"some lost, but later ones come":   {func(i int) bool { return i < 1000 || i > 1900 }, 2000, -1},
		"the last comes, nothing was sent": {func(int) bool { return true }, 9000, -1},
		"none ever came":                   {func(int) bool { return false }, 2000, 0},
	} {
		l, at := logOf(tc.comes)
		got, denied := l.deniedAt(at(tc.now))
		if denied != (tc.want >= 0) || denied && !got.Equal(at(tc.want)) {
			t.Errorf("%s: denied %t at %s, want %d ms", name, denied, got, tc.want)
		}
	}
}

func TestPacketsAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		comes func(int) bool
		since int
		want  int // -1: not allowed
	}{
		"again, when it comes":          {func(i int) bool { return i < 500 || i >= 1000 }, 900, 1002},
		"not again":                     {func(i int) bool { return i < 500 }, 900, -1},
		"lost after the first":          {func(i int) bool { return i < 500 || i == 1000 || i > 1100 }, 900, 1002},
		"sent before, came after":       {func(i int) bool { return i < 500 || i >= 899 }, 900, 901},
		"what came before is not meant": {func(i int) bool { return i < 890 }, 900, -1},
	} {
		l, at := logOf(tc.comes)
		got, allowed := l.allowedAt(at(tc.since))
		if allowed != (tc.want >= 0) || allowed && !got.Equal(at(tc.want)) {
			t.Errorf("%s: allowed %t at %s, want %d ms", name, allowed, got, tc.want)
		}
	}
}

func TestPacketsTwice(t *testing.T) {
	l, at := logOf(func(i int) bool { return i < 10 })
	l.arrive(3, at(50))
	l.arrive(9999, at(50))
	if l.arrived != 10 || l.last != 9 || !l.came[3].Equal(at(5)) {
		t.Errorf("%d arrived, last %d, packet 3 at %s", l.arrived, l.last, l.came[3])
	}
}

// Every fake pod has room on its node, and every address is of one node.
func TestCrowd(t *testing.T) {
	nodes := map[string]int{}
	pods := map[string]bool{}
	for i := range crowdPods {
		p := crowdPod(i)
		nodes[p.Spec.NodeName]++
		pods[p.Namespace+"/"+p.Name] = true
	}
	if len(pods) != crowdPods || len(nodes) != crowdNodes {
		t.Errorf("%d pods on %d nodes", len(pods), len(nodes))
	}
	addresses := map[string]bool{}
	for i := range crowdNodes {
		n := crowdNode(i)
		addresses[n.Status.Addresses[0].Address] = true
		if nodes[n.Name] == 0 || nodes[n.Name] > 200 {
			t.Errorf("node %s has %d pods", n.Name, nodes[n.Name])
		}
	}
	if len(addresses) != crowdNodes {
		t.Errorf("%d addresses of %d nodes", len(addresses), crowdNodes)
	}
	policies := map[string]bool{}
	for i := range crowdPolicies {
		p := crowdPolicy(i)
		policies[p.Namespace+"/"+p.Name] = true
	}
	if len(policies) != crowdPolicies {
		t.Errorf("%d policies", len(policies))
	}
}

func TestLatestPacket(t *testing.T) {
	l, at := logOf(func(i int) bool { return i != 500 && i != 700 })
	l.arrive(500, at(650))
	if got := l.latest(at(100)); got != 150*time.Millisecond {
		t.Errorf("the latest packet was %s late, want 150ms", got)
	}
	if got := l.latest(at(501)); got != 2*time.Millisecond {
		t.Errorf("the latest packet after that was %s late, want 2ms: one that never came is not late", got)
	}
}
