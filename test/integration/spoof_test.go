// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// quiet is how long a test waits for what must not arrive.
const quiet = 300 * time.Millisecond

var router = datapath.RouterMAC.HardwareAddr()

// TestSpoofing sends, from pod a, packets in the name of others to a pod on the
// same node, to one on another node and to the node. None may arrive, while the
// same packets in its own name do.
func TestSpoofing(t *testing.T) {
	w := sharedWorld(t)
	other := net.HardwareAddr{0x0a, 0xce, 9, 9, 9, 9}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		stranger := map[lab.Family]netip.Addr{lab.IPv4: netip.MustParseAddr("198.51.100.9"), lab.IPv6: netip.MustParseAddr("2001:db8::9")}[f]
		for _, to := range []struct {
			name string
			host *lab.Host
			dst  netip.Addr
			mac  net.HardwareAddr
		}{
			{"pod on the same node", w.b.Host, w.b.Address(f), w.b.MAC},
			{"pod on another node", w.c.Host, w.c.Address(f), router},
			{"node", w.n1.Host, w.n1.Address(f), router},
		} {
			for _, tc := range []struct {
				name    string
				mac     net.HardwareAddr
				src     netip.Addr
				arrives bool
			}{
				{"in its own name", w.a.MAC, w.a.Address(f), true},
				{"with another's MAC", other, w.a.Address(f), false},
				{"with its neighbor's MAC", w.b.MAC, w.a.Address(f), false},
				{"with its neighbor's address", w.a.MAC, w.d.Address(f), false},
				{"with a stranger's address", w.a.MAC, stranger, false},
				{"with the gateway's address", w.a.MAC, w.n1.Gateway(f), false},
			} {
				packet := probe.UDP(netip.AddrPortFrom(tc.src, 1000), netip.AddrPortFrom(to.dst, 8090), []byte(tc.name))
				err := deliver(t, w.a.Host, to.host, netip.AddrPortFrom(to.dst, 8090), probe.Ethernet(tc.mac, to.mac, etherType[f], packet))
				if (err == nil) != tc.arrives {
					t.Errorf("%s to %s: arrived %t, want %t (%v)", tc.name, to.name, err == nil, tc.arrives, err)
				}
			}
		}
		// Whatever a has done, others and a itself go on.
		reach(t, w, true, f)
	})
}

var etherType = map[lab.Family]uint16{lab.IPv4: probe.EtherIPv4, lab.IPv6: probe.EtherIPv6}

// deliver sends a frame with a datagram from one host and returns nil if the
// datagram comes out of a socket of another host.
func deliver(t *testing.T, from, to *lab.Host, at netip.AddrPort, frame probe.Frame) error {
	t.Helper()
	var socket *net.UDPConn
	err := to.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := wire(t, from).Send(frame); err != nil {
		t.Fatal(err)
	}
	_ = socket.SetReadDeadline(time.Now().Add(quiet))
	_, err = socket.Read(make([]byte, 100))
	return err
}

// TestHostIsDeaf sends to the host by ways other than the gateway: to the MAC of the host's end of
// the pod's wire, and to broadcast. The kernel listens there beside the userspace datapath, and
// must not take it.
func TestHostIsDeaf(t *testing.T) {
	w := sharedWorld(t)
	own := podnet.HostMAC(intent.MAC(w.a.MAC)).HardwareAddr()
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for name, mac := range map[string]net.HardwareAddr{"host's end": own, "broadcast": probe.Broadcast} {
			for target, to := range map[*lab.Host]netip.Addr{w.n1.Host: w.n1.Address(f), w.c.Host: w.c.Address(f), w.Outside: lab.Internet(f)} {
				at := netip.AddrPortFrom(to, 8091)
				packet := probe.UDP(netip.AddrPortFrom(w.a.Address(f), 1000), at, []byte(name))
				if err := deliver(t, w.a.Host, target, at, probe.Ethernet(w.a.MAC, mac, etherType[f], packet)); err == nil {
					t.Errorf("a datagram to the MAC of %s arrived on %s", name, target.Name)
				}
			}
		}
	})
}

