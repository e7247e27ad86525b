// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/ovstest"
)

var gatewayMAC = net.HardwareAddr{0x0a, 0xc0, 0xe1, 0, 0, 2}

// open starts an Open vSwitch with a client and bridge br0.
func open(t testing.TB) (*ovstest.OVS, *Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ovs := ovstest.Start(t, ovstest.Options{})
	c := Open(Options{Socket: ovs.DBSocket()})
	t.Cleanup(c.Close)
	if err := c.EnsureBridge(ctx, Bridge{Name: "br0", Datapath: ovs.Datapath}); err != nil {
		t.Fatal(err)
	}
	return ovs, c, ctx
}

// veths makes pairs of network devices; the first of pair i is called <prefix><i>.
func veths(t testing.TB, ovs *ovstest.OVS, prefix string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s%d", prefix, i)
		if _, err := ovs.Run(t.Context(), "ip", "link", "add", name, "up", "type", "veth", "peer", "name", name+"p"); err != nil {
			t.Fatal(err)
		}
	}
}

func vsctl(t testing.TB, ovs *ovstest.OVS, args ...string) string {
	t.Helper()
	out, err := ovs.Vsctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBridge(t *testing.T) {
	ovs, c, ctx := open(t)
	b := Bridge{Name: "br-int", Datapath: ovs.Datapath, MAC: gatewayMAC, ExternalIDs: map[string]string{"k": "v"}}
	for range 2 {
		if err := c.EnsureBridge(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ovs.Ofctl(ctx, "dump-flows", "br-int"); err != nil {
		t.Errorf("the bridge does not speak OpenFlow 1.5: %v", err)
	}
	for column, want := range map[string]string{
		"fail_mode": "secure", "other_config:hwaddr": `"0a:c0:e1:00:00:02"`, "external_ids:coelan-owner": "coelan", "external_ids:k": "v",
	} {
		if got := vsctl(t, ovs, "get", "bridge", "br-int", column); got != want {
			t.Errorf("%s = %s, want %s", column, got, want)
		}
	}
	all, err := c.Bridges(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "br-int" || !all[0].Own || all[0].Datapath != ovs.Datapath {
		t.Errorf("Bridges = %+v, %v", all, err)
	}
	for range 2 {
		if err := c.DelBridge(ctx, "br-int"); err != nil {
			t.Fatal(err)
		}
	}
	if got := vsctl(t, ovs, "list-br"); got != "br0" {
		t.Errorf("bridges after removal: %s", got)
	}
}

func TestBridgeThatExists(t *testing.T) {
	ovs, c, ctx := open(t)
	other := map[string]string{"netdev": "system", "system": "netdev"}[ovs.Datapath]
	vsctl(t, ovs, "--no-wait", "add-br", "br-other", "--", "set", "bridge", "br-other", "datapath_type="+other)
	vsctl(t, ovs, "add-br", "br-empty", "--", "set", "bridge", "br-empty", "datapath_type="+ovs.Datapath)
	vsctl(t, ovs, "add-br", "br-used", "--", "set", "bridge", "br-used", "datapath_type="+ovs.Datapath,
		"--", "add-port", "br-used", "p1", "--", "set", "interface", "p1", "type=internal")
	tests := []struct{ name, want string }{
		{"br-other", `exists with datapath "` + other + `", wanted is "` + ovs.Datapath + `"`},
		{"br-used", "is not Coelan's and has ports (p1)"},
		{"br-empty", ""},
	}
	for _, tt := range tests {
		before := vsctl(t, ovs, "list", "bridge", tt.name)
		err := c.EnsureBridge(ctx, Bridge{Name: tt.name, Datapath: ovs.Datapath})
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
		if diff := cmp.Diff(before, vsctl(t, ovs, "list", "bridge", tt.name)); diff != "" {
			t.Errorf("%s was changed: %s", tt.name, diff)
		}
	}
	if err := c.DelBridge(ctx, "br-used"); err == nil {
		t.Error("removed a bridge that is not ours")
	}
}

// Open vSwitch takes any datapath type, lists types that it cannot make, and
// says nothing of a bridge that it could not make.
// A bridge follows its smallest port, unless it is asked for a size.
func TestRequestMTU(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "small", 1)
	if _, err := ovs.Run(ctx, "ip", "link", "set", "small0", "mtu", "1300"); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "small0", AnyNumber: true}); err != nil {
		t.Fatal(err)
	}
	has := func(mtu string) {
		t.Helper()
		if _, err := ovs.Vsctl(ctx, "--timeout=20", "wait-until", "interface", "br0", "mtu="+mtu); err != nil {
			t.Errorf("the bridge has no MTU of %s: %v", mtu, err)
		}
	}
	has("1300")
	for range 2 {
		if err := c.RequestMTU(ctx, "br0", 1400); err != nil {
			t.Fatal(err)
		}
		has("1400")
	}
	if err := c.RequestMTU(ctx, "br9", 1400); err == nil {
		t.Error("there is no bridge br9")
	}
}

func TestDatapathThatCannotBeMade(t *testing.T) {
	ovs, c, ctx := open(t)
	err := c.EnsureBridge(ctx, Bridge{Name: "br9", Datapath: "carrier-pigeon"})
	if err == nil || !strings.Contains(err.Error(), `bridge br9: ovs-vswitchd cannot make it with datapath "carrier-pigeon"`) {
		t.Errorf("error %v", err)
	}
	if got := vsctl(t, ovs, "list-br"); got != "br0" {
		t.Errorf("bridges left: %s", got)
	}
	vsctl(t, ovs, "--no-wait", "add-br", "br8", "--", "set", "bridge", "br8", "datapath_type=carrier-pigeon")
	if err := c.EnsureBridge(ctx, Bridge{Name: "br8", Datapath: "carrier-pigeon"}); err == nil {
		t.Error("a bridge that does not work passes")
	}
	if got := vsctl(t, ovs, "list-br"); got != "br0\nbr8" {
		t.Errorf("bridges left: %s", got)
	}
}

func TestPorts(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "v", 2)
	pod := Port{Name: "v0", OFPort: 16, ExternalIDs: map[string]string{"iface-id": "default/web-0/eth0"}}
	want := []Port{
		Internal("gw0", 2, gatewayMAC, 1400),
		Tunnel("tun0", "vxlan", 1, 0x2000),
		pod,
		{Name: "v1", OFPort: 65279},
	}
	for range 2 {
		if err := c.EnsurePorts(ctx, "br0", want...); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Ports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].ExternalIDs = owned(want[i].ExternalIDs)
		if !got[i].Ready() || got[i].Bridge != "br0" {
			t.Errorf("%s is not ready: %+v", want[i].Name, got[i])
		}
		if diff := cmp.Diff(want[i], got[i].Port, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", want[i].Name, diff)
		}
	}
	link, err := ovs.Run(ctx, "ip", "link", "show", "gw0")
	if err != nil || !strings.Contains(link, gatewayMAC.String()) || !strings.Contains(link, "mtu 1400") {
		t.Errorf("gateway: %s, %v", link, err)
	}

	pod.OFPort, pod.ExternalIDs = 17, map[string]string{"iface-id": "default/web-1/eth0"}
	if err := c.EnsurePorts(ctx, "br0", pod); err != nil {
		t.Fatalf("change: %v", err)
	}
	if out := vsctl(t, ovs, "get", "interface", "v0", "ofport", "external_ids"); out != "17\n{coelan-owner=coelan, iface-id=\"default/web-1/eth0\"}" {
		t.Errorf("changed port: %s", out)
	}
	if err := c.DelPorts(ctx, "br0", "v0", "gw0", "never-was"); err != nil {
		t.Fatal(err)
	}
	if err := c.DelPorts(ctx, "br0", "v0"); err != nil {
		t.Errorf("second removal: %v", err)
	}
	if out := vsctl(t, ovs, "list-ports", "br0"); out != "tun0\nv1" {
		t.Errorf("ports left: %s", out)
	}
	if out := vsctl(t, ovs, "--columns=name", "-f", "csv", "--no-headings", "list", "interface"); strings.Count(out, "\n") != 2 {
		t.Errorf("interfaces left: %s", out)
	}
}

