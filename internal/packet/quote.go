// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"net/netip"
	"slices"
)

// icmpHeaderLen is that of ICMP errors: type, code, checksum and four bytes more (RFC 792; RFC
// 4443, section 3).
const icmpHeaderLen = 8

// TranslateQuote returns an Ethernet frame with an ICMP error in which the packet that the error
// quotes has address is in place of was, as its source and as its destination, with the checksums
// that follow. It is false if the frame is none with such a packet.
func TranslateQuote(frame []byte, was, is netip.Addr) ([]byte, bool) {
	out := slices.Clone(frame)
	p, message, ok := icmpOf(out)
	if !ok || was.Is4() != is.Is4() || was.Is6() != p.Is6() {
		return nil, false
	}
	quoted := IP(message[icmpHeaderLen:])
	if !translate(quoted, was.AsSlice(), is.AsSlice()) {
		return nil, false
	}
	var sum uint32
	if p.Is6() {
		sum = PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(message))
	}
	message[2], message[3] = 0, 0
	be.PutUint16(message[2:], Checksum(sum, message))
	return out, true
}

// translate writes an address over another in the header of a packet that may be cut behind it;
// false if it is not there.
func translate(p IP, was, is []byte) bool {
	source, version, length := 12, byte(4), IPv4Len
	if len(was) > 4 {
		source, version, length = 8, 6, IPv6Len
	}
	if len(p) < length || p[0]>>4 != version || len(p) < p.HeaderLen() || p.HeaderLen() < length {
		return false
	}
	found := false
	for _, at := range []int{source, source + len(was)} {
		if bytes.Equal(p[at:at+len(was)], was) {
			copy(p[at:], is)
			found = true
		}
	}
	if found && version == 4 {
		p.SumHeader()
	}
	return found
}

// icmpOf finds the ICMP message in a frame, with the packet that it is in.
func icmpOf(frame []byte) (p IP, message []byte, ok bool) {
	if p, ok = Parse(frame); !ok {
		return nil, nil, false
	}
	if p, ok = p.Whole(); !ok {
		return nil, nil, false
	}
	protocol, at, first := p.Transport()
	if !first || protocol != ICMP && protocol != ICMPv6 || len(p) < at+icmpHeaderLen {
		return nil, nil, false
	}
	return p, p[at:], true
}
