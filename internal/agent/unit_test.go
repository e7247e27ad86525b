// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"testing"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
)

// The physical networks of the configuration are the backend's from the start: their ports have
// numbers before the first flows are made.
func TestBackendIsMadeForTheUplinks(t *testing.T) {
	c := config.Default()
	c.StateDir = t.TempDir()
	c.BridgeMappings = map[string]string{"office": "br-office"}
	a, err := New(Options{Config: c, Backend: openVSwitch(), NodeName: "worker1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if a.store, err = attachment.Open(c.StateFile(installation.State)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.store.Close() })
	if err := a.makeParts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.backend.Uplinks(); len(got) != 1 || got["office"] == 0 {
		t.Errorf("ports of physical networks: %v", got)
	}
}
