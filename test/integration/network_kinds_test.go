// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestSharedNetwork has a network with addresses of its own that all of the cluster knows.
func TestSharedNetwork(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	w.API.AddNamespace("shop", map[string]string{"tenant": "shop"})
	w.API.AddRouter("shop", lab.Shared())
	spec := primary("shop", "10.60.0.0/16", "fd00:60::/64")
	spec.Router = "shop"
	w.API.AddNetwork("shop", spec)
	awaitNetwork(t, w, "shop")
	s0, s1, s2 := addPod(t, w.n1, "shop", "s0"), addPod(t, w.n1, "shop", "s1"), addPod(t, w.n2, "shop", "s2")
	eachFamily(t, func(t *testing.T, f lab.Family) {
		if s0.Address(f) != s0.Own("eth0", f) {
			t.Errorf("the runtime knows the pod by %s, its interface has %s", s0.Address(f), s0.Own("eth0", f))
		}
		for _, p := range []path{
			{"within, on one node", s0.Host, s1.Host, s1.Address, s0.Address},
			{"within, to another node", s0.Host, s2.Host, s2.Address, s0.Address},
			{"to default", s0.Host, w.b.Host, w.b.Address, s0.Address},
			{"to default on another node", s0.Host, w.c.Host, w.c.Address, s0.Address},
			{"from default", w.a.Host, s0.Host, s0.Address, w.a.Address},
			{"from default on another node", w.c.Host, s0.Host, s0.Address, w.c.Address},
			{"from the node", w.n1.Host, s0.Host, s0.Address, w.n1.Gateway},
			{"from another node", w.n2.Host, s0.Host, s0.Address, w.n2.Gateway},
			{"to the node", s0.Host, w.n1.Host, w.n1.Address, s0.Address},
			{"to the internet", s0.Host, w.Outside, lab.Internet, w.n1.Address},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	})
	checkAll(ctx, t, w)
}

// addNamespaceNetworks publishes what the controller makes for a namespace with pods on all nodes.
func addNamespaceNetworks(w *world, namespace string, router v1alpha1.RouterSpec) {
	w.API.AddNamespace(namespace, nil)
	w.API.AddRouter(names.NamespaceRouter(namespace), router)
	for _, n := range w.Nodes {
		w.API.AddNetwork(names.NamespaceNetwork(namespace, n.Name), v1alpha1.NetworkSpec{
			Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR, Node: n.Name, Router: names.NamespaceRouter(namespace),
		})
	}
}

// TestNamespaceMapping has a network for each namespace and node, all of which reach each other,
// but for those of an isolated namespace.
func TestNamespaceMapping(t *testing.T) {
	w := &world{Lab: lab.New(t, lab.Options{Configure: func(c *config.Config) { c.Mapping = config.MapNamespace }})}
	w.n1, w.n2 = w.Nodes[0], w.Nodes[1]
	ctx := within(t, 5*time.Minute)
	addNamespaceNetworks(w, "shop", lab.Shared())
	addNamespaceNetworks(w, "bank", lab.Shared())
	addNamespaceNetworks(w, "vault", v1alpha1.RouterSpec{})
	s0, s2 := addPod(t, w.n1, "shop", "s0"), addPod(t, w.n2, "shop", "s2")
	b0, b2 := addPod(t, w.n1, "bank", "b0"), addPod(t, w.n2, "bank", "b2")
	v0, v1, v2 := addPod(t, w.n1, "vault", "v0"), addPod(t, w.n1, "vault", "v1"), addPod(t, w.n2, "vault", "v2")
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, p := range []path{
			{"within a namespace to another node", s0.Host, s2.Host, s2.Address, s0.Address},
			{"between namespaces on a node", s0.Host, b0.Host, b0.Address, s0.Address},
			{"between namespaces and nodes", s0.Host, b2.Host, b2.Address, s0.Address},
			{"node to pod", w.n1.Host, s0.Host, s0.Address, w.n1.Gateway},
			{"pod to the internet", s0.Host, w.Outside, lab.Internet, w.n1.Address},
			{"within the isolated one on a node", v0.Host, v1.Host, v1.Address, v0.Address},
			{"within the isolated one to another node", v0.Host, v2.Host, v2.Address, v0.Address},
			{"node to isolated pod", w.n1.Host, v0.Host, v0.Address, w.n1.Gateway},
			{"isolated pod to its node", v0.Host, w.n1.Host, w.n1.Address, v0.Address},
			{"isolated pod to the internet", v0.Host, w.Outside, lab.Internet, w.n1.Address},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		unreachable(t, []attempt{
			{"to isolated on the node", s0.Host, v0.Address(f)}, {"to isolated on another node", s0.Host, v2.Address(f)},
			{"from isolated on the node", v0.Host, s0.Address(f)}, {"from isolated to another node", v0.Host, b2.Address(f)},
		}...)
	})
	checkAll(ctx, t, w)
}

