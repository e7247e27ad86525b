// SPDX-License-Identifier: Apache-2.0

// Package apicachetest opens the stores of a node for tests of what works on them.
package apicachetest

import (
	"log/slog"
	"path/filepath"
	"testing"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/attachment"
)

// Open opens a new store of attachments, until the end of the test, and a view that is kept in it.
func Open(t testing.TB) (*attachment.Store, *apicache.View) {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	v, err := apicache.New(slog.New(slog.DiscardHandler), store)
	if err != nil {
		t.Fatal(err)
	}
	return store, v
}
