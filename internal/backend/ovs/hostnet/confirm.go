// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Confirm completes the kernel's unanswered neighbor entries of an interface: nothing answered
// while Open vSwitch was down, and the kernel asks again only after a second. Entries that it is
// sure of stay.
func (h *Host) Confirm(name string, mac func(netip.Addr) (net.HardwareAddr, bool)) error {
	link, err := h.nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	var errs []error
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		entries, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(link.Attrs().Index, f) })
		if err != nil {
			return fmt.Errorf("neighbours of %s: %w", name, err)
		}
		for _, e := range confirmed(entries, mac) {
			if err := h.nl.NeighSet(&e); err != nil {
				errs = append(errs, fmt.Errorf("neighbour %s of %s: %w", e.IP, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// confirmed are the entries that the kernel is not sure of, with the address that mac knows.
func confirmed(entries []netlink.Neigh, mac func(netip.Addr) (net.HardwareAddr, bool)) []netlink.Neigh {
	const asking = unix.NUD_INCOMPLETE | unix.NUD_PROBE | unix.NUD_DELAY | unix.NUD_FAILED
	var list []netlink.Neigh
	for _, e := range entries {
		if hw, known := mac(addr(e.IP)); known && e.State&asking != 0 {
			e.State, e.HardwareAddr, e.Flags = unix.NUD_REACHABLE, hw, 0
			list = append(list, e)
		}
	}
	return list
}
