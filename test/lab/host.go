// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/ovstest"
)

// Host is a network namespace: a node, a pod, or the host outside. Its methods
// may be called by several goroutines at once.
type Host struct {
	Name string
	// Addresses are the host's own, with the prefix length of its subnet; at
	// most one of each family, IPv4 first.
	Addresses []netip.Prefix

	ns    *ovstest.Namespace
	netns string
}

func newHost(name string, addresses []netip.Prefix) (*Host, error) {
	ns, err := ovstest.NewNamespace("")
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	return &Host{Name: name, Addresses: addresses, ns: ns, netns: ns.Path()}, nil
}

// Netns is the path of the host's network namespace. After the host's end
// nothing is there.
func (h *Host) Netns() string { return h.netns }

// Address is the host's address of a family; invalid if it has none.
func (h *Host) Address(f Family) netip.Addr {
	for _, p := range h.Addresses {
		if FamilyOf(p.Addr()) == f {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// Do runs fn on a thread that is in the host's namespace. Sockets that fn opens stay there,
// whichever thread uses them later. Processes are started by Start.
func (h *Host) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := enter(h.Netns()); err != nil {
			done <- fmt.Errorf("host %s: %w", h.Name, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

func enter(netns string) error {
	f, err := os.Open(netns)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// Start starts a process in the host's namespace. It is killed with the host.
func (h *Host) Start(cmd *exec.Cmd) error {
	return h.ns.Start(cmd)
}

// Run runs a program in the host's namespace and returns what it printed.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := h.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	text := strings.TrimSpace(out.String())
	if err != nil {
		return text, fmt.Errorf("on %s: %s %s: %w: %s", h.Name, name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// close ends the namespace and every process in it.
func (h *Host) close() {
	if h.ns != nil {
		h.ns.Close()
		h.ns = nil
	}
}
