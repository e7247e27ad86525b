// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// A Neutron that asks to be left alone is: no call is made meanwhile, also when something else is
// wanted.
func TestRetryAfter(t *testing.T) {
	const after = 3 * time.Second // twice the longest first pause
	for name, tc := range map[string]struct {
		method, path string
		status       int
	}{
		"a list":               {http.MethodGet, "subnets", http.StatusServiceUnavailable},
		"what makes":           {http.MethodPost, "networks", http.StatusServiceUnavailable},
		"too many of a user's": {http.MethodPost, "networks", http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.done()
			var mu sync.Mutex
			var asked, next time.Time
			w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case asked.IsZero() && method == tc.method && path == tc.path:
					asked = time.Now()
					return neutronfake.Fault{Status: tc.status, RetryAfter: "3"}
				case !asked.IsZero() && next.IsZero():
					next = time.Now()
				}
				return neutronfake.None
			})
			w.set(tenant(1))
			w.client.Reread()
			if tc.method != http.MethodGet {
				w.await("it is away", func(o outcome) bool { return o.err != nil })
			}
			w.set(tenant(2))
			w.done()
			mu.Lock()
			defer mu.Unlock()
			if waited := next.Sub(asked); waited < after {
				t.Errorf("the next call comes after %v", waited)
			}
		})
	}
}
