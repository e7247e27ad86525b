// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
)

// Broadcast is the MAC of all stations.
var Broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// allNodes is the group of all nodes of a link.
var allNodes = netip.MustParseAddr("ff02::1")

// multicastMAC is the MAC of an IPv6 multicast group (RFC 2464, section 7).
func multicastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// solicitedNode is the group that the nodes with an IPv6 address have joined (RFC 4291, section
// 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

const (
	arpEthernet = 1
	arpLen      = 28
)

// ARP is a message for IPv4 over Ethernet (RFC 826). A MAC that is nil is zero.
func ARP(operation uint16, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr,
	target netip.Addr,
) []byte {
	b := make([]byte, arpLen)
	be.PutUint16(b, arpEthernet)
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
	Solicited  = 1 << 30
	Override   = 1 << 29
)

// Neighbor discovery's types of messages, its options, and the hop limit that shows that no
// router has forwarded a message (RFC 4861).
const (
	typeSolicitation  = 135
	typeAdvertisement = 136
	optionSource      = 1
	optionTarget      = 2
	discoveryHopLimit = 255
	discoveryLen      = 24 // without options
)

// NeighbourAdvertisement is a packet that says that an address has a MAC (RFC 4861, section 4.4).
// Without a MAC it has no option.
func NeighbourAdvertisement(src, dst netip.Addr, flags uint32, target netip.Addr, mac net.HardwareAddr) IP {
	return discovery(src, dst, typeAdvertisement, flags, target, optionTarget, mac)
}

// NeighbourSolicitation is a packet that asks for the MAC of an address (RFC 4861, section 4.3),
// and says that src has the MAC mac.
func NeighbourSolicitation(src, dst, target netip.Addr, mac net.HardwareAddr) IP {
	return discovery(src, dst, typeSolicitation, 0, target, optionSource, mac)
}

func discovery(src, dst netip.Addr, typ uint8, flags uint32, target netip.Addr, option byte, mac net.HardwareAddr) IP {
	body := target.AsSlice()
	if len(mac) > 0 {
		body = append(append(body, option, 1), mac...)
	}
	m := ICMPv6From(src, dst, typ, 0, flags, body)
	return Header{Source: src, Destination: dst, Protocol: ICMPv6, HopLimit: discoveryHopLimit}.Packet(m)
}

// NeighbourRequest is a frame that asks for the MAC of target, from the address source that has
// the MAC mac: an ARP request or a neighbor solicitation. It goes to the MAC to, or to all that may
// have the address if to is nil.
func NeighbourRequest(target netip.Addr, to net.HardwareAddr, source netip.Addr, mac net.HardwareAddr) []byte {
	if target.Is4() {
		dst := to
		if dst == nil {
			dst = Broadcast
		}
		return Ethernet(dst, mac, TypeARP, ARP(ARPRequest, mac, source, to, target))
	}
	dst := target
	if to == nil {
		dst = solicitedNode(target)
		to = multicastMAC(dst)
	}
	p := NeighbourSolicitation(source, dst, target, mac)
	return Ethernet(to, mac, p.Type(), p)
}

// Announcement is the frames that tell a link that address a has the MAC mac: an ARP request and an
// ARP reply, because some hosts heed only one of them (RFC 5227, section 3), or an unsolicited
// neighbor advertisement (RFC 4861, section 7.2.6) from the address source. Caches are to believe
// it; the flags of the advertisement say what else a is, such as FromRouter.
func Announcement(a netip.Addr, mac net.HardwareAddr, source netip.Addr, flags uint32) [][]byte {
	if a.Is4() {
		return [][]byte{gratuitousARP(a, mac, ARPRequest), gratuitousARP(a, mac, ARPReply)}
	}
	p := NeighbourAdvertisement(source, allNodes, flags|Override, a, mac)
	return [][]byte{Ethernet(multicastMAC(allNodes), mac, p.Type(), p)}
}

// gratuitousARP has the address as sender and as target (RFC 826, RFC 5227).
func gratuitousARP(a netip.Addr, mac net.HardwareAddr, operation uint16) []byte {
	var target net.HardwareAddr
	if operation == ARPReply {
		target = Broadcast
	}
	return Ethernet(Broadcast, mac, TypeARP, ARP(operation, mac, a, target, a))
}

