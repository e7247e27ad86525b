// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
)

// hostPort leads to a port of the pod, hostPort+1 at one address of the host only.
const hostPort = 7070

func portsOfPod(to uint16) (list []HostPort) {
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		pod := netip.MustParseAddr(w.pod)
		for _, p := range []intent.Protocol{intent.TCP, intent.UDP, intent.SCTP} {
			list = append(list,
				HostPort{Protocol: p, Port: hostPort, To: netip.AddrPortFrom(pod, to)},
				HostPort{Protocol: p, Port: hostPort + 1, Address: netip.MustParseAddr(w.ours), To: netip.AddrPortFrom(pod, to)},
				// A Service has it as its node port.
				HostPort{Protocol: p, Port: nodePort, To: netip.AddrPortFrom(pod, to)})
		}
	}
	return list
}

// hears asks until the answer is as it should be; a machine that is busy gets more time.
func hears(t *testing.T, network, name string, q question) {
	t.Helper()
	got := ask(q.ns, network, q.from, q.to, q.port)
	if got != q.want {
		patience = 5 * time.Second
		got = ask(q.ns, network, q.from, q.to, q.port)
		patience = hurry
	}
	if got != q.want {
		t.Errorf("%s %s: %s (%s:%d): %q, want %q", name, network, q.name, q.to, q.port, got, q.want)
	}
}

// TestHostPorts reaches a pod by ports of its node: the pod sees the clients' own addresses, except
// for the node's and its own.
func TestHostPorts(t *testing.T) {
	h := makeWorld(t)
	t.Cleanup(func() { must(t, RemoveHostPorts()) })
	must(t, h.SetHostPorts(portsOfPod(8080)))
	must(t, h.CheckHostPorts())
	if n, err := h.Apply(withServices()); n != 0 || err != nil {
		t.Errorf("applied again: %d writes, %v", n, err)
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		pod := func(client string) string { return seen(bridge, w.pod, 8080, client) }
		for _, q := range []question{
			{"from outside", outside, w.client, w.node, hostPort, pod(w.client)},
			{"from the host", "", "", w.node, hostPort, pod(w.gateway)},
			{"from a process with the host's address", "", w.node, w.node, hostPort, pod(w.gateway)},
			{"from the pod itself", bridge, w.pod, w.node, hostPort, pod(w.gateway)},
			{"at another address", outside, w.client, w.ours, hostPort, pod(w.client)},
			{"at the address that was chosen", "", "", w.ours, hostPort + 1, pod(w.gateway)},
			{"at one that was not", "", "", w.node, hostPort + 1, "refused"},
			{"a node port", outside, w.client, w.node, nodePort, seen(bridge, w.hop, nodePort, w.gateway)},
		} {
			for _, network := range []string{"tcp", "udp", "sctp"} {
				if network == "sctp" && q.want == "refused" {
					continue // raw sockets of all other questions hear of it
				}
				hears(t, network, name, q)
			}
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		hears(t, network, "IPv4", question{"at the loopback address", "", "", "127.0.0.1", hostPort,
			seen(bridge, worlds["IPv4"].pod, 8080, worlds["IPv4"].gateway)})
	}
	must(t, h.SetHostPorts(nil))
	if out := run(t, "nft", "list", "tables"); strings.Contains(out, hostPortsTable) {
		t.Errorf("a table without host ports:\n%s", out)
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		hears(t, "tcp", name, question{"after the pod is gone", "", "", worlds[name].node, hostPort, "refused"})
	}
}

// TestHostPortsForgetClients has a client of UDP that keeps its port be led to the pod of now.
func TestHostPortsForgetClients(t *testing.T) {
	h := makeWorld(t)
	t.Cleanup(func() { must(t, RemoveHostPorts()) })
	for _, port := range []int{8080, 9000, 8080} {
		must(t, h.SetHostPorts(portsOfPod(uint16(port))))
		for _, name := range []string{"IPv4", "IPv6"} {
			w := worlds[name]
			from := netip.AddrPortFrom(netip.MustParseAddr(w.client), chosen).String()
			hears(t, "udp", name, question{"the pod of now", outside, from, w.node, hostPort,
				seen(bridge, w.pod, port, w.client) + " from the port chosen"})
		}
	}
}

// TestHostPortsAreKept has the rules and the elements be put back.
func TestHostPortsAreKept(t *testing.T) {
	h := makeWorld(t)
	t.Cleanup(func() { must(t, RemoveHostPorts()) })
	must(t, h.SetHostPorts(portsOfPod(8080)))
	for _, damage := range []string{
		"flush chain inet " + hostPortsTable + " prerouting", "flush map inet " + hostPortsTable + " anywhere4", "delete table inet " + hostPortsTable,
	} {
		run(t, "nft", strings.Fields(damage)...)
		if err := h.CheckHostPorts(); err == nil {
			t.Errorf("%s: nothing is missing", damage)
		}
		_, err := h.Apply(withServices())
		must(t, err)
		if err := h.CheckHostPorts(); err != nil {
			t.Errorf("%s, applied again: %v", damage, err)
		}
	}
	again := newHost(t)
	must(t, again.SetHostPorts(portsOfPod(8080)))
	if n, err := again.Apply(withServices()); n != 0 || err != nil {
		t.Errorf("applied by another process: %d writes, %v", n, err)
	}
}

// TestLoopbackIsTheHosts sends to the host's loopback address from a pod, which the setting that
// lets the host's own processes use host ports there would let in.
func TestLoopbackIsTheHosts(t *testing.T) {
	h := makeWorld(t)
	t.Cleanup(func() { must(t, RemoveHostPorts()) })
	serve(t, "")
	must(t, h.SetHostPorts(portsOfPod(8080)))
	run(t, "ip", "-n", bridge, "addr", "flush", "dev", "lo")
	run(t, "ip", "-n", bridge, "route", "add", "127.0.0.0/8", "via", worlds["IPv4"].gateway, "dev", "pgw0")
	must(t, in(bridge, func() {
		must(t, os.WriteFile("/proc/sys/net/ipv4/conf/pgw0/route_localnet", []byte("1"), 0))
	}))
	a := attempt{network: "udp", ns: bridge, from: worlds["IPv4"].pod, to: "127.0.0.1", port: 9000, size: 1}
	patience = 2 * time.Second
	defer func() { patience = hurry }()
	if a.answered() {
		t.Error("a pod reaches what listens on the host's loopback address")
	}
	run(t, "nft", "flush", "chain", "inet", tableName, "prerouting")
	if !a.answered() {
		t.Error("without the rule the packet does not arrive, either: this test shows nothing")
	}
}
