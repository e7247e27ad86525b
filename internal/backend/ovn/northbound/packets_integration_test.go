// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/reserved"
)

// guest is a Port with its interface in a network namespace of its own.
type guest struct {
	t  *testing.T
	ns *ovstest.Namespace
}

// plug gives a Port an interface on the node.
func plug(t *testing.T, o *ovstest.OVS, name, ifaceID, mac string, commands ...string) guest {
	t.Helper()
	g := wire(t, o, name, "br-int", "interface", "external_ids:iface-id="+ifaceID)
	// Without RAs: a default route that the kernel learns from OVN's would stand in the way of the
	// one that a test adds.
	g.run("sysctl -qw net.ipv6.conf.eth0.accept_ra=0; ip link set eth0 address " + mac + " up; " +
		strings.Join(commands, "; "))
	return g
}

// wire makes a namespace with an interface that is on a bridge, with a setting of its row in a
// table.
func wire(t *testing.T, o *ovstest.OVS, name, bridge, table, setting string) guest {
	t.Helper()
	ns, err := ovstest.NewNamespace("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	g := guest{t, ns}
	script := "ip link add " + name + " type veth peer name eth0 netns $1 && ip link set " + name + " up"
	if err := o.Do(func() error { return exec.Command("sh", "-ec", script, "sh", ns.Path()).Run() }); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if _, err := o.Vsctl(t.Context(), "add-port", bridge, name, "--", "set", table, name, setting); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g guest) run(script string) {
	g.t.Helper()
	var out []byte
	err := g.ns.Do(func() (err error) {
		out, err = exec.Command("sh", "-ec", script).CombinedOutput()
		return err
	})
	if err != nil {
		g.t.Errorf("%s: %v: %s", script, err, out)
	}
}

// What ovn-trace cannot say: packets leave by the node that they are on, and come back.
func TestPackets(t *testing.T) {
	o, ovs := ovntest.Start(t), ovstest.Start(t, ovstest.Options{})
	o.Northd()
	w := world()
	mac := func(object string) string {
		for _, p := range w.Ports {
			if p.ObjectKey() == object {
				return p.MAC.String()
			}
		}
		return ""
	}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	o.Controller(ovs, "n2")
	if _, err := ovs.Vsctl(t.Context(), "wait-until", "bridge", "br-int"); err != nil {
		t.Fatal(err)
	}
	plug(t, ovs, "mgmt", "mgmt-n2", "0a:ce:0a:f4:02:fe", "ip addr add 10.244.2.254/24 dev eth0",
		"ip addr add fd00:244:2:0:ffff:ffff:ffff:ffff/64 dev eth0 nodad",
		"ip addr add 203.0.113.9/32 dev lo", "ip addr add 2001:db8::9/128 dev lo",
		"ip route add 10.0.0.0/8 via 10.244.2.1", "ip route add fd00::/16 via fd00:244:2::1")
	db := plug(t, ovs, "db", "shop/db", mac("shop/db"), "ip addr add 10.244.2.2/24 dev eth0",
		"ip addr add fd00:244:2::2/64 dev eth0 nodad", "ip route add default via 10.244.2.1",
		"ip route add default via fd00:244:2::1")
	lab := plug(t, ovs, "lab", "lab/a", mac("lab/a"), "ip addr add 10.30.0.2/16 dev eth0",
		"ip addr add fd00:30::2/64 dev eth0 nodad", "ip route add default via 10.30.0.1",
		"ip route add default via fd00:30::1")
	for _, port := range []string{"mgmt-n2", "shop/db", "lab/a"} {
		o.Nbctl("wait-until", "logical_switch_port", port, "up=true")
	}
	o.Nbctl("--wait=hv", "sync")
	for _, ping := range []string{"203.0.113.9", "2001:db8::9", "10.244.2.254"} {
		db.run("ping -c 1 -w 10 " + ping)
		lab.run("ping -c 1 -w 10 " + ping)
	}
	lab.run("ping -c 1 -w 10 10.244.2.2")
	db.run("ping -c 1 -w 10 fd00:30::2")
	lab.run("! ping -c 1 -W 1 10.96.0.9")
}

// A FloatingIP without a gateway of its Router: a host of the segment and the Port's machine reach
// each other by it in both families, and a machine without one reaches nothing there.
func TestPacketsOfFloatingIPsAlone(t *testing.T) {
	o, ovs := ovntest.Start(t), ovstest.Start(t, ovstest.Options{})
	o.Northd()
	w := world()
	office := &w.Networks[len(w.Networks)-1]
	office.External, office.Subnets = true, append(office.Subnets, intenttest.Subnet("fd00:70::/64"))
	w.Ports = append(w.Ports, intenttest.Port("red", "none", "red", "n1", "10.10.0.9", "fd00:10::9"))
	for name, address := range map[string]string{"red/four": "192.168.70.60", "red/six": "fd00:70::60"} {
		w.FloatingIPs = append(w.FloatingIPs, intent.FloatingIP{
			Name: name, Network: "office", Address: netip.MustParseAddr(address), Port: "red/a",
		})
	}
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	if _, err := ovs.Vsctl(t.Context(), "add-br", "br-dc", "--", "set", "bridge", "br-dc", "datapath_type=netdev", "--", "set", "open", ".",
		"external_ids:ovn-bridge-mappings=dc:br-dc"); err != nil {
		t.Fatal(err)
	}
	o.Controller(ovs, "n1")
	if _, err := ovs.Vsctl(t.Context(), "wait-until", "bridge", "br-int"); err != nil {
		t.Fatal(err)
	}
	guests := map[string]guest{}
	for name, last := range map[string]string{"a": "2", "none": "9"} {
		guests[name] = plug(t, ovs, "if-"+name, "red/"+name, reserved.PodMAC(netip.MustParseAddr("10.10.0."+last)).String(),
			"ip addr add 10.10.0."+last+"/16 dev eth0", "ip addr add fd00:10::"+last+"/64 dev eth0 nodad",
			"ip route add default via 10.10.0.1", "ip route add default via fd00:10::1")
	}
	host := wire(t, ovs, "host", "br-dc", "port", "tag=70")
	host.run("ip addr add 192.168.70.200/24 dev eth0; ip addr add fd00:70::200/64 dev eth0 nodad; ip link set eth0 up")
	for _, port := range []string{"red/a", "red/none"} {
		o.Nbctl("wait-until", "logical_switch_port", port, "up=true")
	}
	o.Nbctl("--wait=hv", "sync")
	for _, x := range []struct{ floating, host string }{{"192.168.70.60", "192.168.70.200"}, {"fd00:70::60", "fd00:70::200"}} {
		// Until the first answer: a packet that a router has to keep while it learns a host's MAC
		// may get lost.
		host.run("ping -c 1 -w 10 " + x.floating)
		guests["a"].run("ping -c 1 -w 10 " + x.host)
		guests["none"].run("! ping -c 1 -W 1 " + x.host)
	}
}
