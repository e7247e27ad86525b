// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// supervisor keeps the machine's components running.
type supervisor struct {
	units  []*unit
	uplink *uplink // nil on the fabric
}

// unit is one component and its state. Whoever changes the state wakes all who wait for one.
type unit struct {
	Component
	supervisor *supervisor

	mu      sync.Mutex
	wanted  bool
	status  Status
	process *os.Process // nil unless it runs
	changed chan struct{} // closed and replaced at each change
}

func newSupervisor(components []Component, uplink *uplink) *supervisor {
	s := &supervisor{uplink: uplink}
	for _, c := range components {
		s.units = append(s.units, &unit{
			Component: c, supervisor: s, wanted: true, changed: make(chan struct{}),
			status: Status{Name: c.Name, State: Stopped, Since: time.Now()},
		})
	}
	return s
}

func (s *supervisor) start(ctx context.Context) {
	for _, u := range s.units {
		go u.run(ctx)
	}
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
		status, _, _ := u.observe()
		list = append(list, status)
	}
	return list
}

// observe returns the state, whether the component is wanted, and a channel that is closed when either changes.
func (u *unit) observe() (Status, bool, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status, u.wanted, u.changed
}

func (u *unit) update(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
	close(u.changed)
	u.changed = make(chan struct{})
}

func (u *unit) setState(state State, pid int) {
	u.update(func() { u.status.State, u.status.PID, u.status.Since = state, pid, time.Now() })
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

// Times between an exit that nobody asked for and the next start. A component that ran for a while starts at once.
const (
	steady     = 10 * time.Second
	firstDelay = 200 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// run starts the unit whenever it is wanted and does not run.
func (u *unit) run(ctx context.Context) {
	delay := time.Duration(0)
	for {
		u.waitWanted()
		began := time.Now()
		err := u.once(ctx)
		_, wanted, _ := u.observe()
		if !wanted {
			delay = 0
			u.setState(Stopped, 0)
			continue
		}
		slog.Warn("component ended", "component", u.Name, "err", err)
		u.update(func() {
			u.status.Restarts++
			u.status.Error = fmt.Sprint(err)
			u.status.State, u.status.PID, u.status.Since = Waiting, 0, time.Now()
		})
		if time.Since(began) >= steady {
			delay = 0
		}
		u.pause(delay)
		delay = min(max(2*delay, firstDelay), lastDelay)
	}
}

func (u *unit) waitWanted() {
	for {
		_, wanted, changed := u.observe()
		if wanted {
			return
		}
		<-changed
	}
}

// pause waits for the delay, or until the unit is no longer wanted.
func (u *unit) pause(delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		_, wanted, changed := u.observe()
		if !wanted {
			return
		}
		select {
		case <-timer.C:
			return
		case <-changed:
		}
	}
}

// once runs the component from its preconditions to its end, and tells why it ended.
func (u *unit) once(ctx context.Context) error {
	u.setState(Waiting, 0)
	if err := u.preconditions(ctx); err != nil {
		return err
	}
	log, err := os.OpenFile(Log("/", u.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	for _, args := range u.Before {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	fmt.Fprintf(log, "--- %s start %v\n", time.Now().Format(time.RFC3339Nano), u.Command)
	cmd := exec.Command(u.Command[0], u.Command[1:]...)
	cmd.Env = append(os.Environ(), u.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	u.update(func() {
		u.process = cmd.Process
		u.status.State, u.status.PID, u.status.Since = Starting, cmd.Process.Pid, time.Now()
	})
	if _, wanted, _ := u.observe(); !wanted { // a stop that came while there was nothing to signal
		_ = u.kill(syscall.SIGTERM)
	}
	live, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.becomeReady(live)
	}()
	err = cmd.Wait()
	u.update(func() { u.process = nil })
	cancel()
	<-done
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// preconditions waits for the components in After; for Reach only so long: on a real machine nothing waits for
// another machine at all.
func (u *unit) preconditions(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			_, wanted, changed := u.observe()
			if !wanted {
				cancel()
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	for _, name := range u.After {
		other := u.supervisor.find(name)
		if other == nil {
			return fmt.Errorf("no component %s", name)
		}
		if err := other.wait(ctx, Ready); err != nil {
			return err
		}
	}
	if u.Reach != "" {
		reach, cancel := context.WithTimeout(ctx, bootTimeout)
		defer cancel()
		_ = reachable(reach, u.Reach)
	}
	return nil
}

// becomeReady watches a started process until it answers. One that cannot carry the uplink is ended, to try again.
func (u *unit) becomeReady(ctx context.Context) {
	status, _, _ := u.observe()
	if u.Ready.wait(ctx, status.PID) != nil {
		return
	}
	if u.Uplink && u.supervisor.uplink != nil {
		if err := u.supervisor.uplink.configure(ctx); err != nil {
			slog.Error("cannot configure the uplink", "component", u.Name, "err", err)
			_ = u.kill(syscall.SIGTERM)
			return
		}
	}
	u.update(func() {
		if ctx.Err() == nil {
			u.status.State, u.status.Since = Ready, time.Now()
		}
	})
}
