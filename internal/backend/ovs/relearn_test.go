// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
)

// An agent that changes flows has the datapath forget what it has learned, again and again until
// that succeeds, but not all the time; one that finds the flows that it wants leaves it alone.
func TestRelearn(t *testing.T) {
	r := newRefusals(t)
	var calls int
	failure := errors.New("ovs-vswitchd does not answer")
	r.flows.relearn = func(context.Context) error { calls++; return failure }
	sync := func(want int, wantErr error) {
		t.Helper()
		if err := r.flows.sync(t.Context(), r.flows.store.State()); !errors.Is(err, wantErr) || calls != want {
			t.Errorf("%d calls, %v; want %d, %v", calls, err, want, wantErr)
		}
	}
	change := func(mode intent.PolicyMode) {
		r.update(func(tx *intent.Tx) {
			l := r.flows.store.State().Local()
			l.PolicyMode = mode
			tx.SetLocal(l)
		})
	}
	restart := func(mode intent.PolicyMode) {
		change(mode)
		r.flows.bridge = bridge.New(bridge.Options{
			Connect: func(context.Context) (bridge.Switch, error) { return r.sw, nil },
		})
	}
	later := func() { r.flows.relearned = time.Now().Add(-relearnPause) }
	isDue := func(want bool) {
		t.Helper()
		if got := r.flows.due() != nil; got != want {
			t.Errorf("another one is due: %v, want %v", got, want)
		}
	}
	later()
	restart(intent.UnenforcedPolicies)
	sync(1, failure)
	sync(1, nil) // too early
	isDue(true)
	later()
	sync(2, failure)
	failure = nil
	later()
	sync(3, nil)
	isDue(false)
	later()
	sync(3, nil)
	restart(intent.UnenforcedPolicies)
	sync(3, nil)
	restart(intent.EnforcedPolicies)
	sync(4, nil)
	change(intent.UnenforcedPolicies)
	sync(4, nil) // too early
	isDue(true)
	later()
	lost := errors.New("the switch is away")
	r.flows.bridge = bridge.New(bridge.Options{
		Connect: func(context.Context) (bridge.Switch, error) { return nil, lost },
	})
	sync(4, lost)
	if time.Since(r.flows.relearned) >= relearnPause {
		t.Error("another one is due at once while the switch is away")
	}
	restart(intent.UnenforcedPolicies)
	later()
	sync(5, nil)
	isDue(false)
}
