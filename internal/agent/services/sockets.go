// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
)

// listener is where a process of the host takes packets.
type listener struct {
	protocol intent.Protocol
	address  netip.Addr // unspecified: all of the host's
	port     uint16
}

// States of a socket that accepts any peer, as bits of a request (linux/net/tcp_states.h). A UDP
// socket without a peer counts as closed.
const (
	tcpListen = 1 << 10
	udpOpen   = 1 << 7
)

// listeners asks the kernel (sock_diag(7)) for all sockets that wait for clients. A protocol that
// the kernel does not have has none.
func listeners() ([]listener, error) {
	var list []listener
	for _, ask := range []struct {
		protocol intent.Protocol
		states   uint32
	}{{intent.TCP, tcpListen}, {intent.UDP, udpOpen}, {intent.SCTP, tcpListen}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			found, err := dumpSockets(family, ask.protocol, ask.states)
			if ask.protocol == intent.SCTP && err != nil || errors.Is(err, unix.ENOENT) ||
				errors.Is(err, unix.EPROTONOSUPPORT) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("the kernel does not tell which ports processes listen on: %w", err)
			}
			list = append(list, found...)
		}
	}
	return list, nil
}

// Sizes of linux/inet_diag.h: inet_diag_req_v2, inet_diag_msg and the inet_diag_sockid in both.
const (
	diagRequestLen = 56
	diagMessageLen = 72
	diagPort       = 4 // of the socket, in inet_diag_msg
	diagAddress    = 8
)

// diagRequest is an inet_diag_req_v2.
type diagRequest struct {
	family   uint8
	protocol intent.Protocol
	states   uint32
}

// Len implements nl.NetlinkRequestData.
func (r diagRequest) Len() int { return diagRequestLen }

// Serialize implements nl.NetlinkRequestData.
func (r diagRequest) Serialize() []byte {
	b := make([]byte, diagRequestLen)
	b[0], b[1] = r.family, uint8(r.protocol)
	binary.NativeEndian.PutUint32(b[4:], r.states)
	return b
}

func dumpSockets(family uint8, protocol intent.Protocol, states uint32) ([]listener, error) {
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(diagRequest{family, protocol, states})
	messages, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return nil, err
	}
	var list []listener
	for _, m := range messages {
		if len(m) < diagMessageLen {
			continue
		}
		l := listener{protocol: protocol, port: binary.BigEndian.Uint16(m[diagPort:])}
		if m[0] == unix.AF_INET {
			l.address = netip.AddrFrom4([4]byte(m[diagAddress:]))
		} else {
			l.address = netip.AddrFrom16([16]byte(m[diagAddress:])).Unmap()
		}
		list = append(list, l)
	}
	return list, nil
}
