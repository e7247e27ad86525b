// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/ovsfake"
	"coelan.io/coelan/internal/config"
)

// trunkPorts are ports on a trunk by their names. Those without a VLAN are not known.
type trunkPorts struct {
	LogicalPorts
	vlans map[string]int
}

func (trunkPorts) Trunk() bool { return true }

func (p trunkPorts) Port(at attachment.Attachment) (string, int) {
	return p.known(p.LogicalPorts.Port(at))
}

func (p trunkPorts) Management(node string) (string, int) {
	return p.known(p.LogicalPorts.Management(node))
}

func (p trunkPorts) known(logical string, _ int) (string, int) {
	if p.vlans[logical] == 0 {
		return "", 0
	}
	return logical, p.vlans[logical]
}

// newMachine is newNode for a machine of OpenStack, with its address on an interface.
func newMachine(t *testing.T, link string, vlans map[string]int) *node {
	t.Helper()
	o := ovsfake.New(t)
	must(t, o.AddBridge("br-int", "netdev"))
	return newMachineOn(t, o, link, vlans)
}

func newMachineOn(t *testing.T, o *ovsfake.OVS, link string, vlans map[string]int) *node {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	n := restart(t, o, store, func(c *config.Config) { c.Backend.Southbound = "tcp:192.0.2.1:6642" })
	n.logical = trunkPorts{n.logical, vlans}
	n.ports.logical = n.logical
	n.host.find = func(a netip.Addr) (hostnet.Uplink, error) {
		return hostnet.Uplink{Name: link, MTU: 1400, Address: netip.PrefixFrom(a, 24)}, nil
	}
	return n
}

func (n *node) vlan(name string) int {
	n.Helper()
	p, ok, err := n.ports.find(bound(n.T), name)
	must(n.T, err)
	if !ok {
		n.Errorf("there is no port %s", name)
	}
	return p.VLAN
}

// On a machine of OpenStack interfaces are plugged in the VLANs of their ports, nothing of OVN is
// configured, and pods' packets are as large as the machine's.
func TestMachine(t *testing.T) {
	vlans := map[string]int{"mgmt-n1": 2, "shop/web.eth0": 3}
	n := newMachine(t, "br-int", vlans)
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	must(t, n.Attach(bound(t), at, 0))
	must(t, n.Check(bound(t), at))
	if own, pod := n.vlan("coelan-gw0"), n.vlan(at.HostInterface); own != 2 || pod != 3 {
		t.Errorf("the node is in VLAN %d, and the pod in %d", own, pod)
	}
	if mtu := n.Intent.State().Local().MTU; mtu != 1400 {
		t.Errorf("pods have an MTU of %d", mtu)
	}
	ids, err := n.db.ExternalIDs(bound(t))
	must(t, err)
	if ids[idRemote] != "" {
		t.Errorf("ovn-controller is configured: %v", ids)
	}
	infos, err := n.Ports(bound(t))
	must(t, err)
	if len(infos) != 1 || !infos[0].Ready {
		t.Errorf("ports %+v", infos)
	}
	var c agentapi.Check
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) > 0 {
		t.Errorf("findings: %+v", c.Findings)
	}

	vlans["shop/web.eth0"] = 4 // its port was made anew
	n.says(n.Check(bound(t), at), "is not plugged as shop/web.eth0")
	must(t, n.reconcile(bound(t)))
	if got := n.vlan(at.HostInterface); got != 4 {
		t.Errorf("the pod is in VLAN %d", got)
	}
	must(t, n.db.EnsurePorts(bound(t), "br-int", ovsdb.Port{Name: at.HostInterface, AnyNumber: true, VLAN: 9,
		ExternalIDs: portOf(at, "shop/web.eth0", 0).ExternalIDs}))
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) != 1 || c.Findings[0].Object != at.HostInterface {
		t.Errorf("findings of another VLAN: %+v", c.Findings)
	}
}

// A machine with its address beside the bridge would have its pods cut off, and says so.
func TestMachineBesideItsBridge(t *testing.T) {
	n := newMachine(t, "eth0", nil)
	n.says(n.reconcile(bound(t)), "the node's address 192.0.2.1 is on interface eth0")
	n.Config.Bridge = "br-other"
	n.says(n.reconcile(bound(t)), "bridge br-other does not exist: on a machine of OpenStack")
}

// An agent that has started on a machine, and does not know the Ports yet, restores what fails in
// the VLAN that it had. A port in no VLAN would have the packets of all pods: none is made.
func TestMachineBeforePortsAreKnown(t *testing.T) {
	vlans := map[string]int{"mgmt-n1": 2, "shop/web.eth0": 3}
	n := newMachine(t, "br-int", vlans)
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	must(t, n.Attach(bound(t), at, 0))
	fails := func() {
		t.Helper()
		n.ovs.Break(at.HostInterface, "no such device")
		must(t, n.ovs.StartVswitchd())
		<-n.state(func(p ovsdb.PortState) bool { return p.Name == at.HostInterface && p.Actual < 0 })
		n.ovs.Break(at.HostInterface, "")
	}

	delete(vlans, "shop/web.eth0")
	fails()
	must(t, n.reconcile(bound(t)))
	must(t, n.Check(bound(t), at))
	if got := n.vlan(at.HostInterface); got != 3 {
		t.Errorf("the pod's port is restored in VLAN %d, and had 3", got)
	}

	must(t, n.db.DelPorts(bound(t), "br-int", at.HostInterface))
	must(t, n.db.EnsurePorts(bound(t), "br-int", portOf(at, "shop/web.eth0", 0)))
	n.says(n.Check(bound(t), at), "is not plugged as shop/web.eth0")
	var c agentapi.Check
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) != 1 || !strings.Contains(c.Findings[0].Problem, "is in no VLAN") {
		t.Errorf("findings of a port in no VLAN: %+v", c.Findings)
	}
	fails()
	must(t, n.reconcile(bound(t)))
	if p, _, err := n.ports.find(bound(t), at.HostInterface); err != nil || p.Ready() {
		t.Errorf("a port in no VLAN is restored: %+v, %v", p, err)
	}
	vlans["shop/web.eth0"] = 4
	must(t, n.reconcile(bound(t)))
	must(t, n.Check(bound(t), at))
	if got := n.vlan(at.HostInterface); got != 4 {
		t.Errorf("the pod is in VLAN %d, not in that of its port, 4", got)
	}
}
