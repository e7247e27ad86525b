// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// allNodes is ff02::1, and the group's MAC (RFC 2464).
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// frames tell everybody on the wire that a has the MAC mac: as an ARP request and an ARP answer, because some heed the one
// and some the other (RFC 5227, section 3), or as an unsolicited neighbour advertisement (RFC 4861, section 7.2.6) from
// the interface's own address source.
func frames(a netip.Addr, mac net.HardwareAddr, source netip.Addr) [][]byte {
	if a.Is4() {
		return [][]byte{gratuitousARP(a, mac, 1), gratuitousARP(a, mac, 2)}
	}
	return [][]byte{advertisement(a, mac, source)}
}

func ethernet(dst, src net.HardwareAddr, typ uint16) []byte {
	b := append(append([]byte{}, dst...), src...)
	return binary.BigEndian.AppendUint16(b, typ)
}

// gratuitousARP has the address as sender and as target (RFC 826, RFC 5227).
func gratuitousARP(a netip.Addr, mac net.HardwareAddr, operation byte) []byte {
	b := ethernet(broadcast, mac, unix.ETH_P_ARP)
	b = append(b, 0, 1, 8, 0, 6, 4, 0, operation)
	b = append(append(b, mac...), a.AsSlice()...)
	target := make(net.HardwareAddr, len(mac))
	if operation == 2 {
		target = broadcast
	}
	return append(append(b, target...), a.AsSlice()...)
}

// advertisement says that a router has the address, and that caches are to believe it.
func advertisement(a netip.Addr, mac net.HardwareAddr, source netip.Addr) []byte {
	const (
		typ           = 136
		routerAndOver = 0x80 | 0x20
		targetOption  = 2
		hopLimit      = 255
	)
	message := append([]byte{typ, 0, 0, 0, routerAndOver, 0, 0, 0}, a.AsSlice()...)
	message = append(append(message, targetOption, 1), mac...)
	binary.BigEndian.PutUint16(message[2:], checksum(source, allNodes, unix.IPPROTO_ICMPV6, message))
	b := ethernet(allNodesMAC, mac, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	b = append(b, unix.IPPROTO_ICMPV6, hopLimit)
	b = append(append(b, source.AsSlice()...), allNodes.AsSlice()...)
	return append(b, message...)
}

// checksum is that of an upper-layer protocol in IPv6 (RFC 8200, section 8.1); data is of even length.
func checksum(src, dst netip.Addr, proto byte, data []byte) uint16 {
	b := append(append(src.AsSlice(), dst.AsSlice()...), 0, 0, byte(len(data)>>8), byte(len(data)), 0, 0, 0, proto)
	b = append(b, data...)
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// sender sends frames as they are.
type sender struct{ fd int }

func newSender() (*sender, error) {
	// Protocol 0: it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket, which needs CAP_NET_RAW: %w", err)
	}
	return &sender{fd}, nil
}

func (s *sender) close() { _ = unix.Close(s.fd) }

func (s *sender) send(index int, frame []byte) error {
	return unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6})
}
