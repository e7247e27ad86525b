// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// vip is a service's address, translated by the host as kube-proxy has it done.
var vip = map[lab.Family]netip.Addr{
	lab.IPv4: netip.MustParseAddr("10.96.0.10"), lab.IPv6: netip.MustParseAddr("fd00:10:96::10"),
}

// pods is the range of all pods.
var pods = map[lab.Family]string{lab.IPv4: "10.244.0.0/16", lab.IPv6: "fd00:10:244::/48"}

// expose translates port 80 of the service to a port of an endpoint, for what
// passes through the node and for what it sends itself; the source of what comes
// from no pod is translated, too.
func expose(t *testing.T, n *lab.Node, protocol string, endpoint netip.AddrPort) {
	t.Helper()
	f := lab.FamilyOf(endpoint.Addr())
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		iptables(t, n.Host, f, chain, "-d", vip[f].String(), "-p", protocol, "--dport", "80",
			"-j", "DNAT", "--to-destination", endpoint.String())
	}
	iptables(t, n.Host, f, "POSTROUTING", "!", "-s", pods[f], "-p", protocol, "-m", "conntrack", "--ctorigdst", vip[f].String(),
		"-j", "MASQUERADE")
}

// TestService reaches endpoints behind a service address. The endpoint sees the
// client's own address, and its answers come back from the service's.
func TestService(t *testing.T) {
	w := proxiedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		at := netip.AddrPortFrom(vip[f], 80)
		for _, tc := range []struct {
			name     string
			endpoint *lab.Pod
		}{{"endpoint on the client's node", w.b}, {"endpoint on another node", w.c}} {
			t.Run(tc.name, func(t *testing.T) {
				endpoint := netip.AddrPortFrom(tc.endpoint.Address(f), 8083)
				expose(t, w.n1, "tcp", endpoint)
				expose(t, w.n1, "udp", endpoint)
				serve(t, tc.endpoint, endpoint, probe.WhoAmI)
				for client, seen := range map[*lab.Host]netip.Addr{w.a.Host: w.a.Address(f), w.n1.Host: w.n1.Gateway(f)} {
					got, err := probe.Seen(t.Context(), client, at)
					if err != nil || got.Addr() != seen {
						t.Errorf("TCP from %s: the endpoint sees %s, want %s; %v", client.Name, got.Addr(), seen, err)
					}
				}
				for _, size := range []int{10, 4000} {
					text := strings.Repeat("x", size)
					got, err := probe.AskUDP(t.Context(), w.a, tc.endpoint, at, endpoint, text)
					if err != nil || got != text {
						t.Errorf("UDP of %d bytes: %d came back, %v", size, len(got), err)
					}
				}
				closed := netip.AddrPortFrom(tc.endpoint.Address(f), 9)
				iptables(t, w.n1.Host, f, "PREROUTING", "-d", vip[f].String(), "-p", "udp", "--dport", "81",
					"-j", "DNAT", "--to-destination", closed.String())
				// The ICMP error about the endpoint must come back as one about the service.
				if err := refusedUDP(w.a, netip.AddrPortFrom(vip[f], 81)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("closed port behind the service: %v", err)
				}
			})
		}
	})
}

// TestServiceBulk sends much through a service, so that many packets of one
// connection take the way there and the way back.
func TestServiceBulk(t *testing.T) {
	w := proxiedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, pod := range []*lab.Pod{w.b, w.c} {
			endpoint := netip.AddrPortFrom(pod.Address(f), 8084)
			t.Run(pod.Name, func(t *testing.T) {
				expose(t, w.n1, "tcp", endpoint)
				serve(t, pod, endpoint, probe.Digest)
				rate, err := probe.Transfer(within(t, bulkTimeout), w.a, netip.AddrPortFrom(vip[f], 80), bulkBytes)
				if err != nil {
					t.Error(err)
				}
				t.Logf("%.0f Mbit/s", rate*8/1e6)
			})
		}
	})
}

