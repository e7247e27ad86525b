// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// deniedPacket is what people want to know of one. Ports are 0 for protocols without.
type deniedPacket struct {
	protocol            string
	source, destination netip.AddrPort
}

// Lengths of headers, and the VLAN's type.
const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	etherVLAN   = 0x8100
)

// parseDenied reads the headers of an Ethernet frame that may have been cut; false if it is not IP.
func parseDenied(b []byte) (deniedPacket, bool) {
	if len(b) < ethernetLen {
		return deniedPacket{}, false
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[ethernetLen:]
	if kind == etherVLAN && len(b) >= vlanLen {
		kind, b = binary.BigEndian.Uint16(b[2:]), b[vlanLen:]
	}
	var source, destination netip.Addr
	var protocol uint8
	switch {
	case kind == openflow.EthTypeIPv4 && len(b) >= ipv4Len:
		source, destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		protocol = b[9]
		if later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0; later {
			b = nil
		} else {
			b = b[min(len(b), 4*int(b[0]&0xf)):]
		}
	case kind == openflow.EthTypeIPv6 && len(b) >= ipv6Len:
		source, destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		protocol, b = pastExtensions(b[6], b[ipv6Len:])
	default:
		return deniedPacket{}, false
	}
	d := deniedPacket{protocol: protocolName(protocol)}
	var from, to uint16
	switch protocol {
	case openflow.IPProtoTCP, openflow.IPProtoUDP, openflow.IPProtoSCTP:
		if len(b) >= 4 {
			from, to = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	}
	d.source, d.destination = netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to)
	return d, true
}

// Extension headers of IPv6 that have their length in units of 8 bytes in the second byte, which is 0 in that of fragments.
const (
	hopByHop    = 0
	routing     = 43
	fragment    = 44
	destOptions = 60
)

// pastExtensions finds what is behind them, of fragments only in the first one.
func pastExtensions(next uint8, b []byte) (protocol uint8, rest []byte) {
	for next == hopByHop || next == routing || next == fragment || next == destOptions {
		if len(b) < 8 {
			return next, nil
		}
		if later := binary.BigEndian.Uint16(b[2:])&^7 != 0; next == fragment && later {
			return b[0], nil
		}
		n := 8 + 8*int(b[1])
		next, b = b[0], b[min(n, len(b)):]
	}
	return next, b
}

func protocolName(p uint8) string {
	switch p {
	case openflow.IPProtoTCP:
		return "tcp"
	case openflow.IPProtoUDP:
		return "udp"
	case openflow.IPProtoSCTP:
		return "sctp"
	case openflow.IPProtoICMP, openflow.IPProtoICMPv6:
		return "icmp"
	}
	return strconv.Itoa(int(p))
}

// text is an end as people write it: without a port where there is none.
func endText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// zoneOf is the conntrack zone of the space that the packet's addresses mean something in.
func zoneOf(m *openflow.PacketIn2) intent.RouterID {
	zone, _ := m.Metadata.Get(openflow.Reg(2).Bits(0, 15))
	return intent.RouterID(zone) //nolint:gosec // of 16 bits
}

// nameOf names the Port of this node that has an address there; empty: there is none.
func nameOf(s *intent.State, zone intent.RouterID, address netip.Addr) string {
	for p := range s.Ports().All() {
		if p.OFPort != 0 && (zone == intent.DefaultRouter && slices.Contains(p.NodeAddresses, address) ||
			slices.Contains(p.Addresses, address) && means(s, p, zone)) {
			return p.Name()
		}
	}
	return ""
}

// means says whether a Port's addresses mean it in the space of a zone.
func means(s *intent.State, p intent.Port, zone intent.RouterID) bool {
	n, _ := s.Networks().Get(p.Network)
	if n.Physical != 0 {
		return zone == intent.PhysicalZone
	}
	in := func(r intent.Router) bool {
		return r.Private() && r.ID == zone || !r.Private() && zone == intent.DefaultRouter
	}
	if r, ok := s.Routers().Get(n.Router); ok && in(r) {
		return true
	}
	for r := range s.Importers(n.Router) {
		if in(r) {
			return true
		}
	}
	return false
}
