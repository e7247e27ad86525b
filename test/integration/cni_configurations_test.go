// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// hostLocal is a configuration of odlovs-cni for a node, with a range of its podCIDR.
func hostLocal(t *testing.T, n *lab.Node, dir string) string {
	t.Helper()
	subnet := n.PodCIDRs[0]
	gateway := subnet.Addr().Next()
	start := strings.TrimSuffix(gateway.String(), "1") + "200"
	return fmt.Sprintf(`{"cniVersion":"0.4.0","name":"odl-cni","type":"odlovs-cni","mgrPort":6640,"ovsBridge":%q,
		"ipam":{"type":"host-local","dataDir":%q,"subnet":%q,"rangeStart":%q,"routes":[{"dst":"0.0.0.0/0"}],"gateway":%q}}`,
		n.Config().Bridge, dir, subnet, start, gateway)
}

// TestCOEConfigurations has pods by configurations of COE's reach each other, pods by that of the
// agent, and the internet: with addresses of the plugin host-local, and on the Network that a VNI
// selects.
func TestCOEConfigurations(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	dir := t.TempDir()
	h1 := addPodAs(t, w.n1, lab.PodSpec{Name: "h1", Config: hostLocal(t, w.n1, dir+"/n1")})
	h2 := addPodAs(t, w.n2, lab.PodSpec{Name: "h2", Config: hostLocal(t, w.n2, dir+"/n2")})
	if got := h1.Address(lab.IPv4).String(); !strings.HasSuffix(got, ".200") {
		t.Errorf("host-local gave %s", got)
	}
	vni := int32(42)
	w.API.AddNetwork("coe", v1alpha1.NetworkSpec{VNI: &vni, Subnets: subnets("10.77.0.0/24")})
	awaitNetwork(t, w, "coe")
	const odl = `{"name":"odl-coe","type":"ovs-odl","bridge":"br-int","isDefaultGateway":true,"forceAddress":false,"ipMasq":true,"hairpinMode":true,
		"ipam":{"type":"ipam-odl"},"ovs":{"bridge":"br-int","vxlan":"00042"}}`
	v1 := addPodAs(t, w.n1, lab.PodSpec{Name: "v1", Config: odl})
	v2 := addPodAs(t, w.n2, lab.PodSpec{Name: "v2", Config: odl})
	own := func(p *lab.Pod) func(lab.Family) netip.Addr {
		return func(f lab.Family) netip.Addr { return p.Own("eth0", f) }
	}
	if got := v1.Own("eth0", lab.IPv4); !netip.MustParsePrefix("10.77.0.0/24").Contains(got) {
		t.Errorf("the pod by VNI has %s", got)
	}
	for _, p := range []path{
		{"host-local, to another node", h1.Host, h2.Host, h2.Address, h1.Address},
		{"host-local, to a pod of the agent", h1.Host, w.a.Host, w.a.Address, h1.Address},
		{"host-local, from another node", w.c.Host, h1.Host, h1.Address, w.c.Address},
		{"host-local, from the node", w.n1.Host, h1.Host, h1.Address, w.n1.Gateway},
		{"host-local, to the internet", h1.Host, w.Outside, lab.Internet, w.n1.Address},
		{"by VNI, to another node", v1.Host, v2.Host, own(v2), own(v1)},
	} {
		if err := probePath(ctx, p, lab.IPv4); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	// What is restarted in the middle of it all finds everything as it was.
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*lab.Pod{h1, h2} {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
	}
	checkAll(ctx, t, w)
	if err := h1.Delete(ctx); err != nil {
		t.Error(err)
	}
	again := addPodAs(t, w.n1, lab.PodSpec{Name: "h1", Config: hostLocal(t, w.n1, dir+"/n1")})
	if err := probePath(ctx, path{"after a pod that is gone", again.Host, h2.Host, h2.Address, again.Address}, lab.IPv4); err != nil {
		t.Error(err)
	}
}

// onBridge is a configuration of odlovs-cni that names a bridge, and no controller for it.
func onBridge(bridge, more string) string {
	return fmt.Sprintf(`{"cniVersion":"0.4.0","name":"odl-cni","type":"odlovs-cni","ovsBridge":%q%s}`, bridge, more)
}

// TestBridgeOfAConfiguration has pods on a bridge that their configuration names. It is a bridge of
// wires: pods reach what others reach, and one pod another only as the agent's bridge has it.
func TestBridgeOfAConfiguration(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	w.API.AddNetwork("shut", v1alpha1.NetworkSpec{Subnets: subnets("10.77.0.0/24")})
	awaitNetwork(t, w, "shut")
	const bridge = "brk8s"
	x := addPodAs(t, w.n1, lab.PodSpec{Name: "x", Config: onBridge(bridge, "")})
	y := addPodAs(t, w.n1, lab.PodSpec{Name: "y", Config: onBridge(bridge, "")})
	z := addPodAs(t, w.n1, lab.PodSpec{Name: "z", Config: onBridge(bridge, `,"network":"shut"`)})
	reach := func(when string) {
		t.Helper()
		for _, f := range []lab.Family{lab.IPv4, lab.IPv6} {
			for _, p := range []path{
				{"to the other pod on the bridge", x.Host, y.Host, y.Address, x.Address},
				{"to a pod of the agent", x.Host, w.a.Host, w.a.Address, x.Address},
				{"to another node", x.Host, w.c.Host, w.c.Address, x.Address},
				{"from another node", w.c.Host, y.Host, y.Address, w.c.Address},
				{"from the node", w.n1.Host, x.Host, x.Address, w.n1.Gateway},
				{"to the internet", x.Host, w.Outside, lab.Internet, w.n1.Address},
			} {
				if err := probePath(ctx, p, f); err != nil {
					t.Errorf("%s: %s: %v", when, p.name, err)
				}
			}
		}
	}
	reach("at first")
	for _, p := range []*lab.Pod{x, y, z} {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
	}

	// A frame for the MAC of a pod of another Network does not arrive, though it is on the same
	// bridge. Frames for a pod of the same Network, sent in the same way, do.
	stranger := netip.MustParseAddr("10.244.250.250") // of no pod
	run(t, x.Host, "ip", "route", "add", stranger.String(), "dev", "eth0")
	for _, to := range []struct {
		pod     *lab.Pod
		arrives bool
	}{{y, true}, {z, false}} {
		run(t, x.Host, "ip", "neigh", "replace", stranger.String(), "lladdr", to.pod.MAC.String(), "dev", "eth0",
			"nud", "permanent")
		before := received(t, to.pod)
		ping(t, x.Host, probe.Ping{Dst: stranger, Count: 5, Wait: 100 * time.Millisecond})
		if got := received(t, to.pod)-before >= 5; got != to.arrives {
			t.Errorf("frames for %s arrive there: %v, want %v", to.pod.Name, got, to.arrives)
		}
	}

	// What is restarted or deleted comes back as it was.
	w.n1.KillAgent()
	reach("while the agent is away")
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	reach("after the agent was killed")
	if err := w.n1.OVS.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool { return w.n1.Check(ctx) == nil }, func() { t.Error("the node does not recover") })
	reach("after Open vSwitch was restarted")
	ports := strings.Fields(vsctl(ctx, t, w.n1, "list-ports", bridge))
	if len(ports) != 6 {
		t.Errorf("bridge %s has the ports %v, want an interface and a wire for each pod", bridge, ports)
	}
	for _, port := range ports {
		if strings.HasPrefix(port, "cw") {
			vsctl(ctx, t, w.n1, "del-port", bridge, port)
		}
	}
	poll(ctx, t, func() bool { return x.Check(ctx) == nil && y.Check(ctx) == nil }, func() { t.Error("wires do not come back") })
	reach("after all wires were deleted")
	checkAll(ctx, t, w)
	for _, p := range []*lab.Pod{x, y, z} {
		if err := p.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
	if ports := vsctl(ctx, t, w.n1, "list-ports", bridge); ports != "" {
		t.Errorf("ports of pods that are gone: %s", ports)
	}
	checkAll(ctx, t, w)
}

func vsctl(ctx context.Context, t *testing.T, n *lab.Node, args ...string) string {
	t.Helper()
	out, err := n.OVS.Vsctl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// received is how many frames a pod has got.
func received(t *testing.T, p *lab.Pod) uint64 {
	t.Helper()
	var links []struct {
		Stats struct {
			RX struct{ Packets uint64 }
		} `json:"stats64"`
	}
	out := run(t, p.Host, "ip", "-j", "-s", "link", "show", "dev", "eth0")
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%s: %v", out, err)
	}
	return links[0].Stats.RX.Packets
}
