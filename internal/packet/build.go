// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
)

// Header is that of an IP packet to be made, of the family of its addresses.
type Header struct {
	Source, Destination netip.Addr
	Protocol            uint8
	// TrafficClass is IPv4's type of service, too.
	TrafficClass uint8
	HopLimit     uint8
	// DontFragment is of IPv4.
	DontFragment bool
}

// Packet is an IP packet with the header.
func (h Header) Packet(payload []byte) IP {
	if h.Source.Is4() {
		return h.packet4(payload)
	}
	b := make(IP, IPv6Len, IPv6Len+len(payload))
	b[0], b[1] = 0x60|h.TrafficClass>>4, h.TrafficClass<<4
	be.PutUint16(b[4:], uint16(len(payload))) //nolint:gosec // of a packet
	b[6], b[7] = h.Protocol, h.HopLimit
	copy(b[8:], h.Source.AsSlice())
	copy(b[24:], h.Destination.AsSlice())
	return append(b, payload...)
}

func (h Header) packet4(payload []byte) IP {
	const dontFragment = 1 << 6
	b := make(IP, IPv4Len, IPv4Len+len(payload))
	b[0], b[1] = 0x45, h.TrafficClass
	be.PutUint16(b[2:], uint16(cap(b))) //nolint:gosec // of a packet
	if h.DontFragment {
		b[6] = dontFragment
	}
	b[8], b[9] = h.HopLimit, h.Protocol
	copy(b[12:], h.Source.AsSlice())
	copy(b[16:], h.Destination.AsSlice())
	b.SumHeader()
	return append(b, payload...)
}

// UDPFrom is an UDP datagram, to be put into an IP packet.
func UDPFrom(src, dst netip.AddrPort, payload []byte) []byte {
	b := make([]byte, udpLen, udpLen+len(payload))
	be.PutUint16(b, src.Port())
	be.PutUint16(b[2:], dst.Port())
	be.PutUint16(b[4:], uint16(cap(b))) //nolint:gosec // of a packet
	b = append(b, payload...)
	sum := Checksum(PseudoHeader(src.Addr(), dst.Addr(), UDP, len(b)), b)
	if sum == 0 {
		sum = 0xffff // 0 says that there is none (RFC 768)
	}
	be.PutUint16(b[6:], sum)
	return b
}

// ICMPv4 is a message of ICMP: type, code, the four bytes that depend on these, and the rest.
func ICMPv4(typ, code uint8, rest uint32, body []byte) []byte {
	b := message(typ, code, rest, body)
	be.PutUint16(b[2:], Checksum(0, b))
	return b
}

// ICMPv6From is a message of ICMPv6 between two addresses, which its checksum covers.
func ICMPv6From(src, dst netip.Addr, typ, code uint8, rest uint32, body []byte) []byte {
	b := message(typ, code, rest, body)
	be.PutUint16(b[2:], Checksum(PseudoHeader(src, dst, ICMPv6, len(b)), b))
	return b
}

func message(typ, code uint8, rest uint32, body []byte) []byte {
	b := make([]byte, 8, 8+len(body))
	b[0], b[1] = typ, code
	be.PutUint32(b[4:], rest)
	return append(b, body...)
}

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is a message for IPv4 over Ethernet (RFC 826). A MAC that is nil is zero.
func ARP(operation uint16, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr,
	target netip.Addr,
) []byte {
	b := make([]byte, 28)
	be.PutUint16(b, 1) // Ethernet
	be.PutUint16(b[2:], TypeIPv4)
	b[4], b[5] = 6, 4
	be.PutUint16(b[6:], operation)
	copy(b[8:14], senderMAC)
	copy(b[14:18], sender.AsSlice())
	copy(b[18:24], targetMAC)
	copy(b[24:28], target.AsSlice())
	return b
}

// Flags of neighbor advertisements.
const (
	FromRouter = 1 << 31
	Override   = 1 << 29
)

// NeighbourAdvertisement is a packet that says that an address has a MAC (RFC 4861, section 4.4).
func NeighbourAdvertisement(src, dst netip.Addr, flags uint32, target netip.Addr, mac net.HardwareAddr) IP {
	const (
		typ          = 136
		targetOption = 2
	)
	body := append(target.AsSlice(), targetOption, 1)
	m := ICMPv6From(src, dst, typ, 0, flags, append(body, mac...))
	return Header{Source: src, Destination: dst, Protocol: ICMPv6, HopLimit: 255}.Packet(m)
}