// TestGuest binds a Port to an interface that another program has put on the bridge.
func TestGuest(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 4*time.Minute)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{Subnets: subnets("10.70.0.0/24", "fd00:70::/64")})
	w.API.AddDefinition("lab", "lan", "lan")
	onLAN := map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}
	p1 := addPodAs(t, w.n1, lab.PodSpec{Name: "p1", Annotations: onLAN})
	p2 := addPodAs(t, w.n2, lab.PodSpec{Name: "p2", Annotations: onLAN})
	mac := intent.MAC{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	addresses := []netip.Prefix{netip.MustParsePrefix("10.70.0.200/24"), netip.MustParsePrefix("fd00:70::200/64")}
	w.API.AddPort("lab", "vm", "lan", mac.String(), "10.70.0.200", "fd00:70::200")
	g, err := w.n1.AddGuest(ctx, "vm", "lab/vm", mac.HardwareAddr(), addresses)
	if err != nil {
		t.Fatal(err)
	}
	bound := awaitPort(ctx, t, w, "lab/vm", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	if bound.Status.Node != "n1" || bound.Status.BoundTime == nil {
		t.Errorf("status of the bound Port: %+v", bound.Status)
	}
	reachGuest := func(when string) {
		t.Helper()
		for f := range lab.Dual.Each {
			for _, p := range []*lab.Pod{p1, p2} {
				lan := func(f lab.Family) netip.Addr { return p.Own("lan0", f) }
				for _, way := range []path{
					{"pod to guest", p.Host, g.Host, g.Address, lan}, {"guest to pod", g.Host, p.Host, lan, g.Address},
				} {
					if err := probePath(ctx, way, f); err != nil {
						t.Errorf("%s: %s %s, pod %s: %v", when, f, way.name, p.Name, err)
					}
				}
			}
		}
	}
	reachGuest("bound")
	w.n1.KillAgent()
	w.n2.KillAgent()
	for _, n := range w.Nodes {
		if err := n.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
	}
	reachGuest("after the agents")
	if err := w.n1.OVS.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.n1.WaitAgent(ctx); err != nil {
		t.Fatal(err)
	}
	reachGuest("after Open vSwitch")
	checkAll(ctx, t, w)

	// A second interface elsewhere changes nothing, and receives.
	other, err := w.n2.AddGuest(ctx, "twin", "lab/vm", mac.HardwareAddr(), addresses)
	if err != nil {
		t.Fatal(err)
	}
	awaitEvent(ctx, t, w, v1alpha1.ReasonBoundElsewhere, "it is bound on node n1")
	reachGuest("with a twin")
	if err := g.Unplug(ctx); err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w, "lab/vm", func(p *v1alpha1.Port) bool { return p.Status.Node == "n2" && p.Status.Phase == v1alpha1.PortBound })
	g = other
	// The other node receives it a moment later.
	poll(ctx, t, func() bool {
		return ping(t, p1, probe.Ping{Dst: g.Address(lab.IPv4)}).Lost() == 0
	}, func() { t.Error("the guest cannot be reached on its new node") })
	reachGuest("moved")
	w.API.RemovePort("lab", "vm")
	awaitCheck(ctx, t, w)
	unreachable(t, attempt{"a guest whose Port is deleted", p1.Host, g.Address(lab.IPv4)})
	if out, err := w.n2.OVS.Vsctl(ctx, "get", "interface", g.Port, "name"); err != nil {
		t.Errorf("the guest's interface has gone with its Port: %s, %v", out, err)
	}
}

