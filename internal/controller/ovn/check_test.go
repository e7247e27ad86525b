// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// theIntent is complete when ready is closed.
type theIntent struct {
	store *intent.Store
	ready chan struct{}
}

func (i theIntent) Intent() *intent.Store  { return i.store }
func (i theIntent) Ready() <-chan struct{} { return i.ready }

// Only a leader that knows all objects compares. That it cannot use the database is a finding, with
// the reason.
func TestCheckNeedsALeaderAndADatabase(t *testing.T) {
	all := theIntent{intent.NewStore(), make(chan struct{})}
	r, err := New(Options{
		Log: slog.New(slog.DiscardHandler), Remotes: []string{"tcp:192.0.2.1:6641", "tcp:192.0.2.2:6641"}, Intent: all,
		Monitor: heartbeat.New(heartbeat.Bound),
	})
	if err != nil {
		t.Fatal(err)
	}
	refuses := func(want string) {
		t.Helper()
		if _, err := r.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refuses("this controller does not lead")
	r.leads.Store(true)
	refuses("does not know all of the cluster's objects yet")
	close(all.ready)
	finds := func(want string) {
		t.Helper()
		c, err := r.Check(t.Context())
		if err != nil || c.OK || len(c.Findings) != 1 || c.Findings[0].Kind != "northbound" ||
			c.Findings[0].Object != "tcp:192.0.2.1:6641,tcp:192.0.2.2:6641" || c.Findings[0].Problem != want {
			t.Errorf("%+v, error %v, want %q", c, err, want)
		}
	}
	finds("has not been compared: this controller is not connected to OVN's northbound database")
	r.failure = errors.New("connection refused")
	finds("has not been compared: connection refused")
}
