// SPDX-License-Identifier: Apache-2.0

// Package retry paces attempts that fail: pauses double up to a bound and are jittered, so that
// many clients of one server do not come back at the same moment.
package retry

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// jitter is the largest share of a pause that is added to it.
const jitter = 0.5

// Backoff yields the pauses between attempts. It is not safe for concurrent use. New makes it.
type Backoff struct {
	start wait.Backoff
	next  wait.Backoff
}

// New returns a Backoff with pauses that begin at first and double up to last, each longer by up to
// a half at random.
func New(first, last time.Duration) *Backoff {
	b := wait.Backoff{Duration: first, Factor: 2, Jitter: jitter, Steps: math.MaxInt32, Cap: last}
	return &Backoff{start: b, next: b}
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration { return b.next.Step() }

// Reset begins anew with the first pause.
func (b *Backoff) Reset() { b.next = b.start }

// After takes the outcome of an attempt. After a failure it returns a channel that
// delivers when the next attempt is due; after success it begins anew and returns nil,
// from which a select never receives.
func (b *Backoff) After(err error) <-chan time.Time {
	if err == nil {
		b.Reset()
		return nil
	}
	return time.After(b.Next())
}

// Wait lasts for the next pause or until ctx ends, and says whether the pause is over.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep lasts for d or until ctx ends, and says whether d is over.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
