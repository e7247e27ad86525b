// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guestSpec tells the guest's /init what to run.
type guestSpec struct {
	Args       []string // the program, an absolute path, and its arguments
	Env        []string // added to a plain environment
	Dir        string   // working directory
	ModulesDir string   // the kernel's modules, a path of the machine
	Release    string   // the kernel's release
}

// Names that both sides of the machine know.
const (
	rootTag    = "rootfs"
	outTag     = "out"
	outputPort = "coelan.output"
	outDir     = "/run/out"
)

// runGuest is the guest's process 1: it makes the root file system, runs the
// program there, leaves its exit status and powers the machine off. Process 1
// must not return, so every failure ends on the console and in the status.
func runGuest() {
	status, err := guest()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		status = statusHarness
	}
	if err := os.WriteFile(filepath.Join(outDir, statusFile), []byte(strconv.Itoa(status)), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Fprintln(os.Stderr, "guest: power off:", err)
	select {}
}

func guest() (int, error) {
	data, err := os.ReadFile("/spec.json")
	if err != nil {
		return 0, err
	}
	var spec guestSpec
	if err := json.Unmarshal(data, &spec); err != nil {
		return 0, err
	}
	for _, step := range []func(guestSpec) error{mountKernelFiles, loadBootModules, mountRoot, enterRoot, prepareRoot} {
		if err := step(spec); err != nil {
			return 0, err
		}
	}
	return runProgram(spec)
}

func loadBootModules(guestSpec) error {
	files, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// ripeAge is the uptime from which Open vSwitch 3.1 counts the processors: one
// that starts earlier runs no upcall handler and loses every packet without a
// flow. A time namespace in which the clock is ahead would do, but the kernel
// tells the age of flows by its own clock: all of them would seem idle, and
// ovs-vswitchd would throw away flows that are in use.
const ripeAge = 10 * time.Second

func awaitRipeAge() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	<-time.After(ripeAge - time.Duration(now.Nano()))
	return nil
}

// runProgram runs the program and returns its exit status.
func runProgram(spec guestSpec) (int, error) {
	out, err := openOutput()
	if err != nil {
		return 0, err
	}
	// No Close: unread output of a closed port is thrown away.
	if err := awaitRipeAge(); err != nil {
		return 0, err
	}
	c := exec.Command(spec.Args[0], spec.Args[1:]...)
	c.Dir, c.Stdout, c.Stderr = spec.Dir, out, out
	c.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		"COELAN_OUT=" + outDir,
	}, spec.Env...)
	if err := c.Start(); err != nil {
		return 0, err
	}
	return reap(c.Process.Pid)
}

// reap waits for the process pid, and for every orphan that ends before it.
func reap(pid int) (int, error) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		case got != pid:
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		default:
			return ws.ExitStatus(), nil
		}
	}
}

// openOutput opens the virtio port that is the program's standard output.
func openOutput() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if data, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(data)) == outputPort {
			fd, err := unix.Open(filepath.Join("/dev", filepath.Base(filepath.Dir(n))), unix.O_WRONLY, 0)
			if err != nil {
				return nil, fmt.Errorf("virtio port %s: %w", outputPort, err)
			}
			return os.NewFile(uintptr(fd), outputPort), nil
		}
	}
	return nil, fmt.Errorf("no virtio port %s among %v", outputPort, names)
}