// TestNeighborSpoofing claims, from pod a, the addresses of others by ARP and ND. No pod may
// receive that, and no packets may be misdirected.
func TestNeighborSpoofing(t *testing.T) {
	w := sharedWorld(t)
	a := wire(t, w.a.Host)
	victims := map[string]*probe.Wire{"b": wire(t, w.b.Host), "d": wire(t, w.d.Host), "c": wire(t, w.c.Host)}
	allNodes := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	b4, d4, d6 := w.b.Address(lab.IPv4), w.d.Address(lab.IPv4), w.d.Address(lab.IPv6)
	for name, frame := range map[string]probe.Frame{
		"gratuitous ARP for d":   probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherARP, probe.ARP(probe.ARPReply, w.a.MAC, d4, probe.Broadcast, d4)),
		"ARP reply to b for d":   probe.Ethernet(w.a.MAC, w.b.MAC, probe.EtherARP, probe.ARP(probe.ARPReply, w.a.MAC, d4, w.b.MAC, b4)),
		"ARP request as gateway": probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherARP, probe.ARP(probe.ARPRequest, w.a.MAC, w.n1.Gateway(lab.IPv4), make([]byte, 6), b4)),
		"ARP with d's MAC":       probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherARP, probe.ARP(probe.ARPRequest, w.d.MAC, w.a.Address(lab.IPv4), make([]byte, 6), b4)),
		"advertisement for d": probe.Ethernet(w.a.MAC, allNodes, probe.EtherIPv6,
			probe.Neighbour(probe.NeighbourAdvertisement, d6, netip.MustParseAddr("ff02::1"), d6, w.a.MAC)),
		"advertisement to b for d": probe.Ethernet(w.a.MAC, w.b.MAC, probe.EtherIPv6,
			probe.Neighbour(probe.NeighbourAdvertisement, w.a.Address(lab.IPv6), w.b.Address(lab.IPv6), d6, w.a.MAC)),
		"router advertisement": probe.Ethernet(w.a.MAC, allNodes, probe.EtherIPv6,
			probe.IP(w.a.Address(lab.IPv6), netip.MustParseAddr("ff02::1"), 58, 255, []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0})),
	} {
		if err := a.Send(frame); err != nil {
			t.Fatal(err)
		}
		for victim, heard := range victims {
			err := heard.Quiet(quiet/3, func(f probe.Frame) bool { return bytes.Equal(f.Payload(), frame.Payload()) })
			if err != nil {
				t.Errorf("%s: %s heard it: %v", name, victim, err)
			}
		}
	}
	for f := range lab.Dual.Each {
		for _, p := range []path{
			{"b to d", w.b.Host, w.d.Host, w.d.Address, w.b.Address},
			{"node to d", w.n1.Host, w.d.Host, w.d.Address, w.n1.Gateway},
			{"c to d", w.c.Host, w.d.Host, w.d.Address, w.c.Address},
		} {
			if err := probePath(t.Context(), p, f); err != nil {
				t.Errorf("afterwards, %s %s: %v", f, p.name, err)
			}
		}
	}
}

// TestResponders asks by ARP and ND from a pod: local pods have their own MAC,
// the gateway that of the virtual router, and only the asker hears the answer.
func TestResponders(t *testing.T) {
	w := sharedWorld(t)
	a, d := wire(t, w.a.Host), wire(t, w.d.Host)
	for _, tc := range []struct {
		name   string
		target func(lab.Family) netip.Addr
		mac    net.HardwareAddr
	}{{"a pod of the node", w.b.Address, w.b.MAC}, {"the gateway", w.n1.Gateway, router}} {
		v4, v6 := tc.target(lab.IPv4), tc.target(lab.IPv6)
		solicited := solicitedNode(v6)
		multicast := append(net.HardwareAddr{0x33, 0x33}, solicited.AsSlice()[12:]...)
		for name, ask := range map[string]probe.Frame{
			"ARP": probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherARP,
				probe.ARP(probe.ARPRequest, w.a.MAC, w.a.Address(lab.IPv4), make([]byte, 6), v4)),
			"ND": probe.Ethernet(w.a.MAC, multicast, probe.EtherIPv6,
				probe.Neighbour(probe.NeighbourSolicitation, w.a.Address(lab.IPv6), solicited, v6, w.a.MAC)),
		} {
			if err := a.Send(ask); err != nil {
				t.Fatal(err)
			}
			answer := func(f probe.Frame) bool { return isAnswer(f, tc.mac, v4, v6, name) && bytes.Equal(f.Dst(), w.a.MAC) }
			if _, err := a.Wait(t.Context(), answer); err != nil {
				t.Errorf("%s for %s: %v", name, tc.name, err)
			}
		}
	}
	if err := d.Quiet(quiet, func(f probe.Frame) bool { return bytes.Equal(f.Src(), w.a.MAC) }); err != nil {
		t.Errorf("a third pod: %v", err)
	}
}

// isAnswer says whether a frame is an ARP reply or a neighbor advertisement
// that gives mac for the target.
func isAnswer(f probe.Frame, mac net.HardwareAddr, v4, v6 netip.Addr, kind string) bool {
	p := f.Payload()
	if kind == "ARP" {
		sender, _ := f.IPs()
		return f.Type() == probe.EtherARP && p[7] == probe.ARPReply && sender == v4 && bytes.Equal(p[8:14], mac)
	}
	if f.Type() != probe.EtherIPv6 || len(p) < 72 || p[40] != probe.NeighbourAdvertisement {
		return false
	}
	target, _ := netip.AddrFromSlice(p[48:64])
	return target == v6 && bytes.Equal(p[66:72], mac)
}

// solicitedNode is the multicast address that ND asks at (RFC 4291, 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b, low := [16]byte{0xff, 0x02, 11: 1, 12: 0xff}, a.As16()
	copy(b[13:], low[13:])
	return netip.AddrFrom16(b)
}
