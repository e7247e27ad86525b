// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// supervise runs the components until the test ends.
func supervise(t *testing.T, components ...Component) *supervisor {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "var/log"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(dir, components, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStopAndStart(t *testing.T) {
	s := supervise(t, Component{Name: "a", Command: []string{"sleep", "60"}})
	ctx, a := within(t), s.find("a")
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	first := s.status()[0].PID
	if err := a.stop(ctx, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, 0); err != syscall.ESRCH {
		t.Errorf("process %d after the stop: %v", first, err)
	}
	a.setWanted(true)
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	if got := s.status()[0]; got.PID == first || got.Restarts != 0 {
		t.Errorf("after a start that was asked for: %+v", got)
	}
}

func TestCrashIsRestarted(t *testing.T) {
	s := supervise(t, Component{Name: "a", Command: []string{"sleep", "60"}})
	ctx, a := within(t), s.find("a")
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	first := s.status()[0].PID
	if err := a.crash(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	got := s.status()[0]
	if got.PID == first || got.Restarts != 1 || !strings.Contains(got.Error, "killed") {
		t.Errorf("after a crash: %+v", got)
	}
}

// Processes that a program has started would keep its addresses from the next one.
func TestGroupEndsWithItsComponent(t *testing.T) {
	dir := t.TempDir()
	lock, held := filepath.Join(dir, "lock"), filepath.Join(dir, "held")
	script := fmt.Sprintf("flock %s sh -c 'touch %s; sleep 60' & wait", lock, held)
	s := supervise(t, Component{Name: "a", Command: []string{"sh", "-c", script}, Group: true})
	ctx, a := within(t), s.find("a")
	if err := retry(ctx, func() error { _, err := os.Stat(held); return err }); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, "flock", "--timeout", "5", lock, "true").CombinedOutput(); err != nil {
		t.Errorf("a process of the component is left: %v: %s", err, out)
	}
}

// Some programs take a connection that is only a look for a client.
func TestReadyByFiles(t *testing.T) {
	dir := t.TempDir()
	first, socket := filepath.Join(dir, "first"), filepath.Join(dir, "socket")
	if err := os.WriteFile(first, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := supervise(t, Component{Name: "a", Command: []string{"sleep", "60"}, Ready: Probe{Files: []string{first, socket}}})
	ctx, a := within(t), s.find("a")
	if err := a.wait(ctx, Starting); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	if err := listener.(*net.UnixListener).SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if conn, err := listener.Accept(); err == nil {
		conn.Close()
		t.Error("it was connected to")
	}
}

// A component that cannot start differs in its state from one that is not wanted,
// and can be stopped.
func TestStopWhileFailing(t *testing.T) {
	s := supervise(t, Component{Name: "a", Command: []string{"false"}})
	ctx, a := within(t), s.find("a")
	for {
		status, _, changed := a.observe()
		if status.Restarts > 1 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("not restarted: %+v", status)
		}
	}
	if err := a.stop(ctx, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// A component starts only when those that it needs are ready, and is ready only when
// its probe is satisfied.
func TestAfterAndReady(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := supervise(t,
		Component{Name: "b", Command: []string{"sleep", "60"}, After: []string{"a"}},
		Component{Name: "a", Command: []string{"sleep", "60"}, Ready: Probe{Socket: socket}},
	)
	ctx := within(t)
	if err := s.find("a").wait(ctx, Starting); err != nil {
		t.Fatal(err)
	}
	if got := s.status()[0].State; got != Waiting && got != Stopped {
		t.Errorf("b is %s before a is ready", got)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := s.find("b").wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	if got := s.status()[1].State; got != Ready {
		t.Errorf("a is %s when b is ready", got)
	}
}

func TestBeforeFails(t *testing.T) {
	s := supervise(t, Component{Name: "a", Command: []string{"sleep", "60"}, Before: [][]string{{"false"}}})
	ctx, a := within(t), s.find("a")
	for {
		status, _, changed := a.observe()
		if status.Error != "" {
			if want := "[false]: exit status 1"; status.Error != want {
				t.Errorf("error %q, want %q", status.Error, want)
			}
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no error: %+v", status)
		}
	}
}

// A component that is off is not there until it is started.
func TestOff(t *testing.T) {
	s := supervise(t, Component{Name: "a", Command: []string{"sleep", "60"}, Off: true})
	ctx, a := within(t), s.find("a")
	if got := s.status(); len(got) != 0 {
		t.Errorf("at boot: %+v", got)
	}
	a.setWanted(true)
	if err := a.wait(ctx, Ready); err != nil {
		t.Fatal(err)
	}
	if got := s.status(); len(got) != 1 {
		t.Errorf("after a start: %+v", got)
	}
	if err := a.stop(ctx, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := s.status(); len(got) != 0 {
		t.Errorf("after a stop: %+v", got)
	}
}
