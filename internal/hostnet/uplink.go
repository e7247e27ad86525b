// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net/netip"

	events "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplink is the interface that carries the node's address.
type Uplink struct {
	Name  string
	Index int
	// MTU in bytes.
	MTU int
	// Address with the length of its prefix.
	Address netip.Prefix
}

// FindUplink returns the interface with the address node.
func FindUplink(node netip.Addr) (Uplink, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return Uplink{}, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := netlink.AddrList(l, family(node))
		if err != nil {
			return Uplink{}, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if p := prefix(a.IPNet); p.Addr() == node {
				return Uplink{Name: l.Attrs().Name, Index: l.Attrs().Index, MTU: l.Attrs().MTU, Address: p}, nil
			}
		}
	}
	return Uplink{}, fmt.Errorf("no interface of this host has the node's address %s", node)
}

// WatchUplink calls changed whenever an address comes or goes, or the interface called name changes, until ctx ends.
func WatchUplink(ctx context.Context, name func() string, changed func()) error {
	return watch(ctx, addressGroups, func(_ int, m events.Message) bool {
		switch uint16(m.Header.Type) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			return linkName(m) == name()
		}
		return !addressOfPod(m)
	}, changed)
}

// Bytes that a tunnel adds to a packet: Ethernet (14), VXLAN or Geneve without options (8), UDP (8) and the outer IP
// header (20 or 40).
const (
	TunnelOverhead4 = 50
	TunnelOverhead6 = 70
)

// PodMTU is the largest packet that pods may send over an underlay with that MTU.
func PodMTU(underlay int, tunnel bool, node netip.Addr) int {
	switch {
	case !tunnel:
		return underlay
	case node.Is4():
		return underlay - TunnelOverhead4
	}
	return underlay - TunnelOverhead6
}
