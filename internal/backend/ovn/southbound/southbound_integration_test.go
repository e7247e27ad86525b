// SPDX-License-Identifier: Apache-2.0

//go:build integration

package southbound

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/ovntest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is asked for is read, and what a chassis has; the first server that answers is asked, and
// what is wrong with the others is no error then.
func TestRead(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "net-red", "--", "lsp-add", "net-red", "shop/a", "--", "set", "logical_switch_port", "shop/a",
		"external_ids:coelan.io/owner=coelan/Port/shop/a", "--", "lsp-add", "net-red", "shop/b", "--", "lsp-add", "net-red", "vm",
		"--", "lsp-add", "net-red", "router", "--", "lsp-set-type", "router", "localnet", "--", "lsp-add", "net-red", "unasked")
	o.Northd()
	o.Nbctl("--wait=sb", "sync")
	o.Chassis("n1", "shop/a", "vm")
	o.Sbctl("chassis-add", "n2", "geneve", "127.0.0.2", "--", "lsp-bind", "shop/b", "n2", "--", "lsp-bind", "unasked", "n2")
	want := View{HasChassis: true, Bindings: map[string]Binding{
		"shop/a": {LogicalPort: "shop/a", Chassis: "n1", Owner: "coelan/Port/shop/a"},
		"shop/b": {LogicalPort: "shop/b", Chassis: "n2"},
		"vm":     {LogicalPort: "vm", Chassis: "n1"},
		"router": {LogicalPort: "router", Type: "localnet"},
	}}
	servers := []string{"tcp:127.0.0.1:1", o.Remote("sb")}
	ports := []string{"shop/a", "shop/b", "router", "nowhere"}
	v, err := Read(t.Context(), Options{Remotes: servers}, "n1", ports)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range v.Bindings { // ovn-northd says of ports by hand whether they are up
		b.Up = false
		v.Bindings[name] = b
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if v, err := Read(t.Context(), Options{Remotes: servers}, "n3", nil); err != nil || v.HasChassis || len(v.Bindings) > 0 {
		t.Errorf("of a chassis that is not there: %+v, %v", v, err)
	}
}

// The Ethernet address of an IP address is that of a port of the same switch, or of the router
// there: not that of another switch with the same subnet.
func TestEthernetAddress(t *testing.T) {
	o := ovntest.Start(t)
	for i, color := range []string{"red", "blue"} {
		port := func(n int) string { return fmt.Sprintf("0a:00:00:00:%02x:%02x", i, n) }
		o.Nbctl("lr-add", color, "--", "lrp-add", color, color+"-net", port(1), "10.0.0.1/24", "fd00::1/64",
			"--", "ls-add", color, "--", "lsp-add", color, color+"-router", "--", "lsp-set-type", color+"-router", "router",
			"--", "lsp-set-addresses", color+"-router", "router", "--", "lsp-set-options", color+"-router", "router-port="+color+"-net",
			"--", "lsp-add", color, color+"-a", "--", "lsp-set-addresses", color+"-a", port(5)+" 10.0.0.5 fd00::5",
			"--", "lsp-add", color, color+"-b", "--", "lsp-set-addresses", color+"-b", port(6)+" 10.0.0.6")
	}
	o.Northd()
	o.Nbctl("--wait=sb", "sync")
	for _, tc := range []struct{ port, address, want string }{
		{"blue-a", "10.0.0.6", "0a:00:00:00:01:06"},
		{"red-a", "10.0.0.6", "0a:00:00:00:00:06"},
		{"blue-a", "10.0.0.1", "0a:00:00:00:01:01"},
		{"blue-a", "fd00::1", "0a:00:00:00:01:01"},
		{"blue-b", "fd00::5", "0a:00:00:00:01:05"},
		{"blue-a", "10.0.0.9", ""},
		{"nowhere", "10.0.0.1", ""},
	} {
		got, err := EthernetAddress(t.Context(), Options{Remotes: []string{o.Remote("sb")}}, tc.port, netip.MustParseAddr(tc.address))
		if err != nil || got != tc.want {
			t.Errorf("%s for %s: %q, %v; want %q", tc.address, tc.port, got, err, tc.want)
		}
	}
}

// A server that is away, one that does not answer, and one of another database are errors that name
// it, with one text each time.
func TestReadNothing(t *testing.T) {
	o := ovntest.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, tc := range map[string]struct{ server, want string }{
		"away":             {"tcp:127.0.0.1:1", "tcp:127.0.0.1:1: connect: connection refused"},
		"no socket":        {"unix:/nowhere/sb.sock", "unix:/nowhere/sb.sock: connect: no such file or directory"},
		"silent":           {"tcp:" + silent.Addr().String(), "context deadline exceeded"},
		"another database": {o.Remote("nb"), "target database OVN_Southbound not found"},
	} {
		t.Run(name, func(t *testing.T) {
			var before string
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := Read(ctx, Options{Remotes: []string{tc.server}}, "n1", []string{"a"})
				cancel()
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("error %v, want %q", err, tc.want)
				}
				if before != "" && err.Error() != before {
					t.Errorf("error %q, and %q before", err, before)
				}
				before = err.Error()
			}
		})
	}
}
