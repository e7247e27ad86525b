// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

// attackNames has a pod send in the name of others, and tell its neighbors that it is
// another: another pod, the router, a DHCP server. The control is a datagram in its own name
// on the same way.
func attackNames(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	hostile, near, far := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web1"), world.pod(ctx, t, "web2")
	red, redFar := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "red/web2")
	wires := map[string]*probe.Wire{}
	for _, p := range []place{hostile, near, far, red, redFar} {
		wires[p.name] = wireOf(t, p)
	}
	var attacks []attack
	for _, f := range families {
		stranger := map[family]netip.Addr{ipv4: netip.MustParseAddr("198.51.100.9"), ipv6: netip.MustParseAddr("2001:db8::9")}[f]
		internal := map[family]netip.Addr{ipv4: netip.MustParseAddr("169.254.64.2"), ipv6: netip.MustParseAddr("fe80::2")}[f]
		for _, c := range []struct {
			name     string
			source   netip.Addr
			from, to place
			mac      net.HardwareAddr
		}{
			{name: "another pod's address", source: near.address(f), from: hostile, to: far},
			{name: "a pod's address of another node", source: far.address(f), from: hostile, to: near},
			{name: "its gateway's address", source: world.gateway(ctx, t, worker1, f), from: hostile, to: far},
			{name: "its node's address", source: world.nodeAddress(ctx, t, worker1, f), from: hostile, to: far},
			{name: "another node's address", source: world.nodeAddress(ctx, t, worker2, f), from: hostile, to: near},
			{name: "an address outside", source: stranger, from: hostile, to: far},
			{name: "a link-local address", source: internal, from: hostile, to: far},
			{name: "the address of a Service", source: world.serviceAddress(ctx, t, "web1", f), from: hostile, to: far},
			{name: "another address of its tenant", source: neighbor(red.address(f)), from: red, to: redFar},
			{name: "an address of the pod network in a tenant", source: hostile.address(f), from: red, to: redFar},
			{name: "another pod's MAC", source: hostile.address(f), from: hostile, to: far, mac: macOf(t, near)},
			{name: "the router's MAC", source: hostile.address(f), from: hostile, to: far, mac: routerMAC},
		} {
			mac := macOf(t, c.from)
			claimed := mac
			if c.mac != nil {
				claimed = c.mac
			}
			wire, seen := wires[c.from.name], wires[c.to.name]
			to := netip.AddrPortFrom(c.to.address(f), victimPort)
			send := func(mac net.HardwareAddr, source netip.Addr) func([]byte) error {
				return frame(wire, func(text []byte) probe.Frame {
					return routed(mac, f, probe.UDP(netip.AddrPortFrom(source, 1000), to, text))
				})
			}
			attacks = append(attacks, attack{
				fmt.Sprintf("%s: %s sends from %s to %s", f, c.from.name, c.name, c.to.name),
				shot{send(claimed, c.source), seen}, shot{send(mac, c.from.address(f)), seen},
			})
		}
	}

	// What a pod announces to all of its network, or to one neighbor, about the
	// owner of an address.
	mac, nearMAC := macOf(t, hostile), macOf(t, near)
	wire, seen := wires[hostile.name], wires[near.name]
	h4, n4, gateway := hostile.address(ipv4), near.address(ipv4), world.gateway(ctx, t, worker1, ipv4)
	h6, n6, gateway6 := hostile.address(ipv6), near.address(ipv6), world.gateway(ctx, t, worker1, ipv6)
	allNodes, allNodes6 := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, netip.MustParseAddr("ff02::1")
	local := netip.MustParseAddr("fe80::1")
	arp := func(dst net.HardwareAddr, op uint16, sender, target netip.Addr) func([]byte) probe.Frame {
		return func(text []byte) probe.Frame {
			return append(probe.Ethernet(mac, dst, probe.EtherARP, probe.ARP(op, mac, sender, dst, target)), text...)
		}
	}
	icmp6 := func(dst net.HardwareAddr, src, to netip.Addr, message ...byte) func([]byte) probe.Frame {
		return func(text []byte) probe.Frame {
			m := append(append([]byte(nil), message...), ndOption(text)...)
			return probe.Ethernet(mac, dst, probe.EtherIPv6, probe.IP(src, to, 58, 255, m))
		}
	}
	advertised := func(a netip.Addr) []byte {
		m := append([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, a.AsSlice()...)
		return append(append(m, 2, 1), mac...)
	}
	router := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	redirect := append(append([]byte{137, 0, 0, 0, 0, 0, 0, 0}, h6.AsSlice()...), world.pod(ctx, t, "web2").address(ipv6).AsSlice()...)
	udp := func(src, dst netip.AddrPort, to net.HardwareAddr) func([]byte) probe.Frame {
		return func(text []byte) probe.Frame {
			return probe.Ethernet(mac, to, etherType(family4or6(dst.Addr())), probe.UDP(src, dst, text))
		}
	}
	ap := netip.AddrPortFrom
	control := shot{frame(wire, func(text []byte) probe.Frame {
		return probe.Ethernet(mac, nearMAC, probe.EtherIPv4, probe.UDP(ap(h4, 1000), ap(n4, victimPort), text))
	}), seen}
	for _, c := range []struct {
		name string
		make func([]byte) probe.Frame
	}{
		{"announces its gateway's address by ARP", arp(probe.Broadcast, probe.ARPReply, gateway, gateway)},
		{"answers a neighbor for its gateway by ARP", arp(nearMAC, probe.ARPReply, gateway, n4)},
		{"asks by ARP in its gateway's name", arp(probe.Broadcast, probe.ARPRequest, gateway, n4)},
		{"announces another pod's address by ARP", arp(nearMAC, probe.ARPReply, far.address(ipv4), n4)},
		{"advertises its gateway's address by ND", icmp6(allNodes, gateway6, allNodes6, advertised(gateway6)...)},
		{"advertises its gateway's address by ND, in its own name", icmp6(nearMAC, h6, n6, advertised(gateway6)...)},
		{"advertises another pod's address by ND", icmp6(nearMAC, h6, n6, advertised(far.address(ipv6))...)},
		{"advertises itself as a router", icmp6(allNodes, local, allNodes6, router...)},
		{"advertises itself as a router to one neighbor", icmp6(nearMAC, h6, n6, router...)},
		{"redirects a neighbor by ICMPv6", icmp6(nearMAC, gateway6, n6, redirect...)},
		{"redirects a neighbor by ICMPv6, in its own name", icmp6(nearMAC, h6, n6, redirect...)},
		{"redirects a neighbor by ICMP", func(text []byte) probe.Frame {
			m := append([]byte{5, 1, 0, 0}, h4.AsSlice()...)
			return probe.Ethernet(mac, nearMAC, probe.EtherIPv4, probe.IP(gateway, n4, 1, 64, append(m, text...)))
		}},
		{"offers addresses by DHCP", udp(ap(h4, 67), ap(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 68), probe.Broadcast)},
		{"offers addresses by DHCP in its gateway's name", udp(ap(gateway, 67), ap(n4, 68), nearMAC)},
		{"offers addresses by DHCPv6", udp(ap(local, 547), ap(netip.MustParseAddr("ff02::1:2"), 546), net.HardwareAddr{0x33, 0x33, 0, 1, 0, 2})},
	} {
		attacks = append(attacks, attack{hostile.name + " " + c.name, shot{frame(wire, c.make), seen}, control})
	}
	launch(ctx, t, attacks)
}

// ndOption makes a text an option of neighbor discovery that no receiver knows
// (RFC 4861 section 4.6).
func ndOption(text []byte) []byte {
	o := append([]byte{253, 0}, text...)
	o = append(o, make([]byte, (8-len(o)%8)%8)...)
	o[1] = byte(len(o) / 8)
	return o
}

// family4or6 is that of an address.
func family4or6(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}
