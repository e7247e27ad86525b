// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/backend/ovs/quarantine"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// The loop that writes flows is healthy while there is nothing to write, and is told of when it is
// stuck in a write.
func TestStuckFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitor, store := heartbeat.New(heartbeat.Bound), intent.NewStore()
		stuck, release := make(chan struct{}), make(chan struct{})
		f := &flows{
			store: store, quarantine: quarantine.New(), loop: monitor.Loop("flows"), wake: trigger.New(), begin: func(context.Context) {},
			work: func(context.Context, *intent.State) error {
				close(stuck)
				<-release // whatever its context says
				return errors.New("no switch")
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = f.run(ctx); close(ended) }()
		time.Sleep(24 * time.Hour)
		if err := monitor.Check(); err != nil {
			t.Errorf("a loop that waits: %v", err)
		}
		if _, err := store.Update(func(tx *intent.Tx) error { tx.SetLocal(intent.Local{Node: "a"}); return nil }); err != nil {
			t.Fatal(err)
		}
		<-stuck
		time.Sleep(heartbeat.Bound + time.Second)
		if err := monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop flows: stuck") {
			t.Errorf("a stuck loop: %v", err)
		}
		cancel()
		close(release)
		<-ended
	})
}
