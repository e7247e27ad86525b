// SPDX-License-Identifier: Apache-2.0

// Package broadcast wakes all goroutines that wait for a change of a value.
package broadcast

import "sync"

// Broadcast wakes its waiters with each Send. The zero value is ready to use.
//
// A waiter takes the channel, looks at the value and then waits. A change after it has looked
// closes the channel that it holds, so it misses none.
type Broadcast struct {
	mu      sync.Mutex
	changed chan struct{}
}

// Changed returns a channel that the next Send closes.
func (b *Broadcast) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// Send wakes all that wait.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}
