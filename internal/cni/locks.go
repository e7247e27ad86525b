// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"sync"
)

// locks has one lock for each name that somebody holds or waits for.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the holder lets go
}

// lock waits until nobody else holds the name, or ctx ends. The returned function lets go.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		wait, taken := l.held[name]
		if !taken {
			done := make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[name] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, name)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("another call for container %s is still running: %w", name, ctx.Err())
		}
	}
}