// awaitPort waits until a Port is as it should be.
func awaitPort(ctx context.Context, t *testing.T, w *world, key string, ok func(*v1alpha1.Port) bool) *v1alpha1.Port {
	t.Helper()
	var last *v1alpha1.Port
	poll(ctx, t, func() bool {
		for _, p := range w.API.Ports() {
			if p.Namespace+"/"+p.Name == key {
				last = p
			}
		}
		return last != nil && ok(last)
	}, func() { t.Errorf("Port %s: %+v", key, last) })
	return last
}

// awaitEvent waits for an Event.
func awaitEvent(ctx context.Context, t *testing.T, w *world, reason, text string) {
	t.Helper()
	poll(ctx, t, func() bool { return hasEvent(w, reason, text) }, func() {
		for _, e := range w.API.Events() {
			t.Logf("%s %s/%s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
		}
		t.Errorf("no Event %s: %s", reason, text)
	})
}

// awaitCheck waits until nothing is too much or missing on any node.
func awaitCheck(ctx context.Context, t *testing.T, w *world) {
	t.Helper()
	var err error
	poll(ctx, t, func() bool {
		for _, n := range w.Nodes {
			if err = n.Check(ctx); err != nil {
				return false
			}
		}
		return true
	}, func() { t.Error(err) })
}

// TestVLANNetwork joins pods of two nodes and a host of the physical network in one VLAN.
func TestVLANNetwork(t *testing.T) {
	w := &world{Lab: lab.New(t, lab.Options{Configure: func(c *config.Config) {
		c.BridgeMappings = map[string]string{"dc": "br-ext"}
	}})}
	w.n1, w.n2 = w.Nodes[0], w.Nodes[1]
	ctx := within(t, 3*time.Minute)
	vlan := int32(42)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", Subnets: subnets("192.168.42.0/24", "fd00:42::/64"),
	})
	w.API.AddDefinition("lab", "lan", "lan")
	spec := lab.PodSpec{Name: "v1", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}}
	if p, err := w.n1.AddPodAs(ctx, spec); err == nil {
		t.Errorf("pod %s is on a physical network that its node is not connected to", p.Name)
	}
	awaitEvent(ctx, t, w, "", "bridge br-ext does not exist")
	awaitConnected(ctx, t, w, w.n1, "")
	for _, n := range w.Nodes {
		if err := n.AddPhysicalBridge(ctx, "br-ext"); err != nil {
			t.Fatal(err)
		}
	}
	awaitCheck(ctx, t, w)
	awaitConnected(ctx, t, w, w.n1, "dc")
	awaitConnected(ctx, t, w, w.n2, "dc")
	router, err := w.n2.AddVLANHost(ctx, "br-ext", "router", 42, netip.MustParsePrefix("192.168.42.254/24"), netip.MustParsePrefix("fd00:42::fe/64"))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := w.n2.AddVLANHost(ctx, "br-ext", "stranger", 43, netip.MustParsePrefix("192.168.42.253/24"))
	if err != nil {
		t.Fatal(err)
	}
	spec.Name = "v2"
	v1 := addPodAs(t, w.n1, spec)
	spec.Name = "v3"
	v2 := addPodAs(t, w.n2, spec)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		lan1 := func(f lab.Family) netip.Addr { return v1.Own("lan0", f) }
		lan2 := func(f lab.Family) netip.Addr { return v2.Own("lan0", f) }
		for _, p := range []path{
			{"pod to pod", v1.Host, v2.Host, lan2, lan1}, {"pod to a host", v1.Host, router, router.Address, lan1},
			{"host to pod", router, v2.Host, lan2, router.Address},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	})
	unreachable(t, attempt{"another VLAN", v1.Host, stranger.Address(lab.IPv4)})
	awaitCheck(ctx, t, w)
	if _, err := w.n1.OVS.Vsctl(ctx, "del-br", "br-ext"); err != nil {
		t.Fatal(err)
	}
	awaitConnected(ctx, t, w, w.n1, "")
}

// awaitConnected waits until a node's object has these physical networks.
func awaitConnected(ctx context.Context, t *testing.T, w *world, n *lab.Node, want string) {
	t.Helper()
	var got string
	var said bool
	poll(ctx, t, func() bool {
		got, said = w.API.PhysicalNetworks(n.Name)
		return said && got == want
	}, func() { t.Errorf("node %s is connected to %q (said: %t), want %q", n.Name, got, said, want) })
}

