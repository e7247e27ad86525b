// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/heartbeat"
)

// A loop that waits is healthy for however long; one that does not come back from a step fails the
// probe, which names it.
func TestHealthz(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoops(heartbeat.Bound)
		probe := func() (int, string) {
			w := httptest.NewRecorder()
			healthz(l.monitor).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return w.Code, w.Body.String()
		}
		time.Sleep(24 * time.Hour) // there is nothing to do
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("a loop that waits: %d %s", code, text)
		}
		done := l.objects.Step()
		time.Sleep(heartbeat.Bound)
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("a loop within its bound: %d %s", code, text)
		}
		time.Sleep(time.Second)
		if code, text := probe(); code != http.StatusInternalServerError || !strings.Contains(text, "loop objects: stuck") {
			t.Errorf("a stuck loop: %d %s", code, text)
		}
		done()
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("a loop that has ended: %d %s", code, text)
		}
	})
}