func TestPortErrors(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "v", 2)
	vsctl(t, ovs, "add-br", "br1", "--", "set", "bridge", "br1", "datapath_type="+ovs.Datapath)
	vsctl(t, ovs, "add-port", "br0", "v1", "--", "set", "interface", "v1", "ofport_request=5")
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "v0", OFPort: 16}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, bridge string
		port         Port
		want         string
	}{
		{"long name", "br0", Port{Name: "co0123456789abcdef", OFPort: 20}, "not the name of a network device"},
		{"no number", "br0", Port{Name: "p"}, "OpenFlow port 0 is not in 1 to 65279"},
		{"MAC of a veth", "br0", Port{Name: "p", OFPort: 20, MAC: gatewayMAC}, "internal only"},
		{"no bridge", "br9", Port{Name: "p", OFPort: 20}, "bridge br9 does not exist"},
		{"no device", "br0", Port{Name: "nodev", OFPort: 20}, "No such device"},
		{"unknown type", "br0", Port{Name: "p", OFPort: 20, Type: "carrier-pigeon"}, "could not open network device p"},
		{"number taken", "br0", Port{Name: "p", OFPort: 5, Type: "internal"}, "OpenFlow port 5 was asked for"},
		{"not ours", "br0", Port{Name: "v1", OFPort: 20}, "port v1: exists on bridge br0 and is not Coelan's"},
		{"on another bridge", "br1", Port{Name: "v0", OFPort: 16}, "port v0: is on bridge br0, wanted is br1"},
		{"LOCAL", "br0", Port{Name: "br0", OFPort: 16, Type: "internal"}, "is not Coelan's"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := c.EnsurePorts(ctx, tt.bridge, tt.port)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if !slices.Contains([]string{"not ours", "on another bridge", "LOCAL"}, tt.name) {
				if err := c.DelPorts(ctx, "br0", tt.port.Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := c.DelPorts(ctx, "br0", "v1"); err == nil {
		t.Error("removed a port that is not ours")
	}
	if out := vsctl(t, ovs, "list-ports", "br0"); out != "v0\nv1" {
		t.Errorf("ports after the refusals: %s", out)
	}
}

// A port that could not be opened works once its device is there.
func TestPortIsTriedAgain(t *testing.T) {
	ovs, c, ctx := open(t)
	p := Port{Name: "v0", OFPort: 16}
	if err := c.EnsurePorts(ctx, "br0", p); err == nil {
		t.Fatal("opened a missing device")
	}
	veths(t, ovs, "v", 1)
	if err := c.EnsurePorts(ctx, "br0", p); err != nil {
		t.Fatal(err)
	}
}

// What the switch reports of a port ends the wait before the database does.
func TestPortAdded(t *testing.T) {
	ovs, c, ctx := open(t)
	ovs.KillVswitchd() // so that only the report can end it
	changes, stop := c.Watch()
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.EnsurePorts(ctx, "br0", Port{Name: "p1", Type: "internal", OFPort: 20}) }()
	for ports, err := c.Ports(ctx); len(ports) == 0; ports, err = c.Ports(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		<-changes
	}
	c.PortAdded("p2", 20)
	c.PortAdded("p1", 21)
	select {
	case err := <-done:
		t.Fatalf("ended by another port's report: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	c.PortAdded("p1", 20)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestVswitchdStopped(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "v", 1)
	ovs.KillVswitchd()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := c.EnsurePorts(short, "br0", Port{Name: "v0", OFPort: 16})
	if err == nil || !strings.Contains(err.Error(), "ovs-vswitchd did not open it: is it running?") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Info(ctx); !errors.Is(err, appctl.ErrNotRunning) {
		t.Errorf("Info: %v", err)
	}
	if err := ovs.StartVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "v0", OFPort: 16}); err != nil {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	ovs, c, ctx := open(t)
	info, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ovs.Appctl(ctx, "version")
	if err != nil || !strings.Contains(out, info.Version.String()) {
		t.Errorf("version %v, appctl says %s, %v", info.Version, out, err)
	}
	if !slices.Contains(info.DatapathTypes, ovs.Datapath) || !slices.Contains(info.IfaceTypes, "vxlan") {
		t.Errorf("%+v", info)
	}
	_, err = ovs.Appctl(ctx, "dpctl/add-dp", "system@probe")
	if works := err == nil; works != slices.Contains(info.DatapathTypes, "system") {
		t.Errorf("datapaths %v, but the kernel's one can be made: %v (%v)", info.DatapathTypes, works, err)
	}
}

// Everything goes on by itself after the database was restarted, and calls made
// while it was away succeed.
func TestDatabaseRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{})
	var connects, disconnects atomic.Int32
	c := Open(Options{
		Socket:       ovs.DBSocket(),
		OnConnect:    func() { connects.Add(1) },
		OnDisconnect: func(error) { disconnects.Add(1) },
	})
	defer c.Close()
	if err := c.EnsureBridge(ctx, Bridge{Name: "br0", Datapath: ovs.Datapath}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "p", Type: "internal", OFPort: 19}); err != nil {
		t.Fatal(err)
	}
	// Meanwhile no reader gets an empty list of ports.
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				if ports, err := c.Ports(ctx); err != nil || len(ports) == 0 {
					t.Errorf("Ports = %+v, %v", ports, err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range 3 {
		ovs.KillDB()
		done := make(chan error, 1)
		go func() {
			done <- c.EnsurePorts(ctx, "br0", Port{Name: fmt.Sprintf("p%d", i), Type: "internal", OFPort: 20 + i})
		}()
		if err := ovs.StartDB(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	if ports, err := c.Ports(ctx); err != nil || len(ports) != 4 {
		t.Errorf("Ports = %+v, %v", ports, err)
	}
	if connects.Load() != 4 || disconnects.Load() != 3 {
		t.Errorf("%d connections, %d losses", connects.Load(), disconnects.Load())
	}
}

// An ovs-vswitchd that starts with flow-restore-wait forwards nothing until the
// release; arming it for the next start does not hold the running one.
func TestFlowRestore(t *testing.T) {
	ovs, c, ctx := open(t)
	veths(t, ovs, "v", 1)
	if err := c.EnsurePorts(ctx, "br0", Port{Name: "v0", OFPort: 16}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"link", "set", "v0p", "up"}, {"addr", "add", "10.9.9.1/24", "dev", "v0p"}} {
		if _, err := ovs.Run(ctx, "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	passes := func(tries int) bool {
		t.Helper()
		if _, err := ovs.Ofctl(ctx, "add-flow", "br0", "in_port=16,actions=drop"); err != nil {
			t.Fatal(err)
		}
		for range tries {
			_, _ = ovs.Run(ctx, "ping", "-c", "1", "-W", "0.3", "10.9.9.2") // unanswered
			out, err := ovs.Ofctl(ctx, "dump-flows", "br0")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "n_packets=0,") {
				return true
			}
		}
		return false
	}
	for start := range 2 {
		if start > 0 && passes(3) {
			t.Error("a packet passed before the release")
		}
		if err := c.ReleaseFlowRestore(ctx, true); err != nil {
			t.Fatal(err)
		}
		if got := vsctl(t, ovs, "get", "open_vswitch", ".", "other_config:flow-restore-wait"); got != `"true"` {
			t.Errorf("flow-restore-wait = %s", got)
		}
		if !passes(20) {
			t.Error("no packet passed after the release")
		}
		ovs.KillVswitchd()
		if err := ovs.StartVswitchd(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ReleaseFlowRestore(ctx, false); err != nil {
		t.Fatal(err)
	}
	if got := vsctl(t, ovs, "get", "open_vswitch", ".", "other_config"); got != "{}" {
		t.Errorf("other_config = %s", got)
	}
}

func TestWatch(t *testing.T) {
	ovs, c, ctx := open(t)
	changes, stop := c.Watch()
	defer stop()
	vsctl(t, ovs, "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=internal", "external_ids:coelan-owner=coelan")
	for {
		if ports, err := c.Ports(ctx); err != nil || len(ports) == 1 {
			return
		}
		select {
		case <-changes:
		case <-ctx.Done():
			t.Fatal("no change was seen")
		}
	}
}
