// SPDX-License-Identifier: Apache-2.0

package packet

// HopLimit is how many routers may still forward the packet, IPv4's time to live.
func (p IP) HopLimit() uint8 {
	if p.Is6() {
		return p[7]
	}
	return p[8]
}

// payload is all that follows the header, without what a frame has been filled up with; false if
// the packet has been cut, is a fragment, has IPv6 extension headers, or has another protocol above
// IP.
func (p IP) payload(protocol uint8) ([]byte, bool) {
	const reservedAndDontFragment = 3 << 14
	whole, ok := p.Whole()
	if !ok {
		return nil, false
	}
	if p.Is6() {
		return whole[IPv6Len:], p[6] == protocol
	}
	return whole[p.HeaderLen():], p[9] == protocol && be.Uint16(p[6:])&^reservedAndDontFragment == 0
}

// ICMPMessage is the message of ICMP or ICMPv6, as of the packet's family, that the packet holds;
// false if it holds none that is whole and has the right checksum (RFC 792; RFC 4443, section 2.3).
func (p IP) ICMPMessage() ([]byte, bool) {
	protocol := uint8(ICMP)
	if p.Is6() {
		protocol = ICMPv6
	}
	m, ok := p.payload(protocol)
	if !ok || len(m) < icmpHeaderLen {
		return nil, false
	}
	var sum uint32
	if p.Is6() {
		sum = PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(m))
	}
	return m, Checksum(sum, m) == 0
}

// Datagram is the UDP datagram that the packet holds, without its header; false if it holds none
// that is whole and has the right checksum. IPv4's may have none (RFC 768; RFC 8200, section 8.1).
func (p IP) Datagram() (source, destination uint16, data []byte, ok bool) {
	b, ok := p.payload(UDP)
	if !ok || len(b) < udpLen {
		return 0, 0, nil, false
	}
	length := int(be.Uint16(b[4:]))
	if length < udpLen || length > len(b) {
		return 0, 0, nil, false
	}
	b = b[:length]
	if without := !p.Is6() && be.Uint16(b[6:]) == 0; !without &&
		Checksum(PseudoHeader(p.Source(), p.Destination(), UDP, length), b) != 0 {
		return 0, 0, nil, false
	}
	return be.Uint16(b), be.Uint16(b[2:]), b[udpLen:], true
}
