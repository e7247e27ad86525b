// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovs/ovsfake"
)

// openFake connects a client to an Open vSwitch in memory.
func openFake(t *testing.T, o *ovsfake.OVS) *Client {
	t.Helper()
	c := Open(Options{Socket: o.Socket(), Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	must(t, c.WaitConnected(bound(t)))
	return c
}

// bound is a context that ends long after what a test waits for should have happened.
func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// brief is a context that ends while there is no database.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// says fails unless an error has all texts.
func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v does not say %q", err, text)
		}
	}
}

// until waits until the client's view is as it should be.
func until(t *testing.T, c *Client, ok func() bool) {
	t.Helper()
	changes, stop := c.Watch()
	defer stop()
	ctx := bound(t)
	for !ok() {
		select {
		case <-changes:
		case <-ctx.Done():
			t.Fatal("the view never becomes what it should be")
		}
	}
}

// expiring makes a call that ends with its context, again with more time as long as that ended
// before the database had answered, or the client does not know yet what the call before wrote.
func expiring(t *testing.T, call func(context.Context) error) (err error) {
	t.Helper()
	for d := 20 * time.Millisecond; d < time.Minute; d *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		err = call(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "database did not answer") && !strings.Contains(err.Error(), "identical values") {
			break
		}
	}
	return err
}

func (v viewed) has(name string) func() bool {
	return func() bool {
		bridges, err := v.Bridges(bound(v.T))
		must(v.T, err)
		return slices.ContainsFunc(bridges, func(b BridgeState) bool {
			return b.Name == name || slices.Contains(b.Ports, name)
		})
	}
}

// viewed is a client of a test.
type viewed struct {
	*testing.T
	*Client
}

var testBridge = Bridge{Name: "br0", Datapath: "netdev"}

func withBridge(t *testing.T) (*ovsfake.OVS, *Client) {
	t.Helper()
	o := ovsfake.New(t)
	c := openFake(t, o)
	must(t, c.EnsureBridge(bound(t), testBridge))
	return o, c
}

func portNames(t *testing.T, c *Client) []string {
	t.Helper()
	ports, err := c.Ports(bound(t))
	must(t, err)
	names := []string{}
	for _, p := range ports {
		names = append(names, p.Bridge+" "+p.Name)
	}
	return names
}

// A bridge is made with what Coelan needs, and stays as it is when it is asked for again.
func TestBridgeIsMadeOnce(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	b := testBridge
	b.MAC, b.ExternalIDs = net.HardwareAddr{2, 0, 0, 0, 0, 1}, map[string]string{"layout": "2"}
	must(t, c.EnsureBridge(bound(t), b))
	want := []BridgeState{{
		Name: "br0", Datapath: "netdev", Own: true, Ports: []string{"br0"},
		ExternalIDs: map[string]string{OwnerKey: OwnerValue, "layout": "2"},
	}}
	got, err := c.Bridges(bound(t))
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	must(t, c.EnsureBridge(bound(t), testBridge))
	got, err = c.Bridges(bound(t))
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked for again (-want +got):\n%s", diff)
	}
	if names := portNames(t, c); len(names) != 0 {
		t.Errorf("the bridge's own port counts as one of Coelan's: %v", names)
	}
	must(t, c.DelBridge(bound(t), "br0"))
	must(t, c.DelBridge(bound(t), "br0"))
	if got, err = c.Bridges(bound(t)); err != nil || len(got) != 0 {
		t.Errorf("bridges %v, %v", got, err)
	}
}

