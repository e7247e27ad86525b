// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// Ports of the nodes.
const (
	tunnelPort = 4789
	memberPort = 10362
	streamPort = 10363
)

// strangers are hosts on the nodes' wire that are no nodes.
var strangers = map[string]string{"IPv4": "192.168.50.66", "IPv6": "fd50::66"}

// guarded is a Desired with the host and the outside's first address as nodes.
func guarded(snat, tunnelToKernel bool) Desired {
	d := overlay("gw0")
	d.SNAT.Enabled = snat
	d.Guard = Guard{
		Tunnel: tunnelPort, TunnelToKernel: tunnelToKernel, TunnelMark: reserved.TunnelMark,
		Ports: []NodePort{{intent.TCP, memberPort}, {intent.UDP, memberPort}, {intent.TCP, streamPort}},
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		d.Guard.Nodes = append(d.Guard.Nodes, netip.MustParseAddr(worlds[name].node), netip.MustParseAddr(worlds[name].client))
	}
	return d
}

// attempt is one way of a packet to a port of a node, or its counterpart that has to arrive.
type attempt struct {
	name, network string
	ns, from, to  string
	port          int
	// stopped says that the guard stops it.
	stopped bool
	size    int
	// mark is what the sender gives its packets (datagrams only); 0: none.
	mark uint32
}

// Ports at the node's address by which kube-proxy's rules lead to the other node's ports, to those
// of another address of it, and to a port without a guard.
const (
	toTunnel = 30001 + iota
	toTunnelElsewhere
	toMember
	toOpen
)

func attempts(name string) []attempt {
	w := worlds[name]
	var all []attempt
	add := func(stopped bool, name, network, ns, from, to string, port int) {
		all = append(all, attempt{name, network, ns, from, to, port, stopped, 1, 0})
	}
	for _, network := range []string{"tcp", "udp"} {
		for _, from := range []struct{ name, ns, addr string }{
			{"a pod", bridge, w.pod}, {"a stranger", outside, strangers[name]}, {"a node", outside, w.client},
		} {
			isPod, isNode := from.ns == bridge, from.addr == w.client
			to := func(stopped bool, what, to string, port int) {
				add(stopped, network+" from "+from.name+" to "+what, network, from.ns, from.addr, to, port)
			}
			to(network == "udp" && !isNode, "its node's tunnels", w.node, tunnelPort)
			to(!isNode, "its node's memberlist", w.node, memberPort)
			to(network == "tcp" && !isNode, "its node's policy stream", w.node, streamPort)
			to(true, "the memberlist's port at an address that is not known as a node's", w.ours, memberPort)
			to(false, "another port of its node", w.node, 9000)
			if isPod {
				to(network == "udp", "another node's tunnels", w.client, tunnelPort)
				to(network == "udp", "tunnels at another address of that node", w.elsewhere, tunnelPort)
				to(true, "another node's memberlist", w.client, memberPort)
				to(network == "tcp", "another node's policy stream", w.client, streamPort)
				to(false, "a host with a port of that number", strangers[name], streamPort)
				to(false, "another port of that node", w.client, 9000)
			}
			// What kube-proxy translates. The node's own packets come back to it, as a node's.
			to(network == "udp", "a node port that leads to tunnels elsewhere", w.node, toTunnelElsewhere)
			if !isNode {
				to(network == "udp", "a node port that leads to tunnels", w.node, toTunnel)
				to(true, "a node port that leads to the memberlist", w.node, toMember)
			}
			to(false, "a node port that leads to an open port", w.node, toOpen)
		}
		add(false, network+": the node to its own memberlist", network, "", w.node, w.node, memberPort)
		add(false, network+": the node to the other one's memberlist", network, "", w.node, w.client, memberPort)
		add(false, network+": the node to the other one's tunnels", network, "", w.node, w.client, tunnelPort)
	}
	all = append(all, attempt{
		name: "a pod's own mark, to tunnels", network: "udp", ns: bridge, from: w.pod, to: w.client, port: tunnelPort,
		stopped: true, size: 1, mark: reserved.TunnelMark,
	})
	for _, big := range []attempt{
		{name: "fragments to tunnels", to: w.client, port: tunnelPort, stopped: true},
		{name: "fragments to the node's own tunnels", to: w.node, port: tunnelPort, stopped: true},
		{name: "fragments to an open port", to: w.client, port: 9000},
	} {
		big.network, big.ns, big.from, big.size = "udp", bridge, w.pod, 4000
		all = append(all, big)
	}
	return all
}

// answered says whether an answer comes.
func (a attempt) answered() bool {
	got := false
	_ = in(a.ns, func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := dial(ctx, a.network, a.from, a.to, a.port)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience))
		if a.network == "udp" {
			if err := mark(c, a.mark); err != nil {
				return
			}
			if _, err := c.Write(make([]byte, a.size)); err != nil {
				return
			}
		}
		n, err := c.Read(make([]byte, 1500))
		got = err == nil && n > 0
	})
	return got
}

