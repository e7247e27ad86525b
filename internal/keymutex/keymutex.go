// SPDX-License-Identifier: Apache-2.0

// Package keymutex provides one lock for each key.
package keymutex

import (
	"context"
	"sync"
)

// Mutex is a set of locks, one for each name. The zero value is ready to use.
type Mutex struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the holder unlocks
}

// TryLock takes the lock of name if it is free; ok says whether it was.
func (m *Mutex) TryLock(name string) (unlock func(), ok bool) {
	unlock, _ = m.take(name)
	return unlock, unlock != nil
}

// Lock waits for the lock of name. Its error is that of ctx, which ended before.
func (m *Mutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, released := m.take(name)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-released:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Held reports whether the lock of name is taken.
func (m *Mutex) Held(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, taken := m.held[name]
	return taken
}

// take returns how to unlock, or what is closed when the present holder unlocks.
func (m *Mutex) take(name string) (unlock func(), released <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.held[name]; taken {
		return nil, other
	}
	if m.held == nil {
		m.held = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	m.held[name] = done
	return func() {
		m.mu.Lock()
		delete(m.held, name)
		m.mu.Unlock()
		close(done)
	}, nil
}
