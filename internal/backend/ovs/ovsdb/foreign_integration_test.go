// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb

import (
	"strings"
	"testing"
)

func TestInterfacesOfOthers(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "tap", 3)
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "tap0", OFPort: 20, ExternalIDs: map[string]string{"iface-id": "a/own"}}); err != nil {
		t.Fatal(err)
	}
	vsctl(t, ovs, "add-port", "br0", "tap1", "--", "set", "interface", "tap1", "external_ids:iface-id=a/guest", "external_ids:vm-id=7")
	vsctl(t, ovs, "add-port", "br0", "tap2")
	vsctl(t, ovs, "add-br", "br1", "--", "set", "bridge", "br1", "datapath_type="+ovs.Datapath, "--",
		"add-port", "br1", "tap9", "--", "set", "interface", "tap9", "type=internal", "external_ids:iface-id=a/elsewhere")
	list, err := c.Interfaces(ctx, "br0", "iface-id")
	if err != nil || len(list) != 1 || list[0].Name != "tap1" || list[0].ExternalIDs["iface-id"] != "a/guest" || list[0].Actual <= 0 {
		t.Fatalf("interfaces: %+v, %v", list, err)
	}
	for range 2 {
		if err := c.RequestNumber(ctx, "tap1", 300); err != nil {
			t.Fatal(err)
		}
	}
	if got := vsctl(t, ovs, "get", "interface", "tap1", "ofport"); got != "300" {
		t.Errorf("OpenFlow port %s, want 300", got)
	}
	if got := vsctl(t, ovs, "get", "interface", "tap1", "external_ids"); !strings.Contains(got, "vm-id") || strings.Contains(got, OwnerKey) {
		t.Errorf("external_ids were changed: %s", got)
	}
	for name, want := range map[string]string{"none": "is gone", "tap0": "is Coelan's own"} {
		if err := c.RequestNumber(ctx, name, 301); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("interface %s: %v, want an error with %q", name, err, want)
		}
	}
	if err := c.DelPorts(ctx, "br0", "tap1"); err == nil {
		t.Error("somebody else's interface was removed")
	}
}

func TestPatchToABridgeOfOthers(t *testing.T) {
	ovs, c, ctx := open(t)
	vsctl(t, ovs, "add-br", "br-ext", "--", "set", "bridge", "br-ext", "datapath_type="+ovs.Datapath)
	for range 2 {
		if err := c.EnsurePlaced(ctx, PlacedPort{"br0", Patch("inner", "outer", 3)}, PlacedPort{"br-ext", Patch("outer", "inner", 0)}); err != nil {
			t.Fatal(err)
		}
	}
	ports, err := c.Ports(ctx)
	if err != nil || len(ports) != 2 || !ports[0].Ready() || !ports[1].Ready() || ports[0].Actual != 3 || ports[1].Bridge != "br-ext" {
		t.Errorf("ports: %+v, %v", ports, err)
	}
	// One end that was removed is put back.
	vsctl(t, ovs, "del-port", "outer")
	if err := c.EnsurePlaced(ctx, PlacedPort{"br0", Patch("inner", "outer", 3)}, PlacedPort{"br-ext", Patch("outer", "inner", 0)}); err != nil {
		t.Error(err)
	}
	if err := c.DelPorts(ctx, "br-ext", "outer"); err != nil {
		t.Error(err)
	}
	if got := vsctl(t, ovs, "list-ports", "br-ext"); got != "" {
		t.Errorf("left on the bridge: %s", got)
	}
}