// TestServiceToItself reaches the client's own pod by way of its service, for
// which kube-proxy also translates the source.
func TestServiceToItself(t *testing.T) {
	w := proxiedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		endpoint := netip.AddrPortFrom(w.a.Address(f), 8085)
		expose(t, w.n1, "tcp", endpoint)
		iptables(t, w.n1.Host, f, "POSTROUTING", "-s", w.a.Address(f).String(), "-d", w.a.Address(f).String(), "-j", "MASQUERADE")
		serve(t, w.a, endpoint, probe.WhoAmI)
		got, err := probe.Seen(t.Context(), w.a, netip.AddrPortFrom(vip[f], 80))
		if err != nil || got.Addr() != w.n1.Gateway(f) {
			t.Errorf("the pod sees %s, want %s; %v", got.Addr(), w.n1.Gateway(f), err)
		}
	})
}

// TestHostPort reaches a pod by a port of its node, from everywhere.
func TestHostPort(t *testing.T) {
	t.Run("native", func(t *testing.T) { hostPorts(t, sharedWorld(t)) })
	t.Run("kube-proxy", func(t *testing.T) { hostPorts(t, proxiedWorld(t)) })
}

func hostPorts(t *testing.T, w *world) {
	ctx := t.Context()
	p, err := w.n1.AddPod(ctx, "host-port", lab.PortMapping{HostPort: 8888, ContainerPort: 80, Protocol: "tcp"})
	if err != nil {
		t.Fatal(err)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		serve(t, p, netip.AddrPortFrom(p.Address(f), 80), probe.WhoAmI)
		at := netip.AddrPortFrom(w.n1.Address(f), 8888)
		for _, tc := range []struct {
			from *lab.Host
			seen netip.Addr
		}{
			{w.Outside, w.Outside.Address(f)}, {w.n2.Host, w.n2.Address(f)}, {w.n1.Host, w.n1.Gateway(f)},
			{w.a.Host, w.a.Address(f)}, {w.c.Host, w.n2.Address(f)},
			// It would not take a packet from its own address.
			{p.Host, w.n1.Gateway(f)},
		} {
			got, err := probe.Seen(ctx, tc.from, at)
			if err != nil || got.Addr() != tc.seen {
				t.Errorf("from %s: the pod sees %s, want %s; %v", tc.from.Name, got.Addr(), tc.seen, err)
			}
		}
	})
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		serve(t, p, netip.AddrPortFrom(p.Address(f), 80), probe.WhoAmI)
		got, err := probe.Seen(ctx, w.a.Host, netip.AddrPortFrom(w.n1.Address(f), 8888))
		if err != nil || got.Addr() != w.a.Address(f) {
			t.Errorf("after the agent's restart the pod sees %s, want %s; %v", got.Addr(), w.a.Address(f), err)
		}
	})
	if err := p.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	for f := range lab.Dual.Each {
		if c, err := probe.Dial(ctx, w.Outside, netip.AddrPortFrom(w.n1.Address(f), 8888)); err == nil {
			c.Close()
			t.Errorf("%s: the port of a pod that is gone still answers", f)
		}
	}
}

// TestSNATExclusion reaches an address that is to see the pods' own addresses.
func TestSNATExclusion(t *testing.T) {
	w := sharedWorld(t)
	for _, p := range excluded {
		// Without nodad nothing can listen there until the kernel has come to it.
		args := []string{"address", "add", p.String(), "dev", "lo"}
		if p.Addr().Is6() {
			args = append(args, "nodad")
		}
		run(t, w.Outside, "ip", args...)
		t.Cleanup(func() { run(t, w.Outside, "ip", "address", "del", p.String(), "dev", "lo") })
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		routeToPods(t, w, f)
		at := netip.AddrPortFrom(excluded[f-1].Addr(), 8086)
		serve(t, w.Outside, at, probe.WhoAmI)
		got, err := probe.Seen(t.Context(), w.a, at)
		if err != nil || got.Addr() != w.a.Address(f) {
			t.Errorf("the outside sees %s, want %s; %v", got.Addr(), w.a.Address(f), err)
		}
		if err := probePath(t.Context(), path{"back", w.Outside, w.a.Host, w.a.Address, w.Outside.Address}, f); err != nil {
			t.Errorf("from outside to a pod: %v", err)
		}
	})
}
