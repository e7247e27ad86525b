// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"testing"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// Addresses wait for flows without their Port, however often the intent changes after that.
func TestReleasedAddressesWaitForTheirRevision(t *testing.T) {
	store, stop := intent.NewStore(), errors.New("enough")
	change := func(f func(*intent.Tx)) uint64 {
		s, err := store.Update(func(tx *intent.Tx) error { f(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision()
	}
	var asked []uint64
	r := &releases{tracker: tracker{intent: store}, applied: func(_ context.Context, revision uint64) error {
		asked = append(asked, revision)
		return stop
	}}
	settle := func(want uint64) {
		t.Helper()
		if err := r.Settled(t.Context()); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if got := asked[len(asked)-1]; got != want {
			t.Errorf("waits for revision %d, want %d", got, want)
		}
	}
	var at attachment.Attachment
	at.Key = attachment.Key{ContainerID: "c", IfName: "eth0"}
	change(func(tx *intent.Tx) { tx.SetPort(intent.Port{ID: at.Key.String()}) })
	settle(0) // an earlier run released it
	gone := change(func(tx *intent.Tx) { tx.DeletePort(at.Key.String()) })
	r.released(at)
	change(func(tx *intent.Tx) { tx.SetPort(intent.Port{ID: "another"}) })
	settle(gone)
}
