// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// keyed is a set of locks by name: one holder for each name.
type keyed struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func newKeyed() *keyed { return &keyed{held: map[string]chan struct{}{}} }

// try takes the lock of name unless somebody has it.
func (k *keyed) try(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, taken := k.held[name]; taken {
		return false
	}
	k.held[name] = make(chan struct{})
	return true
}

// lock waits for the lock of name, or until ctx ends.
func (k *keyed) lock(ctx context.Context, name string) error {
	for !k.try(name) {
		k.mu.Lock()
		released := k.held[name]
		k.mu.Unlock()
		if released == nil {
			continue
		}
		select {
		case <-released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (k *keyed) unlock(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.held[name])
	delete(k.held, name)
}