// A bridge of others that is empty is taken over; one in use, or of another datapath,
// stays as it is.
func TestBridgesOfOthers(t *testing.T) {
	o := ovsfake.New(t)
	must(t, o.AddBridge("empty", "netdev"))
	must(t, o.AddBridge("used", "netdev", "eth1", "eth0"))
	must(t, o.AddBridge("kernel", ""))
	c := openFake(t, o)
	must(t, c.EnsureBridge(bound(t), Bridge{Name: "empty", Datapath: "netdev"}))
	says(t, c.EnsureBridge(bound(t), Bridge{Name: "used", Datapath: "netdev"}),
		"bridge used", "is not Coelan's and has ports (eth0, eth1)")
	says(t, c.EnsureBridge(bound(t), Bridge{Name: "kernel", Datapath: "netdev"}),
		`exists with datapath "system", wanted is "netdev"`)
	says(t, c.EnsureBridge(bound(t), Bridge{Name: "eth0", Datapath: "netdev"}), "a port of another bridge has this name")
	says(t, c.DelBridge(bound(t), "used"), "is not Coelan's")
	got, err := c.Bridges(bound(t))
	must(t, err)
	var own []string
	for _, b := range got {
		if b.Own {
			own = append(own, b.Name)
		}
	}
	if diff := cmp.Diff([]string{"empty"}, own); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A datapath that Open vSwitch cannot make leaves no bridge behind.
func TestDatapathLeavesNoBridge(t *testing.T) {
	o := ovsfake.New(t)
	o.CannotMake("system")
	c := openFake(t, o)
	says(t, c.EnsureBridge(bound(t), Bridge{Name: "br0", Datapath: "system"}),
		`ovs-vswitchd cannot make it with datapath "system"`, "is the kernel module openvswitch loaded?")
	if got, err := c.Bridges(bound(t)); err != nil || len(got) != 0 {
		t.Errorf("bridges %v, %v", got, err)
	}
}

// Ports get their numbers, cost nothing when they are there, and follow changes.
func TestPortsAreMadeAndAdapted(t *testing.T) {
	o, c := withBridge(t)
	gateway := Internal("gw0", 2, net.HardwareAddr{2, 0, 0, 0, 0, 2}, 1450)
	tunnel := Tunnel("tun0", "geneve", 3, 0x2000)
	pod := Port{Name: "veth0", OFPort: 20, ExternalIDs: map[string]string{"iface-id": "default/a"}}
	must(t, c.EnsurePorts(bound(t), "br0", gateway, tunnel, pod))
	ports, err := c.Ports(bound(t))
	must(t, err)
	byName := map[string]PortState{}
	for _, p := range ports {
		byName[p.Name] = p
		if !p.Ready() || p.Actual != p.OFPort || p.Bridge != "br0" || !p.LinkUp {
			t.Errorf("port %+v", p)
		}
	}
	if p := byName["gw0"]; p.MAC.String() != gateway.MAC.String() || p.ActualMTU != 1450 {
		t.Errorf("gateway %+v", p)
	}
	wantOptions := map[string]string{"remote_ip": "flow", "key": "flow", "egress_pkt_mark": "8192"}
	if diff := cmp.Diff(wantOptions, byName["tun0"].Options); diff != "" {
		t.Errorf("options of the tunnel (-want +got):\n%s", diff)
	}
	before := o.Writes()
	must(t, c.EnsurePorts(bound(t), "br0", gateway, tunnel, pod))
	if n := o.Writes() - before; n != 0 {
		t.Errorf("%d writes for ports that are as they should be", n)
	}
	pod.OFPort, pod.ExternalIDs = 21, map[string]string{"iface-id": "default/b"}
	must(t, c.EnsurePorts(bound(t), "br0", pod))
	ports, err = c.Ports(bound(t))
	must(t, err)
	i := slices.IndexFunc(ports, func(p PortState) bool { return p.Name == "veth0" })
	if p := ports[i]; p.Actual != 21 || p.ExternalIDs["iface-id"] != "default/b" || p.ExternalIDs[OwnerKey] != OwnerValue {
		t.Errorf("port %+v", p)
	}
	must(t, c.DelPorts(bound(t), "br0", "veth0", "gone"))
	must(t, c.DelPorts(bound(t), "no-bridge", "veth0"))
	must(t, c.ClosePort(bound(t), "br0", "gone"))
	until(t, c, func() bool { return slices.Equal(portNames(t, c), []string{"br0 gw0", "br0 tun0"}) })
}

// Bad ports are refused before anything is written; so are ports of others.
func TestPortsThatAreRefused(t *testing.T) {
	o, c := withBridge(t)
	must(t, o.AddBridge("other", "netdev", "eth0"))
	must(t, o.AddPort("br0", "tap0", map[string]string{"iface-id": "default/vm"}))
	until(t, c, viewed{t, c}.has("tap0"))
	before := o.Writes()
	for name, tc := range map[string]struct {
		bridge string
		port   Port
		want   string
	}{
		"long name":        {"br0", Port{Name: "interface-of-a-pod", OFPort: 5}, "not the name of a network device"},
		"no number":        {"br0", Port{Name: "veth0"}, "OpenFlow port 0 is not in 1 to 65279"},
		"MAC of a veth":    {"br0", Port{Name: "veth0", OFPort: 5, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, "type internal only"},
		"no bridge":        {"br9", Port{Name: "veth0", OFPort: 5}, "bridge br9 does not exist"},
		"on another":       {"br0", Port{Name: "eth0", OFPort: 5}, "port eth0: is on bridge other, wanted is br0"},
		"of others":        {"br0", Port{Name: "tap0", OFPort: 5}, "port tap0: exists on bridge br0 and is not Coelan's"},
		"the bridge's own": {"br0", Port{Name: "br0", OFPort: 5}, "port br0: exists on bridge br0 and is not Coelan's"},
	} {
		good := Port{Name: "good", OFPort: 7}
		t.Run(name, func(t *testing.T) { says(t, c.EnsurePorts(bound(t), tc.bridge, good, tc.port), tc.want) })
	}
	says(t, c.DelPorts(bound(t), "br0", "tap0"), "port tap0: exists on bridge br0 and is not Coelan's")
	says(t, c.DelPorts(bound(t), "br0", "eth0"), "port eth0: is on bridge other")
	if n := o.Writes() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
}

// What ovs-vswitchd cannot open is an error with its reason, and is tried again.
func TestPortsThatCannotBeOpened(t *testing.T) {
	o, c := withBridge(t)
	o.Break("veth0", "could not open network device veth0 (No such device)")
	port := Port{Name: "veth0", OFPort: 5}
	says(t, c.EnsurePorts(bound(t), "br0", port), "port veth0: ovs-vswitchd: could not open network device")
	ports, err := c.Ports(bound(t))
	must(t, err)
	if len(ports) != 1 || ports[0].Actual != -1 || ports[0].Ready() {
		t.Errorf("ports %+v", ports)
	}
	o.Break("veth0", "")
	must(t, c.EnsurePorts(bound(t), "br0", port))
	o.Take(6)
	says(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth1", OFPort: 6}), "OpenFlow port 6 was asked for but ovs-vswitchd gave")
}

// An ovs-vswitchd that does not run is named; a switch that reports a port first is believed.
func TestWithoutVswitchd(t *testing.T) {
	o, c := withBridge(t)
	o.StopVswitchd()
	ensure := func(ctx context.Context) error { return c.EnsurePorts(ctx, "br0", Port{Name: "veth0", OFPort: 5}) }
	says(t, expiring(t, ensure), "ovs-vswitchd did not open it: is it running?")
	says(t, expiring(t, func(ctx context.Context) error { return c.EnsureBridge(ctx, testBridge) }), "ovs-vswitchd did not apply its configuration: is it running?")
	// It cannot be tried again: what the database did without an answer in time leaves no port.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	says(t, c.ClosePort(ctx, "br0", "veth0"), "ovs-vswitchd did not apply its configuration: is it running?")
	done := make(chan error, 1)
	go func() { done <- c.EnsurePorts(bound(t), "br0", Port{Name: "veth1", OFPort: 6}) }()
	until(t, c, func() bool { return slices.Contains(portNames(t, c), "br0 veth1") })
	c.PortAdded("another", 6)
	c.PortAdded("veth1", 6)
	must(t, <-done)
	tried := func(ctx context.Context) error { return c.Tried(ctx, "another", "veth1") }
	says(t, expiring(t, tried), "port veth1: ovs-vswitchd did not open it: is it running?")
	must(t, o.StartVswitchd())
	must(t, tried(bound(t)))
	must(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth0", OFPort: 5}))
}

// A wire's ends are made together, on two bridges.
func TestWire(t *testing.T) {
	o, c := withBridge(t)
	must(t, o.AddBridge("br-ext", "netdev", "eth1"))
	until(t, c, viewed{t, c}.has("br-ext"))
	inner, outer := Patch("in", "out", 9), Patch("out", "in", 0)
	must(t, c.EnsurePlaced(bound(t), PlacedPort{"br0", inner}, PlacedPort{"br-ext", outer}))
	if diff := cmp.Diff([]string{"br0 in", "br-ext out"}, portNames(t, c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	before := o.Writes()
	must(t, c.EnsurePlaced(bound(t), PlacedPort{"br0", inner}, PlacedPort{"br-ext", outer}))
	says(t, c.EnsurePlaced(bound(t), PlacedPort{"br0", inner}, PlacedPort{"br-none", outer}), "bridge br-none does not exist")
	if n := o.Writes() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
}

// Interfaces of virtual machines are listed by what they say they are, and get numbers.
func TestInterfacesOfMachines(t *testing.T) {
	o, c := withBridge(t)
	must(t, o.AddPort("br0", "tap0", map[string]string{"iface-id": "default/vm"}))
	must(t, o.AddPort("br0", "tap1", map[string]string{"unrelated": "yes"}))
	until(t, c, viewed{t, c}.has("tap1"))
	must(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth0", OFPort: 5, ExternalIDs: map[string]string{"iface-id": "default/a"}}))
	got, err := c.Interfaces(bound(t), "br0", "iface-id")
	must(t, err)
	if len(got) != 1 || got[0].Name != "tap0" {
		t.Fatalf("interfaces %+v", got)
	}
	must(t, c.RequestNumber(bound(t), "tap0", 77))
	before := o.Writes()
	must(t, c.RequestNumber(bound(t), "tap0", 77))
	if n := o.Writes() - before; n != 0 {
		t.Errorf("%d writes for a number that the interface has", n)
	}
	if got, err = c.Interfaces(bound(t), "br0", "iface-id"); err != nil || got[0].Actual != 77 {
		t.Errorf("interfaces %+v, %v", got, err)
	}
	says(t, c.RequestNumber(bound(t), "tap9", 78), "interface tap9: is gone")
	says(t, c.RequestNumber(bound(t), "veth0", 78), "interface veth0: is Coelan's own")
	says(t, c.RequestNumber(bound(t), "tap0", 0), "OpenFlow port 0 is not in 1 to 65279")
	if got, err = c.Interfaces(bound(t), "none", "iface-id"); err != nil || len(got) != 0 {
		t.Errorf("interfaces %+v, %v", got, err)
	}
}

// Calls wait for a database that is away, a database that lost everything is seen as it is, and
// each connection is announced.
func TestDatabaseRestarts(t *testing.T) {
	o := ovsfake.New(t)
	connected, lost := make(chan struct{}, 8), make(chan error, 8)
	c := Open(Options{
		Socket: o.Socket(), Logger: slog.New(slog.DiscardHandler),
		OnConnect: func() { connected <- struct{}{} }, OnDisconnect: func(err error) { lost <- err },
	})
	defer c.Close()
	<-connected
	must(t, c.EnsureBridge(bound(t), testBridge))
	must(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth0", OFPort: 5}))
	o.StopDatabase()
	if err := <-lost; !errors.Is(err, ErrNotConnected) {
		t.Errorf("lost with %v", err)
	}
	_, err := c.Ports(brief(t))
	if !errors.Is(err, ErrNotConnected) {
		t.Errorf("ports without a database: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- c.EnsurePorts(bound(t), "br0", Port{Name: "veth1", OFPort: 6}) }()
	must(t, o.StartDatabase())
	<-connected
	must(t, <-done)
	if diff := cmp.Diff([]string{"br0 veth0", "br0 veth1"}, portNames(t, c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	o.StopDatabase()
	if err := <-lost; !errors.Is(err, ErrNotConnected) {
		t.Errorf("lost again with %v", err)
	}
	must(t, o.Reset())
	must(t, o.StartDatabase())
	<-connected
	if names := portNames(t, c); len(names) != 0 {
		t.Errorf("ports of an empty database: %v", names)
	}
}

// The view tells of changes of other programs.
func TestWatchedChanges(t *testing.T) {
	o, c := withBridge(t)
	must(t, c.EnsurePorts(bound(t), "br0", Port{Name: "veth0", OFPort: 5}))
	must(t, o.DeletePort("br0", "veth0"))
	until(t, c, func() bool { return len(portNames(t, c)) == 0 })
}

// What Open vSwitch is comes from the daemon, and a release that is too old is refused.
func TestInfoOfDaemon(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	info, err := c.Info(bound(t))
	must(t, err)
	if info.Version != (Version{3, 1, 0}) || !slices.Contains(info.DatapathTypes, "netdev") {
		t.Errorf("info %+v", info)
	}
	o.Answer("version", "ovs-vswitchd (Open vSwitch) 2.16.1\n")
	if _, err = c.Info(bound(t)); !errors.Is(err, ErrTooOld) {
		t.Errorf("an old release: %v", err)
	}
	says(t, err, "Open vSwitch 2.16.1 is too old: 2.17.0 or later is needed")
}

// A switch that waits for its flows is let go, and only then told to wait at its next start.
func TestFlowRestoreIsReleased(t *testing.T) {
	o := ovsfake.New(t)
	c := openFake(t, o)
	other := func() map[string]string {
		info, err := c.Info(bound(t))
		must(t, err)
		return info.OtherConfig
	}
	must(t, c.SetOtherConfig(bound(t), map[string]string{"flow-restore-wait": "true", "kept": "yes"}))
	must(t, c.ReleaseFlowRestore(bound(t), false))
	if diff := cmp.Diff(map[string]string{"kept": "yes"}, other()); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	must(t, c.ReleaseFlowRestore(bound(t), true))
	until(t, c, func() bool { return other()["flow-restore-wait"] == "true" })
	o.StopVswitchd()
	says(t, expiring(t, func(ctx context.Context) error { return c.ReleaseFlowRestore(ctx, true) }), "release flow-restore-wait", "is it running?")
}
