// SPDX-License-Identifier: Apache-2.0

// Package nstest makes network namespaces for tests. It needs root.
package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
)

// NS is a network namespace that ends with the test, and with the process.
type NS struct {
	ns.NetNS
	path string
}

// New makes a namespace without any interface but the loopback, which is down.
func New(t testing.TB) *NS {
	t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("new network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { _ = n.Close() }) // a test may have closed it
	return &NS{NetNS: n, path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd())}
}

// Path leads to the namespace until it is closed.
func (n *NS) Path() string { return n.path }

// Run calls fn on a thread that is in the namespace.
func (n *NS) Run(t testing.TB, fn func() error) {
	t.Helper()
	if err := n.Do(func(ns.NetNS) error { return fn() }); err != nil {
		t.Fatal(err)
	}
}

// Command runs a program in the namespace and returns what it printed.
func (n *NS) Command(t testing.TB, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := n.Do(func(ns.NetNS) (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
