// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"net/netip"
)

// VXLAN is the content of a UDP datagram that carries a frame for a VNI (RFC 7348 section 5).
func VXLAN(vni uint32, inner Frame) []byte {
	header := binary.BigEndian.AppendUint32(nil, 0x08<<24)
	return append(binary.BigEndian.AppendUint32(header, vni<<8), inner...)
}

// Geneve is the content of a UDP datagram that carries a frame for a VNI, without options (RFC 8926
// section 3.4).
func Geneve(vni uint32, inner Frame) []byte {
	header := binary.BigEndian.AppendUint32(nil, 0x6558)
	return append(binary.BigEndian.AppendUint32(header, vni<<8), inner...)
}

// GRE is the content of an IP packet of protocol 47 that carries an IP packet (RFC 2784).
func GRE(inner []byte) []byte {
	etherType := uint16(EtherIPv4)
	if inner[0]>>4 == 6 {
		etherType = EtherIPv6
	}
	return append(binary.BigEndian.AppendUint16([]byte{0, 0}, etherType), inner...)
}

// WithOptions adds options to an IPv4 packet without any (RFC 791 section 3.1), or to an IPv6
// packet an extension header of the type with the options (RFC 8200 section 4). IPv4 wants a
// multiple of four bytes, IPv6 a multiple of eight plus six.
func WithOptions(packet []byte, extension uint8, options []byte) []byte {
	if packet[0]>>4 == 4 {
		p := append(append([]byte(nil), packet[:20]...), options...)
		p = append(p, packet[20:]...)
		p[0] += byte(len(options) / 4)
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		return headerChecksum(p)
	}
	p := append([]byte(nil), packet[:40]...)
	p = append(p, p[6], byte((len(options)+2)/8-1))
	p = append(append(p, options...), packet[40:]...)
	p[6] = extension
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
	return p
}

// Fragments cuts an IP packet into two (RFC 791 section 3.2, RFC 8200 section 4.5): the first has
// the given number of bytes of content, a multiple of eight, and the second begins so many bytes
// earlier than the first ends: fragments that overlap are not what senders make.
func Fragments(packet []byte, id uint16, size, overlap int) [][]byte {
	header := 20
	if packet[0]>>4 == 6 {
		header = 40
	}
	content := packet[header:]
	piece := func(from, to int, more bool) []byte {
		if header == 20 {
			p := append(append([]byte(nil), packet[:20]...), content[from:to]...)
			binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
			binary.BigEndian.PutUint16(p[4:], id)
			offset := uint16(from / 8)
			if more {
				offset |= 0x2000
			}
			binary.BigEndian.PutUint16(p[6:], offset)
			return headerChecksum(p)
		}
		offset := uint16(from)
		if more {
			offset |= 1
		}
		p := append([]byte(nil), packet[:40]...)
		p = binary.BigEndian.AppendUint16(append(p, p[6], 0), offset)
		p = append(binary.BigEndian.AppendUint32(p, uint32(id)), content[from:to]...)
		p[6] = 44
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
		return p
	}
	return [][]byte{piece(0, size, true), piece(size-overlap, len(content), false)}
}

// headerChecksum fills in that of an IPv4 packet's header.
func headerChecksum(p []byte) []byte {
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], checksum(p[:int(p[0]&0xf)*4]))
	return p
}

// TCPSegment makes an IP packet with a TCP segment of these flags (RFC 9293 section 3.1).
func TCPSegment(src, dst netip.AddrPort, flags uint8, data []byte) []byte {
	m := binary.BigEndian.AppendUint16(nil, src.Port())
	m = binary.BigEndian.AppendUint16(m, dst.Port())
	m = append(m, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	return IP(src.Addr(), dst.Addr(), 6, 64, append(m, data...))
}
