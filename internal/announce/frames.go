// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/packet"
)

// frames announce on the link that address a has the MAC mac, and that it is a router's, from the
// interface's own address source.
func frames(a netip.Addr, mac net.HardwareAddr, source netip.Addr) [][]byte {
	return packet.Announcement(a, mac, source, packet.FromRouter)
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
