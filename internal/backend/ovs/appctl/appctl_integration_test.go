// SPDX-License-Identifier: Apache-2.0

//go:build integration

package appctl_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/ovstest"
)

func TestRealDaemons(t *testing.T) {
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(t.Context(), "br0"); err != nil {
		t.Fatal(err)
	}
	vswitchd := appctl.Vswitchd(ovs.Dir)
	trace, err := vswitchd.Call(t.Context(), "ofproto/trace", "br0", "in_port=LOCAL,icmp")
	if err != nil || !strings.Contains(trace, "Datapath actions: drop") {
		t.Errorf("trace: %q, %v", trace, err)
	}
	var refused *appctl.Error
	if _, err := vswitchd.Call(t.Context(), "ofproto/trace", "br9", "icmp"); !errors.As(err, &refused) {
		t.Errorf("trace of a missing bridge: %v", err)
	}
	if v, err := appctl.DBServer(ovs.Dir).Call(t.Context(), "version"); err != nil || !strings.Contains(v, "ovsdb-server") {
		t.Errorf("version: %q, %v", v, err)
	}
	ovs.KillVswitchd()
	if _, err := vswitchd.Call(t.Context(), "version"); !errors.Is(err, appctl.ErrNotRunning) {
		t.Errorf("after a kill: %v", err)
	}
	if err := ovs.StartVswitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := vswitchd.Call(t.Context(), "version"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestRealRoutes has ovs-vswitchd keep routes. Where its tunnels end must not change when one goes.
func TestRealRoutes(t *testing.T) {
	ovs := ovstest.Start(t, ovstest.Options{})
	for _, args := range [][]string{
		{"ovs-vsctl", "--db=unix:" + ovs.DBSocket(), "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"},
		{"ovs-vsctl", "--db=unix:" + ovs.DBSocket(), "add-port", "br0", "vx0", "--", "set", "interface", "vx0", "type=vxlan", "options:remote_ip=flow"},
		{"ip", "addr", "add", "192.168.50.1/24", "dev", "br0"},
		{"ip", "addr", "add", "fd00:50::1/64", "dev", "br0", "nodad"},
		{"ip", "link", "set", "br0", "up"},
	} {
		cmd := ovs.Command(t.Context(), args[0], args[1:]...)
		if err := ovs.Do(cmd.Run); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	vswitchd := appctl.Vswitchd(ovs.Dir)
	ends := func() (n int) {
		text, err := vswitchd.Call(t.Context(), "tnl/ports/show", "-v")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(text, "ipv4(dst=192.168.50.1,") + strings.Count(text, "ipv6(dst=fd00:50::1,")
	}
	expect := func(when string, want ...appctl.Route) {
		t.Helper()
		got, err := vswitchd.HostRoutes(t.Context())
		less := func(a, b appctl.Route) bool { return a.Dst.Less(b.Dst) }
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.SortSlices(less), cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: routes (-want +got):\n%s\n%v", when, diff, err)
		}
	}
	near := appctl.Route{Dst: netip.MustParseAddr("192.168.50.2"), Dev: "br0"}
	near6 := appctl.Route{Dst: netip.MustParseAddr("fd00:50::2"), Dev: "br0"}
	far := appctl.Route{Dst: netip.MustParseAddr("192.168.60.2"), Dev: "br0", Gateway: netip.MustParseAddr("192.168.50.9")}
	other := far
	other.Gateway = netip.MustParseAddr("192.168.50.8")
	for _, r := range []appctl.Route{near, near6, far, other} {
		if err := vswitchd.SetRoute(t.Context(), r); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	expect("added", near, near6, other)
	if n := ends(); n != 2 {
		t.Errorf("tunnels end at %d addresses, want 2", n)
	}
	for _, r := range []appctl.Route{near6, other, other} {
		if err := vswitchd.DeleteRoute(t.Context(), r.Dst); err != nil {
			t.Errorf("delete %v: %v", r, err)
		}
	}
	expect("deleted", near)
	if n := ends(); n != 2 {
		t.Errorf("after routes went, tunnels end at %d addresses, want 2", n)
	}
	if err := vswitchd.SetRoute(t.Context(), appctl.Route{Dst: far.Dst, Dev: "br0"}); err == nil {
		t.Error("a route without an address on its link was taken")
	}
}
