// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// central is a cluster of which n1 and n2 may be active for external addresses, and n3, which is
// not connected to the VLAN, has the hosts of the VLAN behind a bridge of another name.
type central struct {
	*tenants
	n3             *lab.Node
	far3, default3 *lab.Pod // of red, and of the Router default, on n3
	near           *lab.Host
	red, def       outer
}

func startCentral(t *testing.T) *central {
	t.Helper()
	w := &central{tenants: startTenantsWith(t, lab.Options{Policies: true, Configure: func(c *config.Config) {
		nativeServices(c)
		c.BridgeMappings = map[string]string{"dc": "br-ext"}
	}})}
	ctx := within(t, 2*time.Minute)
	var err error
	if w.n3, err = w.Lab.AddNode(ctx); err != nil {
		t.Fatal(err)
	}
	for n, bridge := range map[*lab.Node]string{w.n1: "br-ext", w.n2: "br-ext", w.n3: "br-lan"} {
		if err := n.AddPhysicalBridge(ctx, bridge); err != nil {
			t.Fatal(err)
		}
	}
	vlan := int32(officeVLAN)
	w.API.AddNetwork("office", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", External: true,
		Subnets: []v1alpha1.Subnet{
			{CIDR: officeSubnet[lab.IPv4].String(), Gateway: office(lab.IPv4, officeGateway).String()},
			{CIDR: officeSubnet[lab.IPv6].String(), Gateway: office(lab.IPv6, officeGateway).String()},
		},
	})
	awaitNetwork(t, w.world, "office")
	w.far3, w.default3 = addPod(t, w.n3, "red", "r3"), addPod(t, w.n3, "lab", "d3")
	allow(t, w.tenants, w.far3, w.default3)
	if err := w.n3.AddGateway(ctx, "br-lan", officeVLAN, officePrefixes(officeGateway)...); err != nil {
		t.Fatal(err)
	}
	if w.near, err = w.n3.AddVLANHost(ctx, "br-lan", "near", officeVLAN, officePrefixes(20)...); err != nil {
		t.Fatal(err)
	}
	w.red, w.def = outer{"red", 171, nil}, outer{"default", 172, nil}
	for router, x := range map[string]outer{"red": w.red, "default": w.def} {
		err := w.API.SetRouterGateway(router, v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT},
			x.address(lab.IPv4).String(), x.address(lab.IPv6).String())
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// users are Ports on the active node, on the other candidate, and on a node that is not connected.
func (w *central) users() map[*lab.Host]outer {
	return map[*lab.Host]outer{
		w.tenants.red[0].Host: w.red, w.tenants.red[2].Host: w.red, w.far3.Host: w.red,
		w.a.Host: w.def, w.c.Host: w.def, w.default3.Host: w.def,
	}
}

// seenAs waits until all users are seen as their Routers' addresses.
func (w *central) seenAs(t *testing.T) {
	t.Helper()
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.near.Address(f), 8084)
		server, err := probe.Serve(w.near, at, probe.WhoAmI)
		if err != nil {
			t.Fatal(err)
		}
		for from, x := range w.users() {
			becomes(t, fmt.Sprintf("%s is seen as %s", from.Name, x.address(f)), func(ctx context.Context) error {
				got, err := probe.Seen(ctx, from, at)
				if err == nil && got.Addr() != x.address(f) {
					err = fmt.Errorf("as %s", got.Addr())
				}
				return err
			})
		}
		server.Close()
	}
}

// active is the node that is active for an address, as the API shows.
func (w *central) active(t *testing.T, a netip.Addr) *lab.Node {
	t.Helper()
	for _, b := range w.API.Blocks() {
		if b.Spec.CIDR != netip.PrefixFrom(a, a.BitLen()).String() {
			continue
		}
		for _, n := range w.Nodes {
			if n.Name == b.Status.ActiveNode {
				return n
			}
		}
	}
	return nil
}

// awaitActive waits until another node than one is active for an address.
func (w *central) awaitActive(t *testing.T, a netip.Addr, other *lab.Node) *lab.Node {
	t.Helper()
	var n *lab.Node
	becomes(t, fmt.Sprintf("a node is active for %s", a), func(context.Context) error {
		if n = w.active(t, a); n == nil || n == other {
			return fmt.Errorf("active: %v", n)
		}
		return nil
	})
	return n
}

