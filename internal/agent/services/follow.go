// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// follower does what has to wait until flows are on the switch.
type follower struct {
	*Services
	wake trigger.Trigger

	mu       sync.Mutex
	revision uint64
	since    []time.Time
	stale    []backend.Balanced
}

func newFollower(s *Services) *follower { return &follower{Services: s, wake: trigger.New()} }

// add takes a change of the intent, and when the API's first event came that made it.
func (f *follower) add(before, after *intent.State, first time.Time) {
	var gone []backend.Balanced
	for _, key := range intent.Diff(before, after).NodeServices {
		old, _ := before.NodeServices().Get(key)
		now, _ := after.NodeServices().Get(key)
		gone = append(gone, stale(old, now)...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = after.Revision()
	if !first.IsZero() {
		f.since = append(f.since, first)
	}
	f.stale = append(f.stale, gone...)
	f.wake.Fire()
}

// run works until ctx ends.
func (f *follower) run(ctx context.Context) {
	var forgetting sync.WaitGroup
	defer forgetting.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		revision, since, gone := f.revision, f.since, f.stale
		f.since, f.stale = nil, nil
		f.mu.Unlock()
		for f.Applied(ctx, revision) != nil {
			if ctx.Err() != nil {
				return
			}
		}
		for _, t := range since {
			f.Observe(time.Since(t))
		}
		if len(gone) > 0 {
			forgetting.Go(func() {
				if err := f.Connections.ForgetBalanced(ctx, gone); err != nil && ctx.Err() == nil {
					f.Log.Warn("cannot delete conntrack entries of removed UDP endpoints; clients may keep using these",
						"err", err)
				}
			})
		}
	}
}
