// SPDX-License-Identifier: Apache-2.0

package ovstest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a thread that stays in one network namespace. Processes that
// start from it inherit the namespace, and are killed when it ends: their
// parent-death signal follows the thread, not the whole test.
type Namespace struct {
	path  string
	calls chan func()
	ended chan struct{}
}

// NewNamespace enters the namespace at path, or a new one with a loopback
// interface if path is empty. The caller must Close it.
func NewNamespace(path string) (*Namespace, error) {
	ns := &Namespace{calls: make(chan func()), ended: make(chan struct{})}
	entered := make(chan error)
	go func() {
		defer close(ns.ended)
		// Never unlocked: the thread must not serve other goroutines, and must
		// end with this one.
		runtime.LockOSThread()
		err := enter(path)
		ns.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		entered <- err
		if err != nil {
			return
		}
		for fn := range ns.calls {
			fn()
		}
	}()
	if err := <-entered; err != nil {
		return nil, err
	}
	return ns, nil
}

func enter(path string) error {
	if path == "" {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace (root is needed): %w", err)
		}
		// Duplicate address detection takes about two seconds. A node that is asked for its
		// link-local address meanwhile does not know it, looks for it on the link, and answers
		// "unreachable" three seconds later.
		for _, setting := range []string{"accept_dad", "dad_transmits"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/"+setting, []byte("0"), 0); err != nil {
				return fmt.Errorf("new network namespace: %w", err)
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		return netlink.LinkSetUp(lo)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// Path is a name of the namespace that is valid until Close.
func (ns *Namespace) Path() string { return ns.path }

// Start starts a program in the namespace. It is killed when the namespace ends.
func (ns *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return ns.Do(cmd.Start)
}

// Do runs fn on the thread and returns its error. Calls run one after the other.
func (ns *Namespace) Do(fn func() error) error {
	errc := make(chan error, 1)
	ns.calls <- func() { errc <- fn() }
	return <-errc
}

// Close ends the thread, with the processes that were started on it.
func (ns *Namespace) Close() {
	close(ns.calls)
	<-ns.ended
}