// TestCentralized has all Ports of a Router leave by one address, of which one node is active at a
// time.
func TestCentralized(t *testing.T) {
	w := startCentral(t)
	w.seenAs(t)
	t.Run("ways", func(t *testing.T) { centralWays(t, w) })
	t.Run("agent", func(t *testing.T) { centralAgent(t, w) })
	t.Run("power cut", func(t *testing.T) { centralPowerCut(t, w) })
	t.Run("partition", func(t *testing.T) { centralPartition(t, w) })
}

// centralWays takes all protocols out, and nothing but replies in.
func centralWays(t *testing.T, w *central) {
	var ways []way
	for from, x := range w.users() {
		ways = append(ways, way{path: path{from.Name + " to the VLAN", from, w.near, w.near.Address, x.address}})
	}
	takeWays(t, ways...)
	for f := range lab.Dual.Each {
		unreachable(t, attempt{"unasked", w.near, w.red.address(f)}, attempt{"unasked", w.near, w.def.address(f)})
	}
}

// centralAgent ends the agents of the nodes one after the other: no packet is lost, and the address
// stays.
func centralAgent(t *testing.T, w *central) {
	before := w.awaitActive(t, w.red.address(lab.IPv4), nil)
	for _, n := range w.Nodes {
		t.Run(n.Name, func(t *testing.T) {
			ctx := within(t, 2*time.Minute)
			tr := streams(ctx, t,
				way{path: path{"from " + w.far3.Name, w.far3.Host, w.near, w.near.Address, nil}},
				way{path: path{"from " + w.a.Name, w.a.Host, w.near, w.near.Address, nil}})
			n.KillAgent()
			settle(ctx, t, tr, 300)
			if err := n.StartAgent(ctx); err != nil {
				t.Fatal(err)
			}
			settle(ctx, t, tr, 500)
			for name, o := range tr.stop(t) {
				if len(o.Lost) > 0 {
					t.Errorf("%s: lost %d packets, want none", name, len(o.Lost))
				}
			}
			if now := w.active(t, w.red.address(lab.IPv4)); now != before {
				t.Errorf("the address moved from %s to %v", before.Name, now)
			}
		})
	}
}

// centralPowerCut takes the active node away, and gives it back: the address moves once.
func centralPowerCut(t *testing.T, w *central) {
	a := w.red.address(lab.IPv4)
	first := w.awaitActive(t, a, nil)
	from := w.far3
	if err := first.Unplug(); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	becomes(t, "the other node answers", func(ctx context.Context) error {
		r, err := (probe.Ping{Dst: w.near.Address(lab.IPv4), Wait: 100 * time.Millisecond}).Run(ctx, from)
		if err == nil && r.Lost() > 0 {
			err = errLost
		}
		return err
	})
	t.Logf("after a power cut of the active node, answers came again after %v", time.Since(cut))
	second := w.awaitActive(t, a, first)
	if err := first.Plug(); err != nil {
		t.Fatal(err)
	}
	w.agree(t, second)
	w.seenAs(t)
	if now := w.active(t, a); now != second {
		t.Errorf("the address went back from %s to %s by itself", second.Name, now.Name)
	}
}

// agree waits until all nodes see a node active for the addresses of red.
func (w *central) agree(t *testing.T, active *lab.Node) {
	t.Helper()
	for _, n := range w.Nodes {
		becomes(t, n.Name+" sees "+active.Name+" active", func(ctx context.Context) error {
			var list []agentapi.EgressInfo
			if err := n.Query(ctx, "/v1/egress", &list); err != nil {
				return err
			}
			for _, e := range list {
				if e.Router == "red" && e.Active != active.Name {
					return fmt.Errorf("%s: active is %q", e.Address, e.Active)
				}
			}
			return nil
		})
	}
}

// centralPartition cuts the way between the nodes that may be active. Both reach the VLAN: the one
// that is active stays so.
func centralPartition(t *testing.T, w *central) {
	before := w.awaitActive(t, w.red.address(lab.IPv4), nil)
	ctx := within(t, time.Minute)
	if err := w.Lab.Separate(ctx, w.n1, w.n2); err != nil {
		t.Fatal(err)
	}
	tr := datagrams(ctx, t, way{path: path{"from " + w.far3.Name, w.far3.Host, w.near, w.near.Address, nil}})
	settle(ctx, t, tr, 500)
	for name, o := range tr.stop(t) {
		if len(o.Lost) > 0 {
			t.Errorf("%s: lost %d packets, want none", name, len(o.Lost))
		}
	}
	w.agree(t, before)
	if now := w.active(t, w.red.address(lab.IPv4)); now != before {
		t.Errorf("the address moved from %s to %v", before.Name, now)
	}
}
