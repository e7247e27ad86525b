// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// gatewayPolicies has policies judge what leaves by gateways: as the Port wrote it, and with the
// Port as its source.
func gatewayPolicies(t *testing.T, w *external, e exits, s neighbourIPs) {
	red, web := w.red[0], func(address func(lab.Family) netip.Addr, f lab.Family) netip.AddrPort {
		return netip.AddrPortFrom(address(f), 8080)
	}
	for f := range lab.Dual.Each {
		for _, x := range []floating{s.blue, s.c} {
			serve(t, x.host, web(x.own, f), probe.WhoAmI)
		}
		for _, h := range []*lab.Host{w.near, w.far} {
			serve(t, h, web(h.Address, f), probe.WhoAmI)
		}
	}
	t.Run("egress before translation", func(t *testing.T) {
		w.rules.isolate(red, intent.Egress, intent.Rule{
			Blocks: blocks(slices.Concat(both(w.far.Address), both(s.c.address))...), Ports: tcpPort(8080, 8080),
		})
		w.rules.publish(t)
		for f := range lab.Dual.Each {
			becomes(t, f.String()+" to the address that is allowed", reaches(red, web(w.far.Address, f)))
			becomes(t, f.String()+" to another host", unreached(red, web(w.near.Address, f)))
			becomes(t, f.String()+" to a FloatingIP that is allowed", reaches(red, web(s.c.address, f)))
			becomes(t, f.String()+" to another FloatingIP", unreached(red, web(s.blue.address, f)))
			becomes(t, f.String()+" another pod of the Router", reaches(w.red[1], web(w.near.Address, f)))
		}
		w.rules.open(red)
	})
	t.Run("the gateway is outside", func(t *testing.T) {
		// The rules of what has a FloatingIP see gateways' addresses, not those of pods.
		w.rules.isolate(w.c, intent.Ingress, intent.Rule{
			Blocks: blocks(slices.Concat(both(e.red.address), both(w.red[2].Address), both(own(w.red[2])))...),
		})
		w.rules.publish(t)
		for f := range lab.Dual.Each {
			becomes(t, f.String()+" from the gateway that is allowed", reaches(red, web(s.c.address, f)))
			becomes(t, f.String()+" from another Router's gateway", unreached(w.blue[0], web(s.c.address, f)))
			becomes(t, f.String()+" from a pod whose own address is allowed", unreached(w.red[2], web(s.c.address, f)))
			becomes(t, f.String()+" from outside", unreached(w.near, web(s.c.address, f)))
		}
		w.rules.open(w.c)
	})
	w.rules.publish(t)
	t.Run("live connections", func(t *testing.T) { gatewayLive(t, w, e) })
}

// gatewayLive has a connection end when it is denied, and go on when it is allowed again.
func gatewayLive(t *testing.T, w *external, e exits) {
	red := w.red[0]
	ctx := within(t, time.Minute)
	allowed := streams(ctx, t, way{path: path{name: "allowed", from: red.Host, to: w.far, dst: w.far.Address}})
	denied := datagrams(ctx, t, way{path: path{name: "denied", from: red.Host, to: w.near, dst: w.near.Address}})
	w.rules.isolate(red, intent.Egress, intent.Rule{Blocks: blocks(both(w.far.Address)...)})
	w.rules.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" denied", func(context.Context) error {
			heard := wire(t, w.near)
			defer heard.Close()
			return heard.Quiet(200*time.Millisecond, func(frame probe.Frame) bool {
				src, dst := frame.IPs()
				return protocolOf(frame) == 17 && src == e.red.address(f) && dst == w.near.Address(f)
			})
		})
	}
	w.rules.open(red)
	w.rules.publish(t)
	settle(ctx, t, denied, 5)
	for name, o := range denied.stop(t) {
		if len(o.Lost) == 0 {
			t.Errorf("%s: %s", name, o.UDPReport)
		}
	}
	for name, o := range allowed.stop(t) {
		if len(o.Lost) > 0 {
			t.Errorf("%s: %s", name, o.UDPReport)
		}
	}
}

