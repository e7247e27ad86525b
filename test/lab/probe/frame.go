// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Ethernet types.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherIPv6 = 0x86dd
)

// Broadcast is the Ethernet broadcast address.
var Broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Frame is an Ethernet frame.
type Frame []byte

// Dst is the receiver's MAC.
func (f Frame) Dst() net.HardwareAddr { return net.HardwareAddr(f[0:6]) }

// Src is the sender's MAC.
func (f Frame) Src() net.HardwareAddr { return net.HardwareAddr(f[6:12]) }

// Type is the Ethernet type.
func (f Frame) Type() uint16 { return binary.BigEndian.Uint16(f[12:]) }

// Payload is what follows the Ethernet header.
func (f Frame) Payload() []byte { return f[14:] }

// IPs are source and destination of an IPv4 or IPv6 packet, the sender's and
// the target's protocol address of an ARP message; invalid for other frames.
func (f Frame) IPs() (src, dst netip.Addr) {
	p := f.Payload()
	at := map[uint16][3]int{EtherIPv4: {12, 16, 4}, EtherIPv6: {8, 24, 16}, EtherARP: {14, 24, 4}}[f.Type()]
	if at[2] == 0 || len(p) < at[1]+at[2] {
		return src, dst
	}
	src, _ = netip.AddrFromSlice(p[at[0] : at[0]+at[2]])
	dst, _ = netip.AddrFromSlice(p[at[1] : at[1]+at[2]])
	return src, dst
}

// Ethernet makes a frame.
func Ethernet(src, dst net.HardwareAddr, etherType uint16, payload []byte) Frame {
	f := append(append(Frame{}, dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, etherType), payload...)
}

// Operations of ARP (RFC 826).
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP makes an ARP message of a sender about a target.
func ARP(op uint16, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr,
	target netip.Addr,
) []byte {
	p := []byte{0, 1, 8, 0, 6, 4}
	p = binary.BigEndian.AppendUint16(p, op)
	p = append(append(p, senderMAC...), sender.AsSlice()...)
	return append(append(p, targetMAC...), target.AsSlice()...)
}

// Neighbour discovery messages (RFC 4861).
const (
	NeighbourSolicitation  = 135
	NeighbourAdvertisement = 136
)

// Neighbour makes an IPv6 packet with a solicitation of, or an advertisement
// for, a target; mac is that of its link-layer option.
func Neighbour(typ uint8, src, dst, target netip.Addr, mac net.HardwareAddr) []byte {
	option, flags := byte(1), byte(0) // source link-layer address
	if typ == NeighbourAdvertisement {
		option, flags = 2, 0x60 // target link-layer address; solicited, override
	}
	m := append([]byte{typ, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	m = append(append(m, option, 1), mac...)
	return IP(src, dst, 58, 255, m)
}

// UDP makes an IP packet with a UDP datagram.
func UDP(src, dst netip.AddrPort, data []byte) []byte {
	u := binary.BigEndian.AppendUint16(nil, src.Port())
	u = binary.BigEndian.AppendUint16(u, dst.Port())
	u = binary.BigEndian.AppendUint16(u, uint16(8+len(data)))
	return IP(src.Addr(), dst.Addr(), 17, 64, append(append(u, 0, 0), data...))
}

// IP makes an IPv4 or IPv6 packet of a TCP, UDP, ICMP or ICMPv6 message and fills in
// the checksums.
func IP(src, dst netip.Addr, protocol, ttl uint8, m []byte) []byte {
	if protocol == 1 {
		binary.BigEndian.PutUint16(m[2:], checksum(m))
	}
	if at, ok := map[uint8]int{6: 16, 17: 6, 58: 2}[protocol]; ok {
		pseudo := append(src.AsSlice(), dst.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(m)))
		pseudo = append(pseudo, 0, 0, 0, protocol)
		binary.BigEndian.PutUint16(m[at:], checksum(append(pseudo, m...)))
	}
	if src.Is6() {
		h := []byte{0x60, 0, 0, 0, byte(len(m) >> 8), byte(len(m)), protocol, ttl}
		return append(append(append(h, src.AsSlice()...), dst.AsSlice()...), m...)
	}
	h := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, ttl, protocol, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(m)))
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, m...)
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
