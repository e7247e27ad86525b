// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The guest's half of the conversation runs here as it does there.
func newTestShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("sh", "serve.sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := newShell(in, out)
	t.Cleanup(func() {
		in.Close()
		s.drain()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := newTestShell(t)
	if err := s.wait(ctx, "vm:ready"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line, want string
		fails      bool
	}{
		{line: "echo one; echo two", want: "one\ntwo"},
		{line: "printf 'no newline'", want: "no newline"},
		{line: "true", want: ""},
		{line: "echo why >&2; exit 3", want: "why", fails: true},
		{line: "cat", want: ""}, // it has no input of its own
		{line: "echo a\necho b", fails: true},
		{line: "echo after", want: "after"},
	} {
		got, err := s.run(ctx, c.line)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%q: %q, %v; want %q, error %t", c.line, got, err, c.want, c.fails)
		}
	}
}

func TestRunIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := newTestShell(t).run(ctx, "sleep 0.5"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestConfig(t *testing.T) {
	c := Config{
		Name: "vm1", MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.9/24"), netip.MustParsePrefix("fd00:1::9/64")},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")},
	}
	want := "name vm1\nmtu 1400\nup\naddress 10.1.0.9/24\naddress fd00:1::9/64\ngateway 10.1.0.1\ngateway fd00:1::1\n"
	if d := cmp.Diff(want, c.config()); d != "" {
		t.Error(d)
	}
}
