// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// testLeased sends messages of DHCP by a Port on a Network where servers of the data center give
// the addresses, and by the wire; and has a Port that has lost its lease send anything.
func (s *simulation) testLeased(t *rapid.T, ends map[string]int) {
	var leased []intent.Port
	for _, p := range s.ports {
		if s.network(p.Network).Leased {
			leased = append(leased, p.Port)
		}
	}
	leased = append(leased, s.lost...)
	if len(leased) == 0 {
		return
	}
	p := rapid.SampledFrom(leased).Draw(t, "on DHCP")
	asked := map[bool]string{true: DHCPUserdata, false: ""}[p.IsMachine()]
	own := netip.IPv4Unspecified()
	if len(p.Addresses) > 0 && rapid.Bool().Draw(t, "renews") {
		own = p.Addresses[0]
	}
	q := packet{
		kind: "udp", port: dhcpServer, inPort: ofPort(p.ID), ethSrc: p.MAC, ethDst: intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, src: own, dst: allBroadcast, ttl: 64,
	}
	if got := s.traced(t, p.Node, q); got.Asked != asked || got.Drop != (asked == "") {
		t.Fatalf("%s asks DHCP servers: %+v", p.Name(), got)
	}
	ends["question "+map[bool]string{true: "agent", false: "dropped"}[p.IsMachine()]]++
	q.ethSrc[5] ^= 1
	if got := s.traced(t, p.Node, q); !got.Drop {
		t.Fatalf("%s asks DHCP servers by the MAC of another: %+v", p.Name(), got)
	}
	q.ethSrc, q.port = p.MAC, dhcpClient
	if got := s.traced(t, p.Node, q); !got.Drop {
		t.Fatalf("%s answers as a DHCP server: %+v", p.Name(), got)
	}
	ends["answer of a port dropped"]++
	n := s.network(p.Network)
	fromWire := packet{
		kind: "udp", port: dhcpClient, inPort: vlanUplink, vlan: n.VLAN, ethSrc: datapath.GatewayMAC, ethDst: p.MAC,
		src: leasedAddress(n.Name, 1), dst: leasedAddress(n.Name, lostLease), ttl: 64,
	}
	if n.VLAN == 0 {
		fromWire.inPort = flatUplink
	}
	answered, end := LeaseUserdata, "answer agent"
	if n.Relay.Enabled {
		answered, end = "", "answer of another server dropped"
	}
	if got := s.traced(t, p.Node, fromWire); got.Asked != answered || got.Drop != (answered == "") {
		t.Fatalf("a DHCP server answers %s: %+v", p.Name(), got)
	}
	ends[end]++
	if len(p.Addresses) > 0 {
		return
	}
	q = packet{
		kind: "ip", inPort: ofPort(p.ID), ethSrc: p.MAC, ethDst: datapath.RouterMAC, src: leasedAddress(n.Name, lostLease),
		dst: rapid.SampledFrom(s.clusterWorld.addresses()).Draw(t, "to"), ttl: 64,
	}
	if q.dst.Is4() {
		if got := s.traced(t, p.Node, q); !got.Drop {
			t.Fatalf("%s, which has no lease, sends to %s: %+v", p.Name(), q.dst, got)
		}
		ends["lost dropped"]++
	}
}

// traced is what a node does with one packet.
func (s *simulation) traced(t *rapid.T, node string, p packet) outcome {
	i := slices.IndexFunc(s.nodes, func(n intent.Node) bool { return n.Name == node })
	o, text, err := s.tracers[i].trace(s.ctx, p)
	if err != nil {
		t.Fatalf("%s: %v\n%s", traceFlow(p), err, text)
	}
	return o
}