// mark has the packets that leave by a connection marked; 0 is no mark.
func mark(c net.Conn, mark uint32) error {
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	})
	return errors.Join(err, failed)
}

// surprises are the attempts that do not end as they should; a busy machine gets
// a second, longer chance.
func surprises(guard bool) []string {
	ask := func() (problems []string) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range []string{"IPv4", "IPv6"} {
			for _, a := range attempts(name) {
				all.Go(func() {
					if want := !guard || !a.stopped; a.answered() != want {
						mu.Lock()
						defer mu.Unlock()
						problems = append(problems, fmt.Sprintf("%s: %s (%s:%d) is to be answered: %t", name, a.name, a.to, a.port, want))
					}
				})
			}
		}
		all.Wait()
		slices.Sort(problems)
		return problems
	}
	if len(ask()) == 0 {
		return nil
	}
	patience = 5 * time.Second
	defer func() { patience = hurry }()
	return ask()
}

// proxied are rules of a kube-proxy for Services with nodes as endpoints.
func proxied(t *testing.T) {
	t.Helper()
	var rules, masks strings.Builder
	for _, name := range []string{"IPv4", "IPv6"} {
		w, ip, format := worlds[name], "ip", "%s:%d"
		if name == "IPv6" {
			ip, format = "ip6", "[%s]:%d"
		}
		for _, r := range []struct {
			port int
			to   string
			at   int
		}{
			{toTunnel, w.client, tunnelPort}, {toTunnelElsewhere, w.elsewhere, tunnelPort}, {toMember, w.client, memberPort},
			{toOpen, w.client, 9000},
		} {
			fmt.Fprintf(&rules, "%s daddr %s meta l4proto { tcp, udp } th dport %d dnat %s to "+format+"\n", ip, w.node, r.port, ip, r.to, r.at)
		}
		fmt.Fprintf(&masks, "%s daddr { %s, %s } ct status dnat masquerade\n", ip, w.client, w.elsewhere)
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table inet proxied {\n" +
		"chain prerouting { type nat hook prerouting priority -100;\n" + rules.String() + "}\n" +
		"chain postrouting { type nat hook postrouting priority 100;\n" + masks.String() + "}\n}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, rules.String())
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "proxied").Run() })
}

// TestGuard sends packets of pods, of hosts that are no nodes, and of nodes, to the nodes' own
// ports: first without a guard, where all arrive, then with it.
func TestGuard(t *testing.T) {
	h := makeWorld(t)
	serve(t, "")
	for _, name := range []string{"IPv4", "IPv6"} {
		w, long, short := worlds[name], "/32", "/24"
		if name == "IPv6" {
			long, short = "/128", "/64"
		}
		run(t, "ip", strings.Fields("-n "+outside+" addr add "+strangers[name]+short+" dev pup0 nodad")...)
		run(t, "ip", "-n", outside, "route", "add", w.ours+long, "via", w.node)
		run(t, "ip", "route", "add", w.elsewhere+long, "via", w.client)
	}
	run(t, "ip", "-n", bridge, "link", "set", "pgw0", "mtu", "1450")
	proxied(t)
	for _, snat := range []bool{true, false} {
		open := guarded(snat, true)
		open.Guard = Guard{}
		for _, step := range []struct {
			name  string
			d     Desired
			guard bool
		}{{"open", open, false}, {"guarded", guarded(snat, true), true}} {
			t.Run(fmt.Sprintf("%s, SNAT %t", step.name, snat), func(t *testing.T) {
				_, err := h.Apply(step.d)
				must(t, err)
				if n, err := h.Apply(step.d); n != 0 || err != nil {
					t.Errorf("applied again: %d writes, %v", n, err)
				}
				for _, problem := range surprises(step.guard) {
					t.Error(problem)
				}
			})
		}
	}
}

// TestGuardFragments has nothing but the guard in the kernel, so that nothing
// else reassembles fragments.
func TestGuardFragments(t *testing.T) {
	h := makeWorld(t)
	run(t, "ip", "-n", bridge, "link", "set", "pgw0", "mtu", "1450")
	// The Services' table, which translates, goes with this.
	for _, stopped := range []bool{false, true} {
		d := guarded(false, true)
		if !stopped {
			d.Guard = Guard{}
		}
		_, err := h.Apply(d)
		must(t, err)
		patience = 2 * time.Second
		for _, name := range []string{"IPv4", "IPv6"} {
			w := worlds[name]
			big := attempt{network: "udp", ns: bridge, from: w.pod, to: w.client, port: tunnelPort, size: 4000}
			if got := big.answered(); got == stopped {
				t.Errorf("%s: fragments to tunnels are answered: %t, want %t", name, got, !stopped)
			}
			big.port = 9000
			if !big.answered() {
				t.Errorf("%s: fragments to an open port are not answered", name)
			}
		}
		patience = hurry
	}
}

