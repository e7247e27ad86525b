// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// With a Neutron that answers every tenth call with 503, 1,000 ports are there once each, and all
// go again; fewer of them with one that has done what it says that it has not.
func TestBusy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault neutronfake.Fault
		ports []int
	}{
		{"nothing is done", neutronfake.Busy, []int{300, 600, 1000, 600, 300, 0}}, {"all is done", neutronfake.Lost, []int{200, 40, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorldWith(t, func(c *Client) { c.least = time.Millisecond })
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%10 == 9 {
					return tc.fault
				}
				return neutronfake.None
			})
			for _, n := range tc.ports {
				w.set(tenant(n))
				w.done()
				if diff := w.difference(w.want); diff != "" {
					t.Errorf("%d ports (-want +there):\n%s", n, diff)
				}
			}
		})
	}
}
