// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheLast(t *testing.T) {
	b := New(time.Second, 5*time.Second)
	for range 2 {
		for i, want := range []time.Duration{1, 2, 4, 5, 5, 5} {
			want *= time.Second
			if got := b.Next(); got < want || got > want+want/2 {
				t.Errorf("pause %d is %v, want %v and up to a half more", i, got, want)
			}
		}
		b.Reset()
	}
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, failed := New(time.Second, time.Minute), errors.New("failed")
		for _, want := range []time.Duration{1, 2, 4} {
			start := time.Now()
			<-b.After(failed)
			if got := time.Since(start); got < want*time.Second || got > want*1500*time.Millisecond {
				t.Errorf("the next attempt is due after %v, want about %d s", got, want)
			}
		}
		if b.After(nil) != nil {
			t.Error("an attempt is due after success")
		}
		if got := b.Next(); got > 1500*time.Millisecond {
			t.Errorf("the first pause after success is %v, want about 1 s", got)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if !New(time.Millisecond, time.Millisecond).Wait(ctx) {
		t.Error("a pause is over, and Wait says that it is not")
	}
	cancel()
	if New(time.Hour, time.Hour).Wait(ctx) {
		t.Error("the context ended, and Wait says that the pause is over")
	}
}
