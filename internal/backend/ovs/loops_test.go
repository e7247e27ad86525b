// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

// A node that starts makes its bridge, its ports and its flows, and has the kernel follow.
func TestNodeStarts(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.run()
	n.ready()
	at, revision := n.pod("a")
	n.must(n.Attach(n.bound(), at, revision))
	n.wants()
	want := []string{"coelan-gw0", at.HostInterface}
	slices.Sort(want)
	if diff := cmp.Diff(want, n.portNames("br-int")); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if b := n.bridge(); !b.Own || b.Datapath != "netdev" {
		t.Errorf("bridge %+v", b)
	}
	if !n.links.up[at.HostInterface] {
		t.Error("the pod's interface is not set up")
	}
	n.until("the kernel follows", func() bool { return n.kernel.holds() != nil })
	host := n.kernel.holds()
	if host.Uplink != "eth0" || host.Gateway.MTU != 1500 ||
		!slices.Contains(host.Gateway.Addresses, netip.MustParsePrefix("10.244.1.1/24")) {
		t.Errorf("host %+v", host)
	}
	route := hostnet.Route{Destination: netip.MustParsePrefix("10.244.2.0/24"), Via: addr("192.0.2.2")}
	if !slices.Contains(host.Routes, route) {
		t.Errorf("routes %+v lack %+v", host.Routes, route)
	}
	n.kernel.status <- hostnet.Status{Error: "no gateway"}
	n.until("the host's problem is known", func() bool { return n.Conditions.All()[condHost] == "no gateway" })
	n.kernel.status <- hostnet.Status{Synced: true}
	n.until("the host is well", func() bool { return n.Conditions.All()[condHost] == "" })
}

