// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
)

// on are the ports of a bridge with their VLANs, and the peers of wires.
func (n *testNode) on(bridge string) map[string]string {
	n.Helper()
	ports, err := n.clients.db.Ports(n.bound())
	n.must(err)
	got := map[string]string{}
	for _, p := range ports {
		if p.Bridge == bridge {
			got[p.Name] = fmt.Sprintf("%s %d %s", p.Type, p.VLAN, p.Options["peer"])
		}
	}
	return got
}

// beside is a pod with its interface on brk8s.
func (n *testNode) beside(name string) attachment.Attachment {
	n.Helper()
	at, revision := n.podOn("brk8s", name)
	n.must(n.flows.sync(n.bound(), n.intent.State()))
	n.must(n.Attach(n.bound(), at, revision))
	return at
}

// Each pod of a bridge that a network configuration names is alone with its wire in a VLAN, and the
// wire's end on the agent's bridge has the pod's number. The bridge's own port is in no VLAN.
func TestPodsOnAnotherBridge(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	a, b, c := n.beside("a"), n.beside("b"), n.attached("c")
	ends := func(at attachment.Attachment) (inner, outer string) {
		return "ci" + at.HostInterface[2:], "cw" + at.HostInterface[2:]
	}
	ai, ao := ends(a)
	bi, bo := ends(b)
	want := map[string]string{
		a.HostInterface: " 1 ", ao: "patch 1 " + ai, b.HostInterface: " 2 ", bo: "patch 2 " + bi,
	}
	if diff := cmp.Diff(want, n.on("brk8s")); diff != "" {
		t.Errorf("brk8s (-want +got):\n%s", diff)
	}
	got := n.on("br-int")
	if got[ai] != "patch 0 "+ao || got[bi] != "patch 0 "+bo || got[c.HostInterface] == "" || got[a.HostInterface] != "" {
		t.Errorf("br-int: %v", got)
	}
	bridge := n.bridgeOf("brk8s")
	if !bridge.Own || bridge.Datapath != "netdev" {
		t.Errorf("bridge %+v", bridge)
	}
	ports, err := n.Ports(n.bound())
	n.must(err)
	for _, p := range ports {
		if !p.Ready || p.Actual != int(p.OFPort) {
			t.Errorf("port %+v", p)
		}
	}
	for _, at := range []attachment.Attachment{a, b, c} {
		n.must(n.Check(n.bound(), at))
	}

	// What another program does there is found and mended, as far as it is the agent's.
	n.must(m.ovs.DeletePort("brk8s", ao))
	n.until("the port is gone", func() bool { return n.on("brk8s")[ao] == "" })
	n.says(n.Check(n.bound(), a), "port "+ao+" of default/a/eth0 is missing on bridge brk8s")
	n.must(m.ovs.AddPort("brk8s", "eth7", nil))
	n.until("the port is known", func() bool { return slices.Contains(n.bridgeOf("brk8s").Ports, "eth7") })
	found := strings.Join(n.findings(), "\n")
	for _, text := range []string{
		"port " + ao + " of default/a/eth0 is missing on bridge brk8s",
		"port eth7 on bridge brk8s is not Coelan's: unless a mirror sends to it",
	} {
		if !strings.Contains(found, text) {
			t.Errorf("a check does not find %q:\n%s", text, found)
		}
	}
	n.must(n.clients.db.EnsurePorts(n.bound(), "brk8s", ovsdb.Port{Name: "cwgone", AnyNumber: true}))
	n.reconciled()
	if diff := cmp.Diff(want, n.on("brk8s")); diff != "" {
		t.Errorf("brk8s, repaired (-want +got):\n%s", diff)
	}
	n.must(n.Check(n.bound(), a))

	// A wire that is being made anew does not work until ovs-vswitchd has opened its ends.
	n.must(m.ovs.DeletePort("brk8s", ao))
	n.until("the port is gone", func() bool { return n.on("brk8s")[ao] == "" })
	m.ovs.StopVswitchd()
	repaired := make(chan error, 1)
	go func() { repaired <- n.reconciler.reconcile(n.bound()) }()
	n.until("the wire is made", func() bool { return n.on("brk8s")[ao] != "" })
	brief, cancel := context.WithTimeout(n.Context(), 100*time.Millisecond)
	defer cancel()
	n.says(n.Check(brief, a), "port "+ao+": ovs-vswitchd did not open it")
	n.must(m.ovs.StartVswitchd())
	n.must(n.Check(n.bound(), a))
	n.must(<-repaired)

	// A pod that goes takes its ports along, and no other's.
	n.must(n.Detach(n.bound(), a, n.intent.State().Revision()))
	if diff := cmp.Diff(map[string]string{b.HostInterface: " 2 ", bo: "patch 2 " + bi}, n.on("brk8s")); diff != "" {
		t.Errorf("brk8s without pod a (-want +got):\n%s", diff)
	}
	if got := n.on("br-int"); got[ai] != "" || got[bi] == "" {
		t.Errorf("br-int without pod a: %v", got)
	}
}

// A bridge that serves something else is refused, and nothing of the pod is left.
func TestBridgesThatPodsCannotHave(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.addBridge("br-card", "netdev", "eth1")
	n.addBridge("br-other", "system")
	n.addBridge("br-odl", "netdev")
	n.must(m.ovs.AddController("br-odl", "tcp:192.0.2.1:6653"))
	n.until("the controller is known", func() bool { return n.bridgeOf("br-odl").Controlled })
	n.reconciled()
	n.must(n.clients.db.EnsureBridge(n.bound(), ovsdb.Bridge{Name: "br-own", Datapath: "netdev"}))
	taken := n.attached("taken")
	for bridge, want := range map[string]string{
		"br-card":           "exists, is not Coelan's and has ports (eth1)",
		"br-other":          `exists with datapath "system", wanted is "netdev"`,
		"br-odl":            "it has an OpenFlow controller: name another bridge",
		"br-own":            "it is one of the agent's own for something else",
		taken.HostInterface: "a port of another bridge has this name",
	} {
		at, revision := n.podOn(bridge, "p-"+bridge)
		n.must(n.flows.sync(n.bound(), n.intent.State()))
		err := n.Attach(n.bound(), at, revision)
		n.says(err, "bridge "+bridge+" of the network configuration: ")
		n.says(err, want)
		inner, _ := wireEnds(at)
		if got := n.on("br-int"); got[inner] != "" || got[at.HostInterface] != "" {
			t.Errorf("on br-int for a pod on %s: %v", bridge, got)
		}
		n.must(n.Detach(n.bound(), at, revision))
	}
	// An empty one without a controller is as good as a new one.
	n.addBridge("brk8s", "netdev")
	at := n.beside("a")
	n.must(n.Check(n.bound(), at))
}
