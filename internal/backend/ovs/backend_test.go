// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/policy"
)

// testBackend is node n1's, not connected to anything.
func testBackend(t *testing.T, events backend.Events) *Backend {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b, err := New(backend.Options{
		Config: config.Default(), Node: "n1", Log: log, Intent: intent.NewStore(), Attachments: store,
		Interfaces: &keymutex.Mutex{}, Conditions: conditions.New(log, Conditions()...),
		Monitor: heartbeat.New(heartbeat.Bound), Metrics: prometheus.NewRegistry(), Events: events,
		Hooks: backend.Hooks{
			Begin: func(context.Context) {}, Warn: func(string, error) {}, Reconciled: func(error) {},
			InterfaceGone: func() {}, UplinksChanged: func() {}, Repaired: func(int) {}, Swept: func(string, int) {},
			Refused: func([]policy.Refusal) {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.flows.relearn = func(context.Context) error { return nil } // there is no ovs-vswitchd
	return b
}
