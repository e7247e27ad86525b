// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// bareMachine is a node that is a machine of OpenStack, with its address on its card: its agent
// makes the bridge. A peer is on the machine's own network, on another node.
type bareMachine struct {
	*world
	node *lab.Node
	peer *lab.Guest
}

// neutronBareMachine has a machine of which the agent makes the bridge: its pods and it itself
// reach others, and nothing that runs notices the agent, which comes, is killed, and is
// uninstalled. Connections live through a restart of Open vSwitch.
func neutronBareMachine(t *testing.T, w *world) {
	machines := newNeutronMachines(t, w, 81)
	m := &bareMachine{world: w, node: machines.node(t, w, true)}
	id, mac := machines.port(t, w, w.n2, 9)
	peer, err := w.n2.AddGuest(t.Context(), "peer", id, mac, []netip.Prefix{machines.address(9)})
	must(t, err)
	m.peer = peer
	ctx := within(t, 4*time.Minute)
	m.on(ctx, t, "br-int")
	near, far := addPodAs(t, m.node, lab.PodSpec{Name: "bare-near"}), addPodAs(t, m.node, lab.PodSpec{Name: "bare-far"})
	own := of(management(m.node))
	paths := []path{
		{"pod to pod on the machine", near.Host, far.Host, far.Address, near.Address},
		{"pod to pod on the node below", near.Host, w.a.Host, w.a.Address, near.Address},
		{"pod to pod on another node", near.Host, w.c.Host, w.c.Address, near.Address},
		{"pod of another node to pod", w.c.Host, near.Host, near.Address, w.c.Address},
		{"pod to the machine", near.Host, m.node.Host, own, near.Address},
		{"machine to its pod", m.node.Host, near.Host, near.Address, own},
		{"machine to pod on another node", m.node.Host, w.c.Host, w.c.Address, own},
	}
	for _, p := range paths {
		for f := range lab.Dual.Each {
			t.Run(p.name+" "+f.String(), func(t *testing.T) { neutronReaches(t, p, f) })
		}
	}
	must(t, near.Check(t.Context()))
	must(t, m.node.Check(t.Context()))

	t.Run("agent killed and started", func(t *testing.T) {
		tr := m.traffic(ctx, t, paths...)
		m.node.KillAgent()
		must(t, m.node.StartAgent(ctx))
		tr.settle(ctx, t)
		for name, o := range tr.stop(t) {
			if len(o.Lost) > 0 {
				t.Errorf("%s: %d packets are lost", name, len(o.Lost))
			}
		}
	})
	m.through(ctx, t, "Open vSwitch restarted", func(t *testing.T) {
		must(t, m.node.OVS.Restart(ctx))
		m.on(ctx, t, "br-int")
	})
	neutronReaches(t, paths[2], lab.IPv4)
	must(t, near.Delete(t.Context()))
	must(t, far.Delete(t.Context()))
	m.node.StopAgent()
	m.through(ctx, t, "uninstall", func(t *testing.T) { must(t, m.node.Uninstall(ctx)) })
	m.on(ctx, t, "eth0")
	if left := run(t, m.node.Host, "ip", "-br", "link"); strings.Contains(left, "coelan") || strings.Contains(left, "br-int") {
		t.Errorf("interfaces are left:\n%s", left)
	}
	m.through(ctx, t, "installed anew", func(t *testing.T) { must(t, m.node.StartAgent(ctx)) })
	m.on(ctx, t, "br-int")
	again := addPodAs(t, m.node, lab.PodSpec{Name: "bare-again"})
	neutronReaches(t, path{"a pod after that", again.Host, w.c.Host, w.c.Address, again.Address}, lab.IPv4)
}

// on says that the machine's address and its way out are on an interface, and nowhere else.
func (m *bareMachine) on(ctx context.Context, t *testing.T, link string) {
	t.Helper()
	address := m.node.Address(lab.IPv4).String()
	poll(ctx, t, func() bool {
		addresses, routes := run(t, m.node.Host, "ip", "-4", "-br", "addr"), run(t, m.node.Host, "ip", "-4", "route", "show", "default")
		return strings.Count(addresses, address+"/") == 1 && strings.Contains(routes, "dev "+link) &&
			strings.Contains(run(t, m.node.Host, "ip", "-4", "-br", "addr", "show", "dev", link), address+"/")
	}, func() { t.Errorf("%s is not on %s:\n%s", address, link, run(t, m.node.Host, "ip", "addr")) })
}

// traffic is that of ways, and of the machine itself with its peer.
func (m *bareMachine) traffic(ctx context.Context, t *testing.T, paths ...path) *traffic {
	t.Helper()
	tr := &traffic{}
	for _, p := range append([]path{
		{name: "machine to its peer", from: m.node.Host, to: m.peer.Host, dst: m.peer.Address},
		{name: "peer to the machine", from: m.peer.Host, to: m.node.Host, dst: m.node.Address},
	}, paths...) {
		for f := range lab.Dual.Each {
			if !p.dst(f).IsValid() {
				continue // machines have IPv4 alone
			}
			at := netip.AddrPortFrom(p.dst(f), uint16(7100+len(tr.udp)))
			udp, err := probe.StartUDP(p.from, p.to, at, at, nodeInterval)
			must(t, err)
			t.Cleanup(udp.Close)
			serve(t, p.to, at, probe.Echo)
			tcp, err := probe.StartTCP(ctx, p.from, at, nodeInterval)
			must(t, err)
			t.Cleanup(tcp.Close)
			tr.names, tr.udp, tr.tcp = append(tr.names, f.String()+" "+p.name), append(tr.udp, udp), append(tr.tcp, tcp)
		}
	}
	tr.settle(ctx, t)
	return tr
}

// through runs a step under traffic of the machine itself. No connection may break.
func (m *bareMachine) through(ctx context.Context, t *testing.T, name string, step func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		tr := m.traffic(ctx, t)
		step(t)
		tr.settle(ctx, t)
		tr.stop(t)
	})
}
