// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/packet"
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// allNodes is ff02::1, and the group's MAC (RFC 2464).
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// frames announce on the link that address a has the MAC mac: an ARP request and an ARP reply,
// because some hosts heed only one of them (RFC 5227, section 3), or an unsolicited neighbor
// advertisement (RFC 4861, section 7.2.6) from the interface's own address source.
func frames(a netip.Addr, mac net.HardwareAddr, source netip.Addr) [][]byte {
	if a.Is4() {
		return [][]byte{gratuitousARP(a, mac, packet.ARPRequest), gratuitousARP(a, mac, packet.ARPReply)}
	}
	return [][]byte{advertisement(a, mac, source)}
}

// gratuitousARP has the address as sender and as target (RFC 826, RFC 5227).
func gratuitousARP(a netip.Addr, mac net.HardwareAddr, operation uint16) []byte {
	var target net.HardwareAddr
	if operation == packet.ARPReply {
		target = broadcast
	}
	return packet.Ethernet(broadcast, mac, packet.TypeARP, packet.ARP(operation, mac, a, target, a))
}

// advertisement says that a router has the address, and that caches are to believe it.
func advertisement(a netip.Addr, mac net.HardwareAddr, source netip.Addr) []byte {
	p := packet.NeighbourAdvertisement(source, allNodes, packet.FromRouter|packet.Override, a, mac)
	return packet.Ethernet(allNodesMAC, mac, p.Type(), p)
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
