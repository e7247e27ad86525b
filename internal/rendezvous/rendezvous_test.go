// SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("worker-%d", i))
	}
	return all
}

func pool(n int) (all []netip.Addr) {
	a := netip.MustParseAddr("192.0.2.0")
	for range n {
		all, a = append(all, a), a.Next()
	}
	return all
}

func TestChoose(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	if got := Choose(a, nil); got != "" {
		t.Errorf("none is chosen: %q", got)
	}
	all := names(10)
	want := Choose(a, all)
	slices.Reverse(all)
	if got := Choose(a, append(all, all...)); got != want {
		t.Errorf("another order has another choice: %q, %q", got, want)
	}
	if mapped := Choose(netip.MustParseAddr("::ffff:192.0.2.1"), all); mapped != want {
		t.Errorf("the same address in another form has another choice: %q, %q", mapped, want)
	}
}

// TestCandidatesShare has 5 nodes own about the same.
func TestCandidatesShare(t *testing.T) {
	all, owned := names(5), map[string]int{}
	for _, a := range pool(1000) {
		owned[Choose(a, all)]++
	}
	for _, n := range all {
		if owned[n] < 150 || owned[n] > 250 {
			t.Errorf("%s has %d of 1000 addresses", n, owned[n])
		}
	}
}

// TestChoicesStay moves nothing but what the node that goes had.
func TestChoicesStay(t *testing.T) {
	all := names(5)
	left := slices.Delete(slices.Clone(all), 2, 3)
	for _, a := range pool(1000) {
		before, after := Choose(a, all), Choose(a, left)
		if before != after && before != all[2] {
			t.Errorf("%s moved from %s to %s, though %s has gone", a, before, after, all[2])
		}
	}
}

// TestRank begins with the choice, and goes on with what is chosen without it.
func TestRank(t *testing.T) {
	for _, a := range pool(100) {
		left, ranked := names(5), Rank(a, append(names(5), names(5)...))
		if len(ranked) != len(left) {
			t.Fatalf("%s: %v", a, ranked)
		}
		for _, want := range ranked {
			if got := Choose(a, left); got != want {
				t.Errorf("%s: %s, want %s of %v", a, got, want, ranked)
			}
			left = slices.DeleteFunc(left, func(n string) bool { return n == want })
		}
	}
}
