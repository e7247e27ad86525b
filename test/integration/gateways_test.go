// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// exit is a Router's gateway on one node: an address of each family of the external Network.
type exit struct {
	outer
	router string
}

// exits are the gateways of this test. The Router default has none on n2.
type exits struct {
	red, blue, red2, blue2 exit // of private Routers with the same subnet, on n1 and on n2
	plain                  exit // of the Router default, on n1
	shop                   exit // of a shared Router, on n2
	lan                    exit // of the private Router of the virtual machine, on n1
	moved                  exit // that of red on n1 later
}

func (w *external) exits() exits {
	of := func(router string, number int, n *lab.Node) exit {
		return exit{outer{router + " on " + n.Name, number, n}, router}
	}
	return exits{
		red: of("red", 151, w.n1), blue: of("blue", 152, w.n1), red2: of("red", 153, w.n2), blue2: of("blue", 154, w.n2),
		plain: of("default", 155, w.n1), shop: of("shop", 156, w.n2), lan: of("lan", 157, w.n1),
		moved: of("red", 160, w.n1),
	}
}

// all are those at first.
func (e exits) all() []exit { return []exit{e.red, e.blue, e.red2, e.blue2, e.plain, e.shop, e.lan} }

func (e exits) outers() []outer {
	var list []outer
	for _, x := range e.all() {
		list = append(list, x.outer)
	}
	return list
}

// inside is a pod, or a virtual machine, that leaves by an exit.
type inside struct {
	name string
	host *lab.Host
	by   exit
}

// insiders are of all kinds.
func (w *external) insiders(e exits) []inside {
	return []inside{
		{"tenant", w.red[0].Host, e.red},
		{"tenant with the same address", w.blue[0].Host, e.blue},
		{"tenant on the other node", w.red[2].Host, e.red2},
		{"tenant with the same address on the other node", w.blue[2].Host, e.blue2},
		{"default", w.a.Host, e.plain},
		{"shared Router", w.shared.Host, e.shop},
		{"second interface", w.several.Host, e.lan},
		{"virtual machine", w.vm.Host, e.lan},
	}
}

// openExits publishes gateways of Routers, and waits until they are in use.
func (w *external) openExits(t *testing.T, all ...exit) {
	t.Helper()
	heard := wire(t, w.near)
	var outers []outer
	for _, x := range all {
		if err := w.API.AddRouterGateway(x.router, "office"); err != nil {
			t.Fatal(err)
		}
		for f := range lab.Dual.Each {
			w.API.AddGatewayAddress(x.router, x.node.Name, "office", x.address(f).String())
		}
		outers = append(outers, x.outer)
	}
	announced(t, heard, outers...)
}

// leaves waits until pods are seen as an exit, or as whatever else, by the host beyond the gateway.
func (w *external) leaves(t *testing.T, from *lab.Host, seen func(lab.Family) netip.Addr) {
	t.Helper()
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.far.Address(f), 8084)
		server, err := probe.Serve(w.far, at, probe.WhoAmI)
		if err != nil {
			t.Fatal(err)
		}
		becomes(t, fmt.Sprintf("%s is seen as %s", from.Name, seen(f)), func(ctx context.Context) error {
			got, err := probe.Seen(ctx, from, at)
			if err == nil && got.Addr() != seen(f) {
				err = fmt.Errorf("as %s", got.Addr())
			}
			return err
		})
		server.Close()
	}
}

