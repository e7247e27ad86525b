// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"encoding/binary"

	"coelan.io/coelan/internal/unixctl"
)

// Datagram is an empty UDP packet in the direction in which a connection began, with its Ethernet header. It serves to have
// conntrack find the connection, and is never sent anywhere.
func Datagram(c unixctl.Connection) []byte {
	be := binary.BigEndian
	length := uint16(8)
	udpHeader := be.AppendUint16(nil, c.Orig.SrcPort)
	udpHeader = be.AppendUint16(udpHeader, c.Orig.DstPort)
	udpHeader = be.AppendUint16(udpHeader, length)
	udpHeader = be.AppendUint16(udpHeader, 0)
	src, dst := c.Orig.Src.AsSlice(), c.Orig.Dst.AsSlice()

	pseudo := append(append([]byte{}, src...), dst...)
	pseudo = append(pseudo, 0, udp)
	pseudo = be.AppendUint16(pseudo, length)
	sum := checksum(append(pseudo, udpHeader...))
	if sum == 0 {
		sum = 0xffff // 0 says that there is none (RFC 768)
	}
	be.PutUint16(udpHeader[6:], sum)

	packet := make([]byte, 12, 64) // no addresses
	if c.Orig.Src.Is4() {
		packet = append(packet, 0x08, 0x00)
		header := []byte{0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, udp, 0, 0}
		header = append(append(header, src...), dst...)
		be.PutUint16(header[10:], checksum(header))
		packet = append(packet, header...)
	} else {
		packet = append(packet, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(length), udp, 64)
		packet = append(append(packet, src...), dst...)
	}
	return append(packet, udpHeader...)
}

// checksum is the Internet's (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum) //nolint:gosec // it has been folded
}
