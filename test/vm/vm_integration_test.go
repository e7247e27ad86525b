// SPDX-License-Identifier: Apache-2.0

//go:build integration

package vm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/test/debian"
)

// TestMachine boots a machine at a tap and talks with it both ways.
func TestMachine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	kernel, err := debian.FindKernel(ctx, filepath.Join(artifact.DefaultDir(), "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	netns := fmt.Sprintf("vm-%d", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	inside := func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", netns}, args...)...)
	}
	ip("netns", "add", netns)
	t.Cleanup(func() { ip("netns", "del", netns) })
	ip("-n", netns, "tuntap", "add", "tap0", "mode", "tap")
	ip("-n", netns, "addr", "add", "10.9.0.1/24", "dev", "tap0")
	ip("-n", netns, "addr", "add", "fd00:9::1/64", "dev", "tap0", "nodad")
	ip("-n", netns, "link", "set", "tap0", "up")
	m, err := Start(ctx, Config{
		Name: "guest", Tap: "tap0", MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}, MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64")},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd00:9::1")},
		Kernel:    kernel, Dir: t.TempDir(),
		Command: func(ctx context.Context, args ...string) (*exec.Cmd, error) { return inside(ctx, args...), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	for _, c := range []struct{ address, path, want string }{
		{"10.9.0.2", "/hostname", "guest"}, {"fd00:9::2", "/cgi-bin/clientip", "fd00:9::1"},
	} {
		nc := inside(ctx, "nc", "-w", "5", c.address, "80")
		nc.Stdin = strings.NewReader("GET " + c.path + " HTTP/1.0\r\n\r\n")
		if out, err := nc.Output(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s%s: %q, %v; want %s", c.address, c.path, out, err, c.want)
		}
	}
	for _, line := range []string{"ping -c 1 -W 2 10.9.0.1", "ping -6 -c 1 -W 2 fd00:9::1", "timeout 5 wget -q -O - http://10.9.0.2/hostname | grep guest", "ip link show eth0 | grep 'mtu 1400'"} {
		if out, err := m.Run(ctx, line); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