// gatewayRestarts restarts the agent and Open vSwitch of n1 under traffic. Connections outlive
// agents; when Open vSwitch ends, its userspace datapath forgets them.
func gatewayRestarts(t *testing.T, w *external, e exits, s neighbourIPs) {
	ways := []way{
		{path: path{"tenant", w.red[0].Host, w.near, w.near.Address, e.red.address}},
		{path: path{"tenant, beyond", w.blue[0].Host, w.far, w.far.Address, e.blue.address}},
		{path: path{"default", w.a.Host, w.far, w.far.Address, e.plain.address}},
		{path: path{"virtual machine", w.vm.Host, w.near, w.near.Address, e.lan.address}},
		{path: path{"tenant on the other node", w.red[2].Host, w.near, w.near.Address, e.red2.address}},
		to("tenant to a FloatingIP", w.red[0].Host, s.blue, e.red.address),
		to("tenant to a FloatingIP on another node", w.red[0].Host, s.c, e.red.address),
		to("from another node to a FloatingIP", w.red[2].Host, s.b, e.red2.address),
	}
	calls := ways[:2]
	takeWays(t, ways...) // from here on, nodes know the next hops
	for _, r := range w.restarts() {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 2*time.Minute)
			heard := wire(t, w.near)
			begin := streams
			if r.lose {
				begin = datagrams
			}
			tr := begin(ctx, t, ways...)
			var more *callers
			if !r.lose {
				w.remembered(t, w.near.Address, officeHost(officeGateway), s.c.address, e.red2.address)
				for f := range lab.Dual.Each {
					for _, p := range calls {
						serve(t, p.to, netip.AddrPortFrom(p.dst(f), 8080), probe.WhoAmI)
					}
				}
				more = call(ctx, calls...)
			}
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			if err := w.n1.WaitAgent(ctx); err != nil {
				t.Fatal(err)
			}
			settle(ctx, t, tr, 200)
			if r.lose {
				takeWays(t, ways...)
			}
			if more != nil {
				more.end(t)
			}
			for name, o := range tr.stop(t) {
				if !r.lose && len(o.Lost) > 0 {
					t.Errorf("%s: lost %d packets, want none", name, len(o.Lost))
				}
			}
			onlyOuters(t, w, heard, slices.Concat(e.outers(), []outer{s.red.outer, s.blue.outer, s.blue2.outer, s.b.outer, s.c.outer})...)
		})
	}
}

// officeHost are the addresses of one number in the VLAN.
func officeHost(n int) func(lab.Family) netip.Addr {
	return func(f lab.Family) netip.Addr { return office(f, n) }
}

// remembered waits until the agent of n1 has written down the MACs of hosts on the VLAN: one that
// is killed before has to ask for them again.
func (w *external) remembered(t *testing.T, all ...func(lab.Family) netip.Addr) {
	t.Helper()
	for f := range lab.Dual.Each {
		for _, address := range all {
			name := []byte(`"office/` + address(f).String() + `"`)
			becomes(t, string(name)+" is remembered", func(context.Context) error {
				found := errLost
				err := filepath.WalkDir(w.n1.Config().StateDir, func(path string, d fs.DirEntry, err error) error {
					if err != nil || !d.Type().IsRegular() {
						return err
					}
					data, err := os.ReadFile(path)
					if bytes.Contains(data, name) {
						found = nil
					}
					return err
				})
				return cmp.Or(err, found)
			})
		}
	}
}

// gatewayChanges has a node's address become another, and a Port lose its FloatingIP.
func gatewayChanges(t *testing.T, w *external, e exits, s neighbourIPs) {
	for _, x := range s.all() {
		w.release(x)
	}
	for _, in := range []inside{{"", s.red.host, e.red}, {"", s.blue2.host, e.blue2}, {"", s.b.host, e.plain}} {
		w.leaves(t, in.host, in.by.address)
	}
	w.leaves(t, w.c.Host, w.n2.Address)

	w.API.RemoveGatewayAddresses("red", w.n1.Name)
	w.openExits(t, e.moved)
	w.leaves(t, w.red[0].Host, e.moved.address)
	w.leaves(t, w.red[2].Host, e.red2.address)
	w.flowsGone(t, e.red.outer)
	outerNeighbours(t, w, []outer{e.moved.outer})
}

