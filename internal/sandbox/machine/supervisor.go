// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"coelan.io/coelan/internal/broadcast"
)

// supervisor keeps the machine's components running.
type supervisor struct {
	dir    string // the machine's directory, "/" inside it
	units  []*unit
	uplink *uplink // nil on the fabric
}

// unit is one component and its state. Each change of the state wakes all waiters.
type unit struct {
	Component
	supervisor *supervisor

	mu      sync.Mutex
	wanted  bool
	status  Status
	process *os.Process         // nil unless it runs
	changed broadcast.Broadcast // at each change
}

func newSupervisor(dir string, components []Component, uplink *uplink) *supervisor {
	s := &supervisor{dir: dir, uplink: uplink}
	for _, c := range components {
		s.units = append(s.units, &unit{
			Component: c, supervisor: s, wanted: !c.Off,
			status: Status{Name: c.Name, State: Stopped, Since: time.Now()},
		})
	}
	return s
}

// run starts everything and returns when the context has ended and every process with it.
func (s *supervisor) run(ctx context.Context) {
	var group sync.WaitGroup
	for _, u := range s.units {
		group.Go(func() { u.run(ctx) })
	}
	group.Wait()
}

func (s *supervisor) find(name string) *unit {
	i := slices.IndexFunc(s.units, func(u *unit) bool { return u.Name == name })
	if i < 0 {
		return nil
	}
	return s.units[i]
}

func (s *supervisor) status() []Status {
	list := make([]Status, 0, len(s.units))
	for _, u := range s.units {
		if status, wanted, _ := u.observe(); wanted || !u.Off || status.State != Stopped {
			list = append(list, status)
		}
	}
	return list
}

// observe returns the state, whether the component is wanted, and a channel that is
// closed when either changes.
func (u *unit) observe() (Status, bool, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status, u.wanted, u.changed.Changed()
}

func (u *unit) update(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
	u.changed.Send()
}

func (u *unit) setState(state State) {
	u.update(func() { u.status.State, u.status.PID, u.status.Since = state, 0, time.Now() })
}

func (u *unit) setWanted(wanted bool) { u.update(func() { u.wanted = wanted }) }

// wait returns when the unit is in the state.
func (u *unit) wait(ctx context.Context, state State) error {
	for {
		status, _, changed := u.observe()
		if status.State == state {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s is %s, not %s: %w", u.Name, status.State, state, ctx.Err())
		}
	}
}

// stopTimeout is how long a component may take to end by itself.
const stopTimeout = 10 * time.Second

func (u *unit) stop(ctx context.Context, signal syscall.Signal) error {
	u.setWanted(false)
	if err := u.kill(signal); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if u.wait(patient, Stopped) == nil {
		return nil
	}
	if err := u.kill(syscall.SIGKILL); err != nil {
		return err
	}
	return u.wait(ctx, Stopped)
}

// crash ends the running process without notice and returns when it has ended. The
// unit is started again.
func (u *unit) crash(ctx context.Context) error {
	before, _, _ := u.observe()
	if err := u.kill(syscall.SIGKILL); err != nil {
		return err
	}
	for before.PID != 0 {
		now, _, changed := u.observe()
		if now.PID != before.PID {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// kill signals the running process, if there is one.
func (u *unit) kill(signal syscall.Signal) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.process == nil {
		return nil
	}
	if err := u.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: signal: %w", u.Name, err)
	}
	return nil
}
