// SPDX-License-Identifier: Apache-2.0

// Package packet builds and parses the few packets that Coelan itself sends or inspects: Ethernet,
// ARP, IPv4, IPv6, ICMP and UDP. It accepts truncated packets, and parses without copying.
package packet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Types of Ethernet frames.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeVLAN = 0x8100
	TypeIPv6 = 0x86dd
)

// Protocols above IP.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Lengths of headers.
const (
	EthernetLen = 14
	IPv4Len     = 20 // without options
	IPv6Len     = 40
	vlanLen     = 4
	udpLen      = 8
)

var be = binary.BigEndian

// Ethernet puts a header in front of a payload. An address that is nil is zero.
func Ethernet(dst, src net.HardwareAddr, typ uint16, payload []byte) []byte {
	b := make([]byte, EthernetLen, EthernetLen+len(payload))
	copy(b[:6], dst)
	copy(b[6:12], src)
	be.PutUint16(b[12:], typ)
	return append(b, payload...)
}

// IP is an IP packet with a complete header. What follows may be truncated.
type IP []byte

// Parse takes the IP packet out of an Ethernet frame, which may have a VLAN's tag; false
// if it holds none.
func Parse(frame []byte) (IP, bool) {
	if len(frame) < EthernetLen {
		return nil, false
	}
	typ, b := be.Uint16(frame[12:]), frame[EthernetLen:]
	if typ == TypeVLAN && len(b) >= vlanLen {
		typ, b = be.Uint16(b[2:]), b[vlanLen:]
	}
	switch p := IP(b); {
	case typ == TypeIPv4 && len(b) >= IPv4Len && b[0]>>4 == 4 && p.HeaderLen() >= IPv4Len:
		return p, true
	case typ == TypeIPv6 && len(b) >= IPv6Len && b[0]>>4 == 6:
		return p, true
	}
	return nil, false
}

// Whole is the packet without what an Ethernet frame has been filled up with; false if the packet
// has been cut.
func (p IP) Whole() (IP, bool) {
	total := IPv6Len + int(be.Uint16(p[4:]))
	if !p.Is6() {
		total = int(be.Uint16(p[2:]))
	}
	if total < p.HeaderLen() || len(p) < total {
		return nil, false
	}
	return p[:total], true
}

// Is6 reports whether it is of IPv6.
func (p IP) Is6() bool { return p[0]>>4 == 6 }

// Type is the packet's type in an Ethernet frame.
func (p IP) Type() uint16 {
	if p.Is6() {
		return TypeIPv6
	}
	return TypeIPv4
}

// HeaderLen is the length of the header, with IPv4's options and without IPv6's extension headers.
func (p IP) HeaderLen() int {
	if p.Is6() {
		return IPv6Len
	}
	return 4 * int(p[0]&0xf)
}

// Source is where the packet says that it comes from.
func (p IP) Source() netip.Addr {
	if p.Is6() {
		return netip.AddrFrom16([16]byte(p[8:]))
	}
	return netip.AddrFrom4([4]byte(p[12:]))
}

// Destination is where it goes.
func (p IP) Destination() netip.Addr {
	if p.Is6() {
		return netip.AddrFrom16([16]byte(p[24:]))
	}
	return netip.AddrFrom4([4]byte(p[16:]))
}

// offsetMask is that of the place of an IPv4 fragment.
const offsetMask = 1<<13 - 1

// fragment is IPv6's header of fragments; extensions are all that may be in front of
// what is above IP.
const fragment = 44

var extensions = []uint8{0, 43, fragment, 60}

// Transport finds the protocol above IP and where it begins, which may be behind the end of a
// packet that has been cut; false in fragments other than the first.
func (p IP) Transport() (protocol uint8, at int, first bool) {
	if !p.Is6() {
		return p[9], p.HeaderLen(), be.Uint16(p[6:])&offsetMask == 0
	}
	protocol, at = p[6], IPv6Len
	for slices.Contains(extensions, protocol) && len(p) >= at+8 {
		length := 8
		switch {
		case protocol != fragment:
			length += 8 * int(p[at+1])
		case be.Uint16(p[at+2:])&^7 != 0:
			return p[at], at + 8, false
		}
		protocol, at = p[at], at+length
	}
	return protocol, at, true
}

// Ports are those of TCP, UDP or SCTP; false if the packet has none, or not here.
func (p IP) Ports() (source, destination uint16, ok bool) {
	protocol, at, first := p.Transport()
	if protocol != TCP && protocol != UDP && protocol != SCTP || !first || len(p) < at+4 {
		return 0, 0, false
	}
	return be.Uint16(p[at:]), be.Uint16(p[at+2:]), true
}

// Checksum is the Internet's (RFC 1071) of data, beginning with a sum such as that of PseudoHeader.
func Checksum(sum uint32, data []byte) uint16 {
	for ; len(data) >= 2; data = data[2:] {
		sum += uint32(be.Uint16(data))
	}
	if len(data) == 1 {
		sum += uint32(data[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum) //nolint:gosec // folded to 16 bits
}

// PseudoHeader is the sum of what the checksums of protocols above IP also cover (RFC 768, RFC
// 8200, section 8.1).
func PseudoHeader(src, dst netip.Addr, protocol uint8, length int) uint32 {
	sum := uint32(protocol) + uint32(length) //nolint:gosec // of a packet
	for _, a := range [2]netip.Addr{src, dst} {
		for b := a.AsSlice(); len(b) > 0; b = b[2:] {
			sum += uint32(be.Uint16(b))
		}
	}
	return sum
}

// SumHeader writes the checksum of IPv4's header.
func (p IP) SumHeader() {
	p[10], p[11] = 0, 0
	be.PutUint16(p[10:], Checksum(0, p[:p.HeaderLen()]))
}