// A backend that restarts finds everything as it should be: it changes no flow and no port.
func TestRestartChangesNothing(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	at := n.attached("a")
	stop := n.run()
	n.until("a comparison is done", func() bool { return m.said.has("reconciled: <nil>") })
	stop()
	text, ports := m.sw.Text(), n.portNames("br-int")
	n.Close()
	m.sw.Sent()
	m.said.forget()

	again := m.start(m.testConfig())
	again.run()
	again.until("flows are compared", func() bool { return again.flows.connected() })
	again.until("ports are compared", func() bool { return m.said.has("reconciled: <nil>") })
	again.must(again.Check(again.bound(), at))
	if sent := m.sw.Sent(); len(sent) > 0 {
		t.Errorf("%d messages to a switch that has all flows: %v", len(sent), sent)
	}
	if diff := cmp.Diff(text, m.sw.Text()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(ports, again.portNames("br-int")); diff != "" {
		t.Errorf("ports (-before +after):\n%s", diff)
	}
	if m.said.has("repaired") || m.said.has("swept") {
		t.Error("something was repaired or removed")
	}
}

// A port that another program deletes comes back, unless its interface is gone.
func TestDeletedPortsComeBack(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	a, b := n.attached("a"), n.attached("b")
	n.run()
	n.ready()
	m.ovs.Calls()
	n.must(m.ovs.DeletePort("br-int", a.HostInterface))
	n.until("the port comes back", func() bool { return slices.Contains(n.portNames("br-int"), a.HostInterface) })
	n.until("the repair is reported", func() bool { return m.said.has("repaired") })
	n.must(n.Check(n.bound(), a))
	if !slices.Contains(m.ovs.Calls(), "revalidator/wait") {
		t.Error("a port counts as good that the datapath need not know yet")
	}
	n.links.remove(b.HostInterface)
	n.must(m.ovs.DeletePort("br-int", b.HostInterface))
	n.until("the agent knows that the interface is gone", func() bool { return m.said.has("interface gone") })
	n.says(n.Check(n.bound(), b), "port "+b.HostInterface+" of default/b/eth0 is missing on bridge br-int")
}

// newRunning is a node that is ready, with one pod.
func newRunning(t *testing.T) (*machine, *testNode, attachment.Attachment) {
	t.Helper()
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	at := n.attached("a")
	n.run()
	n.ready()
	return m, n, at
}

// The gateway and the bridge itself come back, too.
func TestDeletedBridgeComesBack(t *testing.T) {
	m, n, at := newRunning(t)
	n.must(m.ovs.DeletePort("br-int", "coelan-gw0"))
	n.until("the gateway comes back", func() bool { return slices.Contains(n.portNames("br-int"), "coelan-gw0") })
	n.must(n.clients.db.DelBridge(n.bound(), "br-int"))
	n.until("the pod's port comes back", func() bool { return n.Check(n.bound(), at) == nil })
}

// A backend removes ports of its own that belong to no pod, and nothing of others.
func TestOnlyOwnPortsAreRemoved(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.addBridge("br-other", "netdev", "eth1")
	n.reconciled()
	n.must(m.ovs.AddPort("br-int", "tap0", map[string]string{"iface-id": "default/vm"}))
	left := ovsdb.Port{Name: "co-left", OFPort: 99, ExternalIDs: map[string]string{idInterface: "default/gone/eth0"}}
	busy := ovsdb.Port{Name: "co-busy", OFPort: 98}
	n.must(n.clients.db.EnsurePorts(n.bound(), "br-int", left, busy))
	unlock, err := n.Interfaces.Lock(n.bound(), "co-busy")
	n.must(err)
	n.reconciled()
	if diff := cmp.Diff([]string{"co-busy", "coelan-gw0", "tap0"}, n.portNames("br-int")); diff != "" {
		t.Errorf("ports while one is being attached (-want +got):\n%s", diff)
	}
	unlock()
	n.reconciled()
	if diff := cmp.Diff([]string{"coelan-gw0", "tap0"}, n.portNames("br-int")); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if !m.said.has("swept port") {
		t.Error("the removal is not reported")
	}
	guests, err := n.Guests(n.bound())
	if err != nil || len(guests) != 1 || guests[0].Name != "tap0" || guests[0].ID != "default/vm" {
		t.Errorf("guests %+v, %v", guests, err)
	}
	if ports := n.portNames("br-other"); !slices.Equal(ports, []string{"eth1"}) {
		t.Errorf("ports of br-other %v", ports)
	}
	n.must(n.RequestNumber(n.bound(), "tap0", 500))
	if guests, err = n.Guests(n.bound()); err != nil || guests[0].Number != 500 {
		t.Errorf("guests %+v, %v", guests, err)
	}
}

// A database that was made anew gets everything again, and the flows stay.
func TestDatabaseIsMadeAnew(t *testing.T) {
	m, n, at := newRunning(t)
	before := m.sw.Text()
	m.ovs.StopDatabase()
	n.until("the agent knows", func() bool { return n.Conditions.All()[condOVS] != "" })
	n.says(n.Check(n.over(), at), "the Open vSwitch database does not answer")
	n.must(m.ovs.Reset())
	n.must(m.ovs.StartDatabase())
	n.until("the pod's port is there again", func() bool { return n.Check(n.bound(), at) == nil })
	n.ready()
	if diff := cmp.Diff(before, m.sw.Text()); diff != "" {
		t.Errorf("flows (-before +after):\n%s", diff)
	}
}

// A switch that is lost unmeets the flows' condition, and one that comes back empty gets all flows.
func TestSwitchComesBackEmpty(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	at, revision := n.pod("a")
	n.reconciled()
	n.must(n.Attach(n.bound(), at, revision))
	c := n.clients.connections
	c.switchLost(errors.New("connection reset"))
	n.says(n.Conditions.Ready(), "bridge br-int does not answer: connection reset")
	n.says(n.Applied(n.over(), revision), "flows are not on the bridge: bridge br-int does not answer: connection reset")
	if n.asked.version.Load() {
		t.Error("Open vSwitch is not asked again what it is")
	}
	m.sw = bridge.NewFake()
	c.switchConnected()
	n.flows.bridge = n.newBridge()
	n.run()
	n.must(n.Applied(n.bound(), revision))
	n.wants()
	c.ending.Store(true)
	c.switchLost(errors.New("closed by the agent"))
	c.dbLost(errors.New("closed by the agent"))
	if all := n.Conditions.All(); all[condFlows] != "" || all[condOVS] != "" {
		t.Errorf("an agent that ends reports %v", all)
	}
}

// Wires to physical networks are made once their bridges exist; what keeps one away is said.
func TestUplinksFollowBridges(t *testing.T) {
	m := newMachine(t)
	m.connectedTo("office", "lab")
	n := m.start(m.testConfig())
	n.addBridge("br-lab", "", "eth9")
	n.run()
	n.until("the problems are known", func() bool { return m.said.has("PhysicalNetworkNotConnected") })
	if !m.said.has("uplinks changed") {
		t.Error("the change of physical networks is not reported")
	}
	n.says(n.Connected("office"), "bridge br-office does not exist: make it, with the network card in it")
	n.says(n.Connected("lab"),
		`bridge br-lab has datapath "system", and bridge br-int has "netdev": there is no way between them`)
	n.says(n.Connected("none"), "physical network none is not in its bridgeMappings or uplinks")
	n.must(m.ovs.AddBridge("br-office", "netdev", "eth1"))
	n.until("the network is connected", func() bool { return n.Connected("office") == nil })
	number := n.Uplinks()["office"]
	inner, outer := fmt.Sprintf("coelan-phys%d", number), fmt.Sprintf("coelan-int%d", number)
	here, there := n.portNames("br-int"), n.portNames("br-office")
	if !slices.Contains(here, inner) || !slices.Contains(there, outer) {
		t.Errorf("ports %v and %v lack the wire %s, %s", here, there, inner, outer)
	}
	n.must(m.ovs.DeletePort("br-office", outer))
	n.until("the wire comes back", func() bool { return slices.Contains(n.portNames("br-office"), outer) })
}

// A node that cannot work says why, and goes on when it can.
func TestNodesThatCannotWork(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	m.ovs.Answer("version", "ovs-vswitchd (Open vSwitch) 2.16.0\n")
	n.says(n.reconciler.reconcile(n.bound()), "Open vSwitch 2.16.0 is too old")
	if n.Conditions.All()[condOVS] == "" || !m.said.has("NetworkNotReady: Open vSwitch 2.16.0") {
		t.Errorf("conditions %v; or the reason is not reported", n.Conditions.All())
	}
	m.ovs.Answer("version", "ovs-vswitchd (Open vSwitch) 3.3.1\n")
	m.uplink.Name = ""
	n.says(n.reconciler.reconcile(n.bound()),
		"node n1: no interface of this host has the node's address 192.0.2.1; does the Node object name another host?")
	m.uplink.Name = "eth0"
	n.must(n.reconciler.reconcile(n.bound()))
	if all := n.Conditions.All(); all[condOVS] != "" || all[condBridge] != "" {
		t.Errorf("conditions %v", all)
	}
	m.update(func(tx *intent.Tx) { tx.ReplaceNodes(nil) })
	n.must(n.reconciler.reconcile(n.bound()))
}

// A pod's host ports come with it and go with it, and DEL succeeds without Open vSwitch.
func TestAttachAndDetach(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	at := n.attached("a", attachment.HostPort{Protocol: intent.TCP, HostPort: 8080, Port: 80})
	n.run()
	n.ready()
	want := []hostnet.HostPort{{Protocol: intent.TCP, Port: 8080, To: netip.MustParseAddrPort("10.244.1.10:80")}}
	if got := n.kernel.hostPorts(); !slices.Equal(got, want) {
		t.Errorf("host ports %v, want %v", got, want)
	}
	n.must(n.Check(n.bound(), at))
	m.kernel.fail(errors.New("the rules are not as they were written"))
	n.says(n.Check(n.bound(), at), "host ports of default/a/eth0: the rules are not as they were written")
	m.kernel.fail(nil)

	m.ovs.StopDatabase()
	n.until("the agent knows", func() bool { return n.Conditions.All()[condOVS] != "" })
	revision := m.update(func(tx *intent.Tx) { tx.DeletePort(at.Key.String()) })
	n.must(n.Detach(n.over(), at, revision))
	if len(n.kernel.hostPorts()) > 0 {
		t.Errorf("host ports %v", n.kernel.hostPorts())
	}
	_, err := m.store.Release(at.Key)
	n.must(err)
	n.must(m.ovs.StartDatabase())
	n.until("the port of the pod that is gone is removed", func() bool {
		return !slices.Contains(n.portNames("br-int"), at.HostInterface)
	})
	n.ready()
	n.must(n.Detach(n.bound(), at, revision))
	n.says(n.Check(n.bound(), at), "is missing on bridge")
}
