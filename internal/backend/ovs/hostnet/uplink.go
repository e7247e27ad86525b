// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

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
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family(node)) })
	if err != nil {
		return Uplink{}, fmt.Errorf("list addresses: %w", err)
	}
	i := slices.IndexFunc(addrs, func(a netlink.Addr) bool { return prefix(a.IPNet).Addr() == node })
	if i < 0 {
		return Uplink{}, fmt.Errorf("no interface of this host has the node's address %s", node)
	}
	l, err := netlink.LinkByIndex(addrs[i].LinkIndex)
	if err != nil {
		return Uplink{}, fmt.Errorf("interface with address %s: %w", node, err)
	}
	return Uplink{Name: l.Attrs().Name, Index: l.Attrs().Index, MTU: l.Attrs().MTU, Address: prefix(addrs[i].IPNet)},
		nil
}

// WatchUplinks calls changed whenever an address comes or goes, or an interface changes of which
// watched is true, by its name, until ctx ends.
func WatchUplinks(ctx context.Context, watched func(name string) bool, changed func()) error {
	return watch(ctx, addressGroups, func(_ int, m events.Message) bool {
		switch uint16(m.Header.Type) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			return watched(linkName(m))
		}
		return !addressOfPod(m)
	}, changed)
}

// Bytes that a tunnel adds to a packet: Ethernet (14), VXLAN or Geneve without options (8), UDP (8)
// and the outer IP header (20 or 40).
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
