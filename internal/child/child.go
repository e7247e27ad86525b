// SPDX-License-Identifier: Apache-2.0

// Package child starts programs that end with the one that started them, however that ends.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts a command as cmd.Start does. The kernel kills it when this process ends.
//
// The kernel counts the death of the thread that started a program as its parent's (prctl(2),
// PR_SET_PDEATHSIG), and Go ends threads. So one thread starts all, and ends with the process.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// Run runs a command as cmd.Run does.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})