// TestUplinks gives a network card of each node to a physical network. The addresses that the cards
// have work on, also when Open vSwitch or the agent starts again.
func TestUplinks(t *testing.T) {
	w := &world{Lab: lab.New(t, lab.Options{Configure: func(c *config.Config) {
		c.Uplinks = map[string]config.Uplink{"dc": {Interface: "ext0"}}
	}})}
	w.n1, w.n2 = w.Nodes[0], w.Nodes[1]
	ctx := within(t, 3*time.Minute)
	vlan := int32(42)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", Subnets: subnets("192.168.42.0/24", "fd00:42::/64"),
	})
	w.API.AddDefinition("lab", "lan", "lan")
	awaitEvent(ctx, t, w, "PhysicalNetworkNotConnected", "interface ext0 does not exist on this node")
	address := func(node int) func(lab.Family) netip.Addr {
		return func(f lab.Family) netip.Addr {
			return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "192.168.80.%d", lab.IPv6: "fd00:80::%d"}[f], node))
		}
	}
	for i, n := range w.Nodes {
		// It has its addresses when it gets its name: the agent may move them at once.
		if err := n.AddCard("new0"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Run(ctx, "ip", "link", "set", "new0", "down"); err != nil {
			t.Fatal(err)
		}
		for f, bits := range map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64} {
			at := netip.PrefixFrom(address(i+1)(f), bits).String()
			if _, err := n.Run(ctx, "ip", "addr", "add", at, "dev", "new0", "nodad"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.Run(ctx, "ip", "link", "set", "new0", "name", "ext0", "up"); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range w.Nodes {
		poll(ctx, t, func() bool {
			ports, err := n.OVS.Vsctl(ctx, "list-ports", "br-dc")
			return err == nil && strings.Contains(ports, "ext0")
		}, func() { t.Errorf("node %s: there is no bridge br-dc with ext0", n.Name) })
	}
	awaitCheck(ctx, t, w)
	router, err := w.n2.AddVLANHost(ctx, "br-dc", "router", 42, netip.MustParsePrefix("192.168.42.254/24"), netip.MustParsePrefix("fd00:42::fe/64"))
	if err != nil {
		t.Fatal(err)
	}
	v1 := addPodAs(t, w.n1, lab.PodSpec{Name: "v1", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}})
	v2 := addPodAs(t, w.n2, lab.PodSpec{Name: "v2", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}})
	on := func(p *lab.Pod) func(lab.Family) netip.Addr {
		return func(f lab.Family) netip.Addr { return p.Own("lan0", f) }
	}
	works := func(t *testing.T, f lab.Family) {
		for i, n := range w.Nodes {
			poll(ctx, t, func() bool {
				shown, err := n.Run(ctx, "ip", "addr", "show", "dev", "br-dc")
				return err == nil && strings.Contains(shown, address(i+1)(f).String()+"/")
			}, func() { t.Errorf("node %s: the address of the card is not on its bridge", n.Name) })
		}
		for _, p := range []path{
			{"node to node by the cards' addresses", w.n1.Host, w.n2.Host, address(2), address(1)},
			{"pod to pod", v1.Host, v2.Host, on(v2), on(v1)},
			{"pod to a host", v1.Host, router, router.Address, on(v1)},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
	eachFamily(t, works)
	if err := w.n1.OVS.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	w.n2.KillAgent()
	if err := w.n2.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	awaitCheck(ctx, t, w)
	eachFamily(t, works)
	// The card goes, and another one of its name comes; then again, while the agent is away.
	replace := func() {
		if _, err := w.n2.Run(ctx, "ip", "link", "del", "ext0"); err != nil {
			t.Fatal(err)
		}
		if err := w.n2.AddCard("ext0"); err != nil {
			t.Fatal(err)
		}
	}
	isRead := func(t *testing.T, f lab.Family) {
		poll(ctx, t, func() bool {
			return probePath(ctx, path{"pod to pod", v1.Host, v2.Host, on(v2), on(v1)}, f) == nil
		}, func() { t.Error("the card that came back is not read from") })
	}
	replace()
	eachFamily(t, isRead)
	awaitCheck(ctx, t, w)
	w.n2.KillAgent()
	replace()
	if err := w.n2.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	eachFamily(t, isRead)
	awaitCheck(ctx, t, w)
}
