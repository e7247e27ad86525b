// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// linkName is the interface's name in a link message (struct ifinfomsg, then attributes).
func linkName(m netlink.Message) string {
	return stringAttribute(m, unix.SizeofIfInfomsg, unix.IFLA_IFNAME)
}

// concernsTable says whether a message of nftables (struct nfgenmsg, then attributes) is about the
// table called name. Every object carries its table as attribute 1; the message that ends a batch
// carries the generation there.
func concernsTable(m netlink.Message, name string) bool {
	if uint16(m.Header.Type)>>8 != unix.NFNL_SUBSYS_NFTABLES || uint16(m.Header.Type)&0xff == unix.NFT_MSG_NEWGEN {
		return false
	}
	const nfgenmsg = 4
	return stringAttribute(m, nfgenmsg, unix.NFTA_TABLE_NAME) == name
}

func stringAttribute(m netlink.Message, header int, typ uint16) string {
	if len(m.Data) < header {
		return ""
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return ""
	}
	for ad.Next() {
		if ad.Type() == typ {
			return ad.String()
		}
	}
	return ""
}

// routeProtocol is rtm_protocol of a route message (struct rtmsg).
func routeProtocol(m netlink.Message) uint8 {
	const offset = 5
	if len(m.Data) < unix.SizeofRtMsg {
		return 0
	}
	return m.Data[offset]
}

// routeInterface is the interface that a route message (struct rtmsg, then attributes) leads out
// of; 0: several, or none.
func routeInterface(m netlink.Message) int32 {
	if len(m.Data) < unix.SizeofRtMsg {
		return 0
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return 0
	}
	for ad.Next() {
		if ad.Type() == unix.RTA_OIF {
			return ad.Int32()
		}
	}
	return 0
}

// addressOfPod says that an address message (struct ifaddrmsg) is about a link-local address: every
// interface of a pod gets one, and nothing here depends on them.
func addressOfPod(m netlink.Message) bool {
	const scope = 3
	return len(m.Data) >= unix.SizeofIfAddrmsg && m.Data[scope] == unix.RT_SCOPE_LINK
}

// neighbour is the interface and the address of a message about a neighbor
// (struct ndmsg, then attributes).
func neighbour(m netlink.Message) (int, netip.Addr) {
	const index = 4
	if len(m.Data) < unix.SizeofNdMsg {
		return 0, netip.Addr{}
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofNdMsg:])
	if err != nil {
		return 0, netip.Addr{}
	}
	for ad.Next() {
		if ad.Type() == unix.NDA_DST {
			return int(binary.NativeEndian.Uint32(m.Data[index:])), addr(ad.Bytes())
		}
	}
	return 0, netip.Addr{}
}

// netconfIndex is the interface that a message about settings (struct netconfmsg, then attributes)
// is for. Negative numbers stand for "all" and "default".
func netconfIndex(m netlink.Message) int {
	const (
		header        = 4 // netconfmsg is one byte, padded
		netconfaIndex = 1
	)
	if len(m.Data) < header {
		return 0
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return 0
	}
	for ad.Next() {
		if ad.Type() == netconfaIndex {
			return int(ad.Int32())
		}
	}
	return 0
}
