// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/packet"
)

// Flags and offset of IPv4's fragments.
const (
	dontFragment  = 1 << 14
	moreFragments = 1 << 13
	offsetMask    = 1<<13 - 1
)

// ICMP's types and codes.
const (
	icmpUnreachable      = 3
	icmpFragNeeded       = 4
	icmp6PacketTooBig    = 2
	icmp6FirstInquiry    = 128 // types below are errors
	errorHopLimit        = 64
	icmpLen              = 8    // of an error
	ipv4ErrorLen         = 576  // the longest error (RFC 1812, section 4.3.2.3)
	ipv6ErrorLen         = 1280 // the same (RFC 4443, section 2.4)
	optionEnd, optionNop = 0, 1
	optionCopied         = 0x80
)

var be = binary.BigEndian

// parse takes the packet out of an Ethernet frame without a tag; false if that does not
// hold a whole one.
func parse(frame []byte) (packet.IP, bool) {
	p, ok := packet.Parse(frame)
	if !ok || len(frame)-len(p) != packet.EthernetLen {
		return nil, false
	}
	return p.Whole()
}

// mayFragment says whether a router may make fragments of the packet.
func mayFragment(p packet.IP) bool { return !p.Is6() && be.Uint16(p[6:])&dontFragment == 0 }

// asSent is the packet with the addresses and ports that its sender has written.
func asSent(p packet.IP, source netip.Addr, destination netip.AddrPort, sourcePort uint16) packet.IP {
	p = slices.Clone(p)
	srcAt, dstAt := 12, 16
	if p.Is6() {
		srcAt, dstAt = 8, 24
	}
	if source.Is6() == p.Is6() {
		copy(p[srcAt:], source.AsSlice())
	}
	if !destination.IsValid() || destination.Addr().Is6() != p.Is6() {
		return p
	}
	copy(p[dstAt:], destination.Addr().AsSlice())
	protocol, at, first := p.Transport()
	ports := protocol == packet.TCP || protocol == packet.UDP || protocol == packet.SCTP
	if !ports || !first || len(p) < at+4 {
		return p
	}
	if sourcePort != 0 {
		be.PutUint16(p[at:], sourcePort)
	}
	be.PutUint16(p[at+2:], destination.Port())
	return p
}

// tooBig is the packet that tells the sender how much fits; false if none may be sent (RFC 1122,
// section 3.2.2, and RFC 4443, section 2.4).
func tooBig(p packet.IP, router netip.Addr, mtu int) ([]byte, bool) {
	if !p.Source().IsGlobalUnicast() || router.Is6() != p.Is6() {
		return nil, false
	}
	protocol, at, first := p.Transport()
	if p.Is6() {
		isError := protocol == packet.ICMPv6 && first && (len(p) <= at || p[at] < icmp6FirstInquiry)
		if isError {
			return nil, false
		}
		return tooBig6(p, router, mtu), true
	}
	isError := protocol == packet.ICMP && (len(p) <= at || !inquiries[p[at]])
	if !first || isError || !p.Destination().IsGlobalUnicast() {
		return nil, false
	}
	return tooBig4(p, router, mtu), true
}

// inquiries are the types of ICMP that are no errors: echo, timestamps, and what is obsolete.
var inquiries = map[uint8]bool{0: true, 8: true, 9: true, 10: true, 13: true, 14: true, 15: true, 16: true, 17: true,
	18: true}

func tooBig4(p packet.IP, router netip.Addr, mtu int) []byte {
	quoted := slices.Clone(p[:min(len(p), ipv4ErrorLen-packet.IPv4Len-icmpLen)])
	quoted.SumHeader()
	header := packet.Header{
		Source: router, Destination: p.Source(), Protocol: packet.ICMP, HopLimit: errorHopLimit,
		TrafficClass: 0xc0, // internetwork control (RFC 1812, section 4.3.2.5)
	}
	return header.Packet(packet.ICMPv4(icmpUnreachable, icmpFragNeeded, uint32(mtu), quoted)) //nolint:gosec // not negative
}

func tooBig6(p packet.IP, router netip.Addr, mtu int) []byte {
	quoted := p[:min(len(p), ipv6ErrorLen-packet.IPv6Len-icmpLen)]
	message := packet.ICMPv6From(router, p.Source(), icmp6PacketTooBig, 0, uint32(mtu), quoted) //nolint:gosec // not negative
	return packet.Header{Source: router, Destination: p.Source(), Protocol: packet.ICMPv6,
		HopLimit: errorHopLimit}.Packet(message)
}

// fragments are the packet in pieces of at most mtu bytes; none if it cannot be cut.
func fragments(p packet.IP, mtu int) (list [][]byte) {
	header, data := p[:p.HeaderLen()], p[p.HeaderLen():]
	flags := be.Uint16(p[6:])
	offset := int(flags & offsetMask)
	for len(data) > 0 {
		size := (mtu - len(header)) &^ 7
		if size <= 0 {
			return nil
		}
		last := len(data) <= mtu-len(header)
		if last {
			size = len(data)
		}
		if offset > offsetMask {
			return nil
		}
		piece := append(slices.Clone(header), data[:size]...)
		be.PutUint16(piece[2:], uint16(len(piece)))
		field := uint16(offset)
		if !last || flags&moreFragments != 0 {
			field |= moreFragments
		}
		be.PutUint16(piece[6:], field)
		piece.SumHeader()
		list = append(list, piece)
		header = copied(header)
		offset, data = offset+size/8, data[size:]
	}
	return list
}

// copied is an IPv4 header with the options alone that later fragments have, too (RFC 791, section
// 3.1).
func copied(p packet.IP) packet.IP {
	header := slices.Clone(p[:packet.IPv4Len])
	for options := p[packet.IPv4Len:]; len(options) > 0 && options[0] != optionEnd; {
		length := 1
		if options[0] != optionNop {
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				break
			}
			length = int(options[1])
		}
		if options[0]&optionCopied != 0 {
			header = append(header, options[:length]...)
		}
		options = options[length:]
	}
	for len(header)%4 != 0 {
		header = append(header, optionEnd)
	}
	header[0] = 0x40 | byte(len(header)/4)
	return header
}
