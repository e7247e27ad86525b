// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Boot starts the machine that has its configuration on the disk in dir, and returns
// once its manager answers. It outlives this process. The machine inherits extra:
// see controlFD and outerFD.
func Boot(ctx context.Context, dir string, extra *os.File) error {
	c, err := Read(dir)
	if err != nil {
		return err
	}
	// Those of the machine's last life: a kernel starts with none.
	if err := RemoveCgroups(ctx, c.Cgroup); err != nil {
		return err
	}
	socket := filepath.Join(dir, socketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	control, err := listener.File()
	if err != nil {
		return err
	}
	defer control.Close()
	log, err := os.OpenFile(Log(dir, "machine"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{initName, dir}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
		"LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{control, extra}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	pid := cmd.Process.Pid
	if err := writePID(dir, pid); err != nil {
		return errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	return answer(ctx, dir, pid)
}

// answer waits until the manager does, or its machine is gone.
func answer(ctx context.Context, dir string, pid int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if waitGone(ctx, pid) == nil {
			cancel(fmt.Errorf("died while booting; see %s", Log(dir, "machine")))
		}
	}()
	_, err := Dial(dir).Status(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	<-gone
	return err
}

// Kill ends every process of the machine in dir at once, like a power cut, and waits until they are
// gone. A machine that does not run is no error.
func Kill(ctx context.Context, dir string) error {
	pid, ok := PID(dir)
	if !ok {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	if err := waitGone(ctx, pid); err != nil {
		return fmt.Errorf("process %d does not end: %w", pid, err)
	}
	for _, file := range []string{pidFile, socketFile} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// waitGone returns once the process has ended. The first process of a PID namespace ends after all
// others in it.
func waitGone(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			// If it is this process's child it must be collected; if not, that
			// is another's business.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			return nil
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
	return context.Cause(ctx)
}

func writePID(dir string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, pidFile), fmt.Appendf(nil, "%d %s\n", pid, start), 0o644)
}

// PID is the machine's first process as seen from outside; false if it does not run. The time of
// its start guards against another process that got the same number.
func PID(dir string) (int, bool) {
	data, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return 0, false
	}
	number, start, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return 0, false
	}
	now, err := startTime(pid)
	return pid, err == nil && now == start
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot; an error if
// the process has ended.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command's name, in parentheses, may hold spaces; field 3 follows it.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// Network opens the network namespace of the machine in dir.
func Network(dir string) (*os.File, error) {
	pid, ok := PID(dir)
	if !ok {
		return nil, fmt.Errorf("%s: the machine does not run", dir)
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
}

// Enter is a command line that runs args inside the machine in dir, in all its namespaces.
func Enter(dir string, args ...string) ([]string, error) {
	pid, ok := PID(dir)
	if !ok {
		return nil, errors.New("the machine does not run")
	}
	return append([]string{
		"nsenter", "--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
	}, args...), nil
}

// bootTimeout bounds the wait for a component's Reach and commands in Before.
const bootTimeout = 30 * time.Second
