// SPDX-License-Identifier: Apache-2.0

package announce

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

func TestOwner(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	if got := Owner(a, nil); got != "" {
		t.Errorf("nobody owns: %q", got)
	}
	all := names(10)
	want := Owner(a, all)
	slices.Reverse(all)
	if got := Owner(a, append(all, all...)); got != want {
		t.Errorf("another order has another owner: %q, %q", got, want)
	}
	if mapped := Owner(netip.MustParseAddr("::ffff:192.0.2.1"), all); mapped != want {
		t.Errorf("the same address in another form has another owner: %q, %q", mapped, want)
	}
}

// TestOwnersShare has 5 nodes own about the same.
func TestOwnersShare(t *testing.T) {
	all, owned := names(5), map[string]int{}
	for _, a := range pool(1000) {
		owned[Owner(a, all)]++
	}
	for _, n := range all {
		if owned[n] < 150 || owned[n] > 250 {
			t.Errorf("%s owns %d of 1000 addresses", n, owned[n])
		}
	}
}

// TestOwnersStay moves nothing but what the node that goes had.
func TestOwnersStay(t *testing.T) {
	all := names(5)
	left := slices.Delete(slices.Clone(all), 2, 3)
	for _, a := range pool(1000) {
		before, after := Owner(a, all), Owner(a, left)
		if before != after && before != all[2] {
			t.Errorf("%s moved from %s to %s, though %s has gone", a, before, after, all[2])
		}
	}
}
