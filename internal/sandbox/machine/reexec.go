// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The names by which this program knows that it is a machine's first process or its manager.
const (
	initName    = "coelan-machine-init"
	managerName = "coelan-machine"
)

// Every program that imports this package can be a machine: a test binary boots machines as the CLI
// does. It is an init function so that no importer can forget to call it, and so that nothing of
// the importer runs inside.
func init() {
	if len(os.Args) == 0 {
		return
	}
	var run func() error
	switch os.Args[0] {
	case initName:
		run = runInit
	case managerName:
		run = runManager
	default:
		return
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Descriptors that the machine's processes inherit.
const (
	controlFD = 3 // listening unix socket
	// A node: the network namespace that its wire leads to, which is the fabric's or its
	// hypervisor's; the fabric: the listener of the connections that it forwards.
	outerFD = 4
)

// runInit is the machine's first process. It ends, and the machine with it, when the manager does.
func runInit() error {
	// Namespaces belong to threads: the one that enters the cgroup namespace
	// must start the manager.
	runtime.LockOSThread()
	dir := os.Args[1]
	c, err := Read(dir)
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := mountAll(dir, c.Cgroup); err != nil {
		return err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{managerName}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2, controlFD, outerFD},
	})
	if err != nil {
		return fmt.Errorf("start manager: %w", err)
	}
	return reap(pid)
}

// reap collects every orphan of the machine until the manager ends.
func reap(manager int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		if pid == manager {
			return fmt.Errorf("the manager ended: exit status %d, signal %d", status.ExitStatus(), status.Signal())
		}
	}
}