// TestTunnelsUntracked has nodes send each other packets in both directions: conntrack knows those
// to an open port, and those to the tunnel's only where they are a pod's, or the tunnels another's,
// or not of Open vSwitch's, which has a mark for its own.
func TestTunnelsUntracked(t *testing.T) {
	h := makeWorld(t)
	serve(t, "")
	for _, tc := range []struct {
		name     string
		toKernel bool
		mark     uint32 // of the rules
		sent     uint32 // of what this node sends
		out, in  bool   // are untracked
	}{
		{"tunnels with a mark", true, reserved.TunnelMark, reserved.TunnelMark, true, true},
		{"tunnels with a mark, and another sender", true, reserved.TunnelMark, 0, false, true},
		{"tunnels without a mark", true, 0, 0, true, true},
		{"tunnels past the kernel", false, 0, 0, false, false},
	} {
		d := guarded(true, tc.toKernel)
		d.Guard.TunnelMark = tc.mark
		_, err := h.Apply(d)
		must(t, err)
		patience = 2 * time.Second
		for _, name := range []string{"IPv4", "IPv6"} {
			w := worlds[name]
			for _, way := range []struct {
				ns, from, to string
				mark         uint32
				untracked    bool
			}{{"", w.node, w.client, tc.sent, tc.out}, {outside, w.client, w.node, 0, tc.in}} {
				for _, port := range []int{tunnelPort, 9000} {
					_, err := conntrack.Kernel{}.Flush(t.Context(), netip.MustParseAddr(way.from), []uint16{0})
					must(t, err)
					a := attempt{network: "udp", ns: way.ns, from: way.from, to: way.to, port: port, size: 1, mark: way.mark}
					if port != tunnelPort {
						a.mark = 0
					}
					if !a.answered() {
						t.Fatalf("a node's packet from %s to %s, port %d, is not answered", way.from, way.to, port)
					}
					want := port != tunnelPort || !way.untracked
					if got := tracked(t, way.from, way.to, port); got != want {
						t.Errorf("%s: from %s to %s, port %d, is tracked: %t, want %t", tc.name, way.from, way.to, port, got, want)
					}
				}
			}
		}
		patience = hurry
	}
}

// tracked says whether conntrack knows a connection of UDP that began with a packet between these
// addresses to a port.
func tracked(t *testing.T, from, to string, port int) bool {
	t.Helper()
	found := false
	must(t, conntrack.Kernel{}.Each(t.Context(), 0, unix.IPPROTO_UDP, func(c conntrack.Connection) bool {
		found = found || c.Orig.Src.String() == from && c.Orig.Dst.String() == to && int(c.Orig.DstPort) == port
		return true
	}))
	return found
}

// TestGuardWithoutKernelTunnels leaves the tunnel's port at this node to others, where Open vSwitch
// takes packets from the wire.
func TestGuardWithoutKernelTunnels(t *testing.T) {
	h := makeWorld(t)
	serve(t, "")
	_, err := h.Apply(guarded(true, false))
	must(t, err)
	patience = 2 * time.Second
	defer func() { patience = hurry }()
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		run(t, "ip", strings.Fields("-n "+outside+" addr add "+strangers[name]+map[string]string{"IPv4": "/24", "IPv6": "/64"}[name]+" dev pup0 nodad")...)
		if a := (attempt{network: "udp", ns: outside, from: strangers[name], to: w.node, port: tunnelPort, size: 1}); !a.answered() {
			t.Errorf("%s: a stranger's packet to the tunnel's port is dropped", name)
		}
		if a := (attempt{network: "udp", ns: bridge, from: w.pod, to: w.node, port: tunnelPort, size: 1}); a.answered() {
			t.Errorf("%s: a pod's packet to the tunnel's port arrives", name)
		}
	}
}

// TestTunnelMarkEnds has a packet of another node's tunnel arrive: the mark by which it passes does
// not go on to Open vSwitch, from where it would come back with what the tunnel brings.
func TestTunnelMarkEnds(t *testing.T) {
	h := makeWorld(t)
	serve(t, "")
	_, err := h.Apply(guarded(true, true))
	must(t, err)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table inet marks {
	chain before { type filter hook input priority -10; udp dport %[1]d meta mark %#[2]x counter; }
	chain after { type filter hook input priority 10; udp dport %[1]d meta mark 0 counter; }
}`, tunnelPort, reserved.TunnelMark))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { run(t, "nft", "delete", "table", "inet", "marks") })
	patience = 2 * time.Second
	defer func() { patience = hurry }()
	for i, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		if a := (attempt{network: "udp", ns: outside, from: w.client, to: w.node, port: tunnelPort, size: 1}); !a.answered() {
			t.Errorf("%s: a node's packet to the tunnel's port is not answered", name)
		}
		counted := run(t, "nft", "list", "table", "inet", "marks")
		if n := strings.Count(counted, fmt.Sprintf("packets %d ", i+1)); n != 2 {
			t.Errorf("%s: the packet is to have the mark before the guard, and none after it:\n%s", name, counted)
		}
	}
}