// TestGateways takes Ports of all kinds out of the cluster by their Routers' gateways.
func TestGateways(t *testing.T) {
	t.Parallel()
	w := startExternal(t)
	e := w.exits()
	t.Run("before", func(t *testing.T) { floatingBefore(t, w, w.floatingIPs()) })
	w.openExits(t, e.all()...)
	for _, in := range w.insiders(e) {
		w.leaves(t, in.host, in.by.address)
	}
	t.Run("out", func(t *testing.T) { gatewayWays(t, w, e) })
	t.Run("one node answers", func(t *testing.T) { outerNeighbours(t, w, e.outers()) })
	t.Run("the same port", func(t *testing.T) { gatewayPorts(t, w, e) })
	t.Run("in", func(t *testing.T) { gatewayInbound(t, w, e) })
	t.Run("in the cluster", func(t *testing.T) { floatingInCluster(t, w) })
	t.Run("Services", func(t *testing.T) { floatingServices(t, w, w.floatingIPs()) })
	s := w.someFloatingIPs()
	for _, x := range s.all() {
		w.bind(x)
	}
	w.awaitAnswers(t, s.all()...)
	t.Run("floating IPs", func(t *testing.T) { gatewayHairpins(t, w, e, s) })
	t.Run("errors", func(t *testing.T) { gatewayErrors(t, w, e, s) })
	t.Run("sizes", func(t *testing.T) { gatewaySizes(t, w, e, s) })
	t.Run("spoofed", func(t *testing.T) { gatewaySpoofed(t, w, e) })
	t.Run("policies", func(t *testing.T) { gatewayPolicies(t, w, e, s) })
	t.Run("restarts", func(t *testing.T) { gatewayRestarts(t, w, e, s) })
	t.Run("changes", func(t *testing.T) { gatewayChanges(t, w, e, s) })
	t.Run("removed", func(t *testing.T) { gatewayRemoved(t, w, e) })
	awaitCheck(within(t, time.Minute), t, w.world)
}

// gatewayWays takes all ways out. Hosts of the VLAN see nothing of a cluster's own addresses.
func gatewayWays(t *testing.T, w *external, e exits) {
	heard := wire(t, w.near)
	for _, in := range w.insiders(e) {
		ways := []way{
			{path: path{in.name + " to the VLAN", in.host, w.near, w.near.Address, in.by.address}},
			{path: path{in.name + " beyond the gateway", in.host, w.far, w.far.Address, in.by.address}},
		}
		if in.host != w.several.Host { // its way there is that of eth0
			ways = append(ways, way{path: path{in.name + " to the internet", in.host, w.Outside, lab.Internet, in.by.address}},
				way{path: path{in.name + " to the nodes' segment", in.host, w.Outside, w.Outside.Address, in.by.address}})
		}
		takeWays(t, ways...)
	}
	for _, x := range e.all() {
		for f := range lab.Dual.Each {
			for name, protocol := range map[string]byte{"echo requests": icmpOf[f], "UDP": 17, "TCP": 6} {
				sent := func(frame probe.Frame) bool {
					src, dst := frame.IPs()
					return src == x.address(f) && dst == w.near.Address(f) && protocolOf(frame) == protocol && ttl(frame) == 63
				}
				if len(heard.Frames(sent)) == 0 {
					t.Errorf("%s: %s with the source %s and the TTL 63 have not arrived", x.name, name, x.address(f))
				}
			}
		}
	}
	onlyOuters(t, w, heard, e.outers()...)
	for f := range lab.Dual.Each {
		r, err := (probe.Ping{Dst: w.near.Address(f)}).Run(t.Context(), w.red[0].Host)
		if err != nil || len(r.Replies) != 1 || r.Replies[0].TTL != 63 {
			t.Errorf("%s: replies %v, %v; want one with TTL 63", f, r.Replies, err)
		}
	}
	takeWays(t, way{path: path{"a node without a gateway", w.c.Host, w.Outside, lab.Internet, w.n2.Address}})
}

// icmpOf is the protocol number of ICMP.
var icmpOf = map[lab.Family]byte{lab.IPv4: 1, lab.IPv6: 58}

// protocolOf is that of an IP packet; 0 of other frames.
func protocolOf(f probe.Frame) byte {
	switch f.Type() {
	case probe.EtherIPv4:
		return f.Payload()[9]
	case probe.EtherIPv6:
		return f.Payload()[6]
	}
	return 0
}

// onlyOuters looks at the sources of all IP packets on the VLAN: addresses that nodes answer for,
// and those of the hosts outside.
func onlyOuters(t *testing.T, w *external, heard *probe.Wire, outers ...outer) {
	t.Helper()
	known := map[netip.Addr]bool{}
	for f := range lab.Dual.Each {
		known[w.far.Address(f)], known[office(f, officeGateway)] = true, true
		for _, x := range outers {
			known[x.address(f)] = true
		}
	}
	strange := map[netip.Addr]int{}
	heard.Frames(func(frame probe.Frame) bool {
		if src, _ := frame.IPs(); protocolOf(frame) != 0 && !src.IsLinkLocalUnicast() && !src.IsUnspecified() && !known[src] {
			strange[src]++
		}
		return false
	})
	if len(strange) > 0 {
		t.Errorf("packets on the VLAN with other sources: %v", strange)
	}
}