// Claim is what a frame says of an address: which MAC it has.
type Claim struct {
	Address netip.Addr
	// MAC is nil in an advertisement without the option, which only confirms what the receiver
	// knows already.
	MAC net.HardwareAddr
	// Solicited and Override are the flags of an advertisement. What ARP says always overrides, and
	// whether it was asked for is unknown.
	Solicited, Override bool
}

// ParseClaim reads an ARP message or a neighbor advertisement from an Ethernet frame without a tag;
// false if it is neither, or not one that the RFCs 826 and 4861 (section 7.1.2) allow. The MAC lies
// within the frame.
func ParseClaim(frame []byte) (Claim, bool) {
	if len(frame) < EthernetLen {
		return Claim{}, false
	}
	switch b := frame[EthernetLen:]; be.Uint16(frame[12:]) {
	case TypeARP:
		return parseARP(b)
	case TypeIPv6:
		return parseAdvertisement(b)
	}
	return Claim{}, false
}

// ParseQuestion reads which address an ARP request or a neighbor solicitation asks for, from an
// Ethernet frame without a tag; false if it is neither.
func ParseQuestion(frame []byte) (target netip.Addr, ok bool) {
	if len(frame) < EthernetLen {
		return netip.Addr{}, false
	}
	switch b := frame[EthernetLen:]; be.Uint16(frame[12:]) {
	case TypeARP:
		if _, ok := parseARP(b); ok && be.Uint16(b[6:]) == ARPRequest {
			return netip.AddrFrom4([4]byte(b[24:])), true
		}
	case TypeIPv6:
		if m, ok := discoveryMessage(b, typeSolicitation); ok {
			return netip.AddrFrom16([16]byte(m[8:])), true
		}
	}
	return netip.Addr{}, false
}

// discoveryMessage is the ICMPv6 message of a packet of neighbor discovery; false if it is not of
// that type, or not one that RFC 4861 allows.
func discoveryMessage(b []byte, typ byte) (m []byte, ok bool) {
	if len(b) < IPv6Len || b[0]>>4 != 6 || b[6] != ICMPv6 || b[7] != discoveryHopLimit {
		return nil, false
	}
	p, ok := IP(b).Whole()
	if !ok {
		return nil, false
	}
	m = p[IPv6Len:]
	return m, len(m) >= discoveryLen && m[0] == typ && m[1] == 0 &&
		Checksum(PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(m)), m) == 0
}

func parseARP(b []byte) (Claim, bool) {
	if len(b) < arpLen || be.Uint16(b) != arpEthernet || be.Uint16(b[2:]) != TypeIPv4 || b[4] != 6 || b[5] != 4 {
		return Claim{}, false
	}
	if operation := be.Uint16(b[6:]); operation != ARPRequest && operation != ARPReply {
		return Claim{}, false
	}
	return Claim{Address: netip.AddrFrom4([4]byte(b[14:])), MAC: b[8:14:14], Override: true}, true
}

func parseAdvertisement(b []byte) (Claim, bool) {
	m, ok := discoveryMessage(b, typeAdvertisement)
	if !ok {
		return Claim{}, false
	}
	flags := be.Uint32(m[4:])
	c := Claim{
		Address:   netip.AddrFrom16([16]byte(m[8:])),
		Solicited: flags&Solicited != 0, Override: flags&Override != 0,
	}
	if c.Address.IsMulticast() || c.Solicited && IP(b).Destination().IsMulticast() {
		return Claim{}, false
	}
	c.MAC, ok = linkAddress(m[discoveryLen:])
	return c, ok
}

// linkAddress finds the target's MAC among options, nil if there is none; false if an option is
// malformed.
func linkAddress(options []byte) (mac net.HardwareAddr, ok bool) {
	for len(options) > 0 {
		if len(options) < 2 {
			return nil, false
		}
		length := 8 * int(options[1])
		if length == 0 || length > len(options) {
			return nil, false
		}
		if options[0] == optionTarget {
			if length != 8 || mac != nil {
				return nil, false
			}
			mac = net.HardwareAddr(options[2:8:8])
		}
		options = options[length:]
	}
	return mac, true
}
