// SPDX-License-Identifier: Apache-2.0

package keymutex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestLocksOfOneNameExclude(t *testing.T) {
	var m Mutex
	var counts [3]int
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			unlock, err := m.Lock(t.Context(), fmt.Sprint(i%3))
			if err != nil {
				t.Error(err)
				return
			}
			counts[i%3]++
			unlock()
		})
	}
	wg.Wait()
	if counts != [3]int{20, 20, 20} {
		t.Errorf("counts: %v", counts)
	}
}

func TestHeldNames(t *testing.T) {
	var m Mutex
	unlock, ok := m.TryLock("a")
	if !ok {
		t.Fatal("a free name cannot be locked")
	}
	if !m.Held("a") || m.Held("b") {
		t.Error("a is not held, or b is")
	}
	if _, again := m.TryLock("a"); again {
		t.Error("a held name is locked twice")
	}
	if _, other := m.TryLock("b"); !other {
		t.Error("another name cannot be locked")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := m.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock of a held name: %v", err)
	}
	unlock()
	if m.Held("a") {
		t.Error("an unlocked name is held")
	}
	if _, ok := m.TryLock("a"); !ok {
		t.Error("an unlocked name cannot be locked")
	}
}
