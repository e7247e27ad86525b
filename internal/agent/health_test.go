// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/heartbeat"
)

// A loop that waits is healthy for however long; one that does not come back from a step fails the
// probe, which names it.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoops(heartbeat.Bound)
		time.Sleep(24 * time.Hour) // there is nothing to do
		if err := l.monitor.Check(); err != nil {
			t.Errorf("a loop that waits: %v", err)
		}
		done := l.objects.Step()
		time.Sleep(heartbeat.Bound)
		if err := l.monitor.Check(); err != nil {
			t.Errorf("a loop within its bound: %v", err)
		}
		time.Sleep(time.Second)
		if err := l.monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop objects: stuck") {
			t.Errorf("a stuck loop: %v", err)
		}
		done()
		if err := l.monitor.Check(); err != nil {
			t.Errorf("a loop that has ended: %v", err)
		}
	})
}
