// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// Outcome is what became of a request.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered" // with what was asked for
	Refused  Outcome = "refused"  // the machine is told that an address is not its own
	Released Outcome = "released" // the machine does not use its address any more
	Declined Outcome = "declined" // the machine says that another one uses its address
	Ignored  Outcome = "ignored"  // malformed, relayed, for another server, or of no use
)

// Protocol is what a request is of.
type Protocol string

// The protocols.
const (
	DHCPv4    Protocol = "dhcp"
	DHCPv6    Protocol = "dhcpv6"
	Discovery Protocol = "router-solicitation"
)

// Answer is what a request comes to.
type Answer struct {
	Protocol Protocol
	Outcome  Outcome
	Frame    []byte // goes to the machine; nil: nothing does
	// Given are the addresses that the machine may use from now on, all of the protocol's family;
	// none: nothing has changed, unless it was Released.
	Given []netip.Addr
	// HostName is what a machine that was given addresses calls itself; empty: it does not say.
	HostName string
}

// Ports of UDP.
const (
	serverPort  = 67
	clientPort  = 68
	serverPort6 = 547
	clientPort6 = 546
)

// The lengths of headers of UDP and ICMPv6.
const (
	udpLen    = 8
	icmpv6Len = 8
)

// hopLimit is that of answers by UDP.
const hopLimit = 64

// Handle answers a frame that the machine of a Port has sent.
func Handle(frame []byte, l Lease) Answer {
	p, ok := packet.Parse(frame)
	if ok {
		p, ok = p.Whole()
	}
	if !ok {
		return Answer{Protocol: DHCPv4, Outcome: Ignored}
	}
	protocol, at, first := p.Transport()
	switch {
	case p.Is6() && protocol == packet.ICMPv6:
		return solicited(p, l)
	case protocol != packet.UDP || !first || fragmented(p):
		return Answer{Protocol: udpProtocol(p), Outcome: Ignored}
	}
	payload, ok := datagram(p[min(at, len(p)):])
	switch {
	case !ok:
		return Answer{Protocol: udpProtocol(p), Outcome: Ignored}
	case p.Is6():
		return answer6(payload, p.Source(), l)
	}
	return answer4(payload, l)
}

func udpProtocol(p packet.IP) Protocol {
	if p.Is6() {
		return DHCPv6
	}
	return DHCPv4
}

// fragmented says whether more fragments of an IPv4 packet follow.
func fragmented(p packet.IP) bool {
	const moreFragments = 1 << 13
	return !p.Is6() && binary.BigEndian.Uint16(p[6:])&moreFragments != 0
}

// datagram is the payload of a datagram. Its checksum is not looked at: machines leave it to their
// network card, and on the userspace datapath nothing has completed it yet.
func datagram(b []byte) ([]byte, bool) {
	if len(b) < udpLen {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < udpLen || length > len(b) {
		return nil, false
	}
	return b[udpLen:length], true
}

// send is a frame from the virtual router to the machine.
func (l Lease) send(src, dst netip.AddrPort, payload []byte) []byte {
	header := packet.Header{
		Source: src.Addr(), Destination: dst.Addr(), Protocol: packet.UDP, HopLimit: hopLimit,
	}
	p := header.Packet(packet.UDPFrom(src, dst, payload))
	mac := l.MAC.HardwareAddr()
	if dst.Addr() == broadcast {
		mac = packet.Broadcast
	}
	return packet.Ethernet(mac, l.Router.HardwareAddr(), p.Type(), p)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// routesOf are the routes of a subnet's interfaces beside the default route.
func (l Lease) routesOf(s intent.NetworkSubnet) (list []intent.Route) {
	for _, r := range l.Routes {
		if s.Prefix.Contains(r.NextHop) {
			list = append(list, r)
		}
	}
	return list
}
