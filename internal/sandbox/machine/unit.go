// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Times between an unexpected exit and the next start. A component that ran for a
// while starts at once.
const (
	steady     = 10 * time.Second
	firstDelay = 200 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// run starts the unit whenever it is wanted and does not run.
func (u *unit) run(ctx context.Context) {
	delay := time.Duration(0)
	for u.waitWanted(ctx) {
		began := time.Now()
		err := u.once(ctx)
		if _, wanted, _ := u.observe(); !wanted || ctx.Err() != nil {
			delay = 0
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
		u.pause(ctx, delay)
		delay = min(max(2*delay, firstDelay), lastDelay)
	}
}

// waitWanted returns true when the unit is wanted, false when the context has ended.
func (u *unit) waitWanted(ctx context.Context) bool {
	for ctx.Err() == nil {
		status, wanted, changed := u.observe()
		if wanted {
			return true
		}
		if status.State != Stopped {
			u.setState(Stopped)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// pause waits for the delay, or until the unit is no longer wanted.
func (u *unit) pause(ctx context.Context, delay time.Duration) {
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
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// once runs the component from its preconditions to its end, and tells why it ended.
func (u *unit) once(ctx context.Context) error {
	u.setState(Waiting)
	if err := u.preconditions(ctx); err != nil {
		return err
	}
	log, err := os.OpenFile(Log(u.supervisor.dir, u.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
	cmd := exec.CommandContext(ctx, u.Command[0], u.Command[1:]...)
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
	if u.Group {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails only if none is left
	}
	u.update(func() { u.process = nil })
	cancel()
	<-done
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// preconditions waits for the components in After; for Reach only so long: on a real machine
// nothing waits for another machine at all.
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

// becomeReady watches a started process until it answers. One that cannot carry the uplink is
// ended, to try again.
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
