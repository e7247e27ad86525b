// SPDX-License-Identifier: Apache-2.0

//go:build integration

package southbound

import (
	"context"
	"net"
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
