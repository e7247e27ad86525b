// SPDX-License-Identifier: Apache-2.0

// Package child starts programs that end with the one that started them, however that ends.
package child

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command as cmd.Start does. The kernel kills it when this process ends.
//
// The kernel counts the death of the thread that started a program as its parent's (prctl(2),
// PR_SET_PDEATHSIG), and Go ends threads. So each program has a thread that stays until it ends.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			awaitEnd(cmd.Process.Pid)
		}
	}()
	return <-started
}

// awaitEnd returns when a child has ended, and leaves its status to cmd.Wait. If that was earlier,
// there is no child any more.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// Run runs a command as cmd.Run does.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
