// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb

import (
	"slices"
	"strings"
	"testing"
)

// A real Open vSwitch makes all of a foreign bridge in one transaction, gives back what cannot
// work, and keeps what other programs have made.
func TestForeignBridgeOnOVS(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "veth", 2)
	veths(t, ovs, "eth", 1)
	vsctl(t, ovs, "set-manager", "ptcp:6641:127.0.0.1")
	b := ForeignBridge{
		Name: "brk8s", Datapath: ovs.Datapath, Network: "odl", Controller: "tcp:127.0.0.1:6653", Manager: "ptcp:6640:127.0.0.1",
		Uplink: "eth0",
	}
	before := vsctl(t, ovs, "show")
	if err := c.PlugForeign(ctx, b, Port{Name: "missing"}); err == nil || !strings.Contains(err.Error(), "port missing") {
		t.Errorf("error %v", err)
	}
	if after := vsctl(t, ovs, "show"); after != before {
		t.Errorf("left behind:\n%s", after)
	}
	pod := func(name string) Port {
		return Port{Name: name, ExternalIDs: map[string]string{"iface-id": "c:" + name, "coelan-attachment": `{"a":"b\"c,[]"}`}}
	}
	for range 2 {
		for _, name := range []string{"veth0", "veth1"} {
			must(t, c.PlugForeign(ctx, b, pod(name)))
			must(t, c.CheckForeign(ctx, b, pod(name)))
		}
	}
	for _, tt := range []struct{ table, record, column, want string }{
		{"bridge", "brk8s", "fail_mode", "secure"},
		{"bridge", "brk8s", "protocols", "[OpenFlow10, OpenFlow13, OpenFlow14, OpenFlow15]"},
		{"interface", "veth0", "external_ids:iface-id", `"c:veth0"`}, {"port", "veth0", "external_ids:iface-id", `"c:veth0"`},
		{"interface", "veth0", "external_ids:coelan-owner", "external-controller"},
	} {
		if got := vsctl(t, ovs, "get", tt.table, tt.record, tt.column); got != tt.want {
			t.Errorf("%s %s %s is %s, want %s", tt.table, tt.record, tt.column, got, tt.want)
		}
	}
	if got := vsctl(t, ovs, "get-controller", "brk8s"); got != "tcp:127.0.0.1:6653" {
		t.Errorf("controller %s", got)
	}
	managers := strings.Fields(vsctl(t, ovs, "get-manager"))
	if slices.Sort(managers); !slices.Equal(managers, []string{"ptcp:6640:127.0.0.1", "ptcp:6641:127.0.0.1"}) {
		t.Errorf("managers %v", managers)
	}
	if got := strings.Fields(vsctl(t, ovs, "list-ports", "brk8s")); !slices.Equal(got, []string{"eth0", "veth0", "veth1"}) {
		t.Errorf("ports %v", got)
	}
	must(t, c.UnplugForeign(ctx, "veth0"))
	must(t, c.CloseForeign(ctx, "veth1"))
	must(t, c.RemoveForeign(ctx))
	if after := vsctl(t, ovs, "show"); after != before {
		t.Errorf("left behind:\n%s\nwant\n%s", after, before)
	}
}
