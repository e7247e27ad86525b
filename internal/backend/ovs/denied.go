// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/openflow"
)

// deniedPacket is what people want to know of one. Ports are 0 for protocols without.
type deniedPacket struct {
	protocol            string
	source, destination netip.AddrPort
}

// parseDenied reads the headers of an Ethernet frame that may have been cut; false if it is not IP.
func parseDenied(frame []byte) (deniedPacket, bool) {
	p, ok := packet.Parse(frame)
	if !ok {
		return deniedPacket{}, false
	}
	protocol, _, _ := p.Transport()
	from, to, _ := p.Ports()
	return deniedPacket{
		protocol: protocolName(protocol),
		source:   netip.AddrPortFrom(p.Source(), from), destination: netip.AddrPortFrom(p.Destination(), to),
	}, true
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
		if p.Node == s.Local().Node && (zone == intent.DefaultRouter && slices.Contains(p.NodeAddresses, address) ||
			slices.Contains(p.Addresses, address) && means(s, p, zone)) {
			return p.Name()
		}
	}
	return ""
}

// means says whether a Port's addresses mean it in the space of a zone.
func means(s *intent.State, p intent.Port, zone intent.RouterID) bool {
	n, _ := s.Networks().Get(p.Network)
	if n.Physical != "" {
		return zone == datapath.PhysicalZone
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
