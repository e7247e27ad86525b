// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/packet"
)

// Datagram is an empty UDP packet in the direction in which a connection began, with its Ethernet
// header. It serves to have conntrack find the connection, and is never sent anywhere.
func Datagram(c conntrack.Connection) []byte {
	src, dst := netip.AddrPortFrom(c.Orig.Src, c.Orig.SrcPort), netip.AddrPortFrom(c.Orig.Dst, c.Orig.DstPort)
	header := packet.Header{Source: src.Addr(), Destination: dst.Addr(), Protocol: packet.UDP, HopLimit: 64,
		DontFragment: true}
	p := header.Packet(packet.UDPFrom(src, dst, nil))
	return packet.Ethernet(nil, nil, p.Type(), p) // no addresses
}
