// SPDX-License-Identifier: Apache-2.0

// Package heartbeat reports loops that are stuck in one step, so that a liveness probe restarts the
// process. A loop that waits for events is healthy, however long it waits.
package heartbeat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bound is how long one step may take. Steps have bounds of their own of at most 30 seconds; this
// is several times as much, because a loaded machine must not restart what works.
const Bound = 5 * time.Minute

// Monitor knows the loops of a process. Its methods are safe for concurrent use.
type Monitor struct {
	bound time.Duration
	now   func() time.Time

	mu    sync.Mutex
	loops []*Loop
}

// New makes a Monitor without loops.
func New(bound time.Duration) *Monitor { return &Monitor{bound: bound, now: time.Now} }

// Loop is one loop, or several of one kind, such as the workers of a queue.
type Loop struct {
	name    string
	monitor *Monitor
	// steps are those under way, and when they began; none while the loop waits. The monitor's
	// mutex guards it.
	steps map[*step]time.Time
}

// step tells steps apart.
type step struct{ _ byte }

// Loop adds a loop, which waits.
func (m *Monitor) Loop(name string) *Loop {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &Loop{name: name, monitor: m, steps: map[*step]time.Time{}}
	m.loops = append(m.loops, l)
	return l
}

// Step notes that a step begins, and returns what notes its end.
func (l *Loop) Step() (done func()) {
	s := &step{}
	l.monitor.mu.Lock()
	defer l.monitor.mu.Unlock()
	l.steps[s] = l.monitor.now()
	return func() {
		l.monitor.mu.Lock()
		defer l.monitor.mu.Unlock()
		delete(l.steps, s)
	}
}

// oldest is how long the oldest step has been under way; 0 while the loop waits. The monitor's
// mutex is held.
func (l *Loop) oldest(now time.Time) (d time.Duration) {
	for _, since := range l.steps {
		d = max(d, now.Sub(since))
	}
	return d
}

// Check names the loops that have been in one step for longer than the bound.
func (m *Monitor) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var stuck []string
	for _, l := range m.loops {
		if d := l.oldest(now); d > m.bound {
			stuck = append(stuck, fmt.Sprintf("loop %s: stuck in one step for %s", l.name, d.Truncate(time.Second)))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	slices.Sort(stuck)
	return errors.New(strings.Join(stuck, "; "))
}
