// SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

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
