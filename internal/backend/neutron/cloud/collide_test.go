// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// beside is a second Client at work with the same Neutron, as while a controller leads and the one
// before it has not found that out.
func (w *world) beside() *world {
	other := &world{
		T: w.T, neutron: w.neutron, change: w.change, want: w.want, found: map[string]string{}, vlans: map[string]int{},
		answers: map[string]string{},
	}
	other.start()
	w.Cleanup(func() { other.stop() })
	return other
}

// Two clients want the same pods' ports at the same time, and others each time. When one of them is
// left, each port is there once, and nothing of the other's is left.
func TestTwoClients(t *testing.T) {
	w := newWorldWith(t, func(c *Client) { c.o.Resync = 50 * time.Millisecond })
	other := w.beside()
	end := time.After(bound)
	for _, n := range []int{40, 5, 60, 0, 30, 20} {
		want := tenant(n)
		w.set(want)
		other.set(want)
		// Each compares a few times, and need not get on: the other one is in its way.
		const times = 3
		for left := map[*world]int{w: times, other: times}; len(left) > 0; {
			var of *world
			var o outcome
			select {
			case o = <-w.reports:
				of = w
			case o = <-other.reports:
				of = other
			case <-end:
				t.Fatalf("with %d ports: reports are missing of %d clients", n, len(left))
			}
			if o.of == want {
				left[of]--
			}
			maps.DeleteFunc(left, func(_ *world, n int) bool { return n <= 0 })
		}
	}
	other.stop()
	w.await("all is as wanted", func(o outcome) bool { return w.settled(o) && w.surplus() == "" })
	w.set(resource.NewSet())
	w.done()
	for _, collection := range []string{"networks", "subnets", "routers", "ports"} {
		if left := w.neutron.All(collection); len(left) > 0 {
			t.Errorf("left of %s: %v", collection, left)
		}
	}
}

// surplus is what there is twice of a tenant.
func (w *world) surplus() string {
	for _, collection := range []string{"networks", "subnets", "routers"} {
		all := w.described(collection)
		if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
			return collection
		}
	}
	return ""
}
