// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"strings"
	"testing"
	"time"
)

// pollInterval is the time between two looks at state that has no events.
const pollInterval = 20 * time.Millisecond

// pollTimeout bounds what poll waits for.
const pollTimeout = 30 * time.Second

// poll waits until ok, or calls failed and ends the test.
func poll(ctx context.Context, t *testing.T, ok func() bool, failed func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	pollEach(ctx, t, pollInterval, ok, failed)
}

// pollEach is poll that looks at each interval, until ctx ends.
func pollEach(ctx context.Context, t *testing.T, interval time.Duration, ok func() bool, failed func()) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			failed()
			t.FailNow()
		}
	}
}

// hasEvent looks for an Event with a text; an empty reason is any.
func hasEvent(w *world, reason, text string) bool {
	for _, e := range w.API.Events() {
		if (reason == "" || e.Reason == reason) && strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}