// flowsGone waits until nothing is left of addresses on their nodes.
func (w *external) flowsGone(t *testing.T, all ...outer) {
	t.Helper()
	for _, x := range all {
		becomes(t, x.name, func(ctx context.Context) error {
			flows, err := x.node.OVS.Ofctl(ctx, "dump-flows", "br-int")
			for f := range lab.Dual.Each {
				if err == nil && mentions(flows, x.address(f)) {
					err = fmt.Errorf("node %s has flows about %s", x.node.Name, x.address(f))
				}
			}
			return err
		})
	}
}

// gatewayRemoved removes gateways: the Ports leave as before.
func gatewayRemoved(t *testing.T, w *external, e exits) {
	for _, router := range []string{"red", "default", "lan"} {
		if err := w.API.RemoveRouterGateway(router); err != nil {
			t.Fatal(err)
		}
	}
	w.leaves(t, w.red[0].Host, w.n1.Address)
	w.leaves(t, w.a.Host, w.n1.Address)
	w.flowsGone(t, e.moved.outer, e.red2.outer, e.plain.outer, e.lan.outer)
	var attempts []attempt
	for f := range lab.Dual.Each {
		attempts = append(attempts, attempt{"a virtual machine to outside", w.vm.Host, lab.Internet(f)})
	}
	unreachable(t, attempts...)
	takeWays(t,
		way{path: path{"out by the node", w.a.Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"a tenant out by the node", w.red[0].Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"a tenant out by the other node", w.red[2].Host, w.Outside, lab.Internet, w.n2.Address}},
		way{path: path{"another tenant", w.blue[0].Host, w.near, w.near.Address, e.blue.address}},
		way{path: path{"a shared Router", w.shared.Host, w.near, w.near.Address, e.shop.address}},
	)
}

// TestGatewaysOnNodesSegment has gateways on the segment that the nodes themselves are on, where
// kube-proxy balances Services, with policies and without.
func TestGatewaysOnNodesSegment(t *testing.T) {
	t.Parallel()
	t.Run("policies", func(t *testing.T) { gatewaysOnSegment(t, true) })
	t.Run("no policies", func(t *testing.T) { gatewaysOnSegment(t, false) })
}

func gatewaysOnSegment(t *testing.T, policed bool) {
	w, far := startSegment(t, policed)
	heard := wire(t, w.Outside)
	plain, red, red2 := onSegment(151), onSegment(152), onSegment(153)
	for router, addresses := range map[string]map[string]func(lab.Family) netip.Addr{
		"default": {"n1": plain}, "red": {"n1": red, "n2": red2},
	} {
		if err := w.API.AddRouterGateway(router, "segment"); err != nil {
			t.Fatal(err)
		}
		for node, address := range addresses {
			for f := range lab.Dual.Each {
				w.API.AddGatewayAddress(router, node, "segment", address(f).String())
				becomes(t, address(f).String()+" is announced", func(context.Context) error {
					mac := reserved.PodMAC(address(f)).HardwareAddr()
					if len(heard.Frames(announcement(address(f), mac))) == 0 {
						return errLost
					}
					return nil
				})
			}
		}
	}
	takeWays(t,
		way{path: path{"default", w.a.Host, w.Outside, w.Outside.Address, plain}},
		way{path: path{"default, beyond", w.a.Host, far, far.Address, plain}},
		way{path: path{"default, internet", w.a.Host, w.Outside, lab.Internet, plain}},
		way{path: path{"tenant", w.red[0].Host, far, far.Address, red}},
		way{path: path{"tenant on the other node", w.red[2].Host, w.Outside, w.Outside.Address, red2}},
		way{path: path{"its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address}},
		way{path: path{"another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address}},
		way{path: path{"a pod on another node", w.a.Host, w.c.Host, w.c.Address, w.a.Address}},
		way{path: path{"a tenant's node", w.red[0].Host, w.n1.Host, w.n1.Address, w.red[0].Address}},
		way{path: path{"a node to a tenant", w.n1.Host, w.red[0].Host, w.red[0].Address, w.n1.Gateway}, known: own(w.red[0])},
		way{path: path{"without a gateway", w.blue[0].Host, far, far.Address, w.n1.Address}},
		way{path: path{"a node without a gateway", w.c.Host, far, far.Address, w.n2.Address}},
	)
	for f := range lab.Dual.Each {
		if err := refusedUDP(w.a, netip.AddrPortFrom(far.Address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: a closed port: %v", f, err)
		}
	}
	proxiedOnSegment(t, w, far)
	awaitCheck(within(t, time.Minute), t, w.world)
}
