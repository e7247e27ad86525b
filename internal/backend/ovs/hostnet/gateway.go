// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Gateway is the port between the host and the pods. Open vSwitch makes the interface; the
// rest is set here.
type Gateway struct {
	// Name of the interface.
	Name string
	// MTU in bytes.
	MTU int
	// Addresses with the lengths of the node's podCIDRs. All other global addresses of the
	// interface are removed.
	Addresses []netip.Prefix
}

func (h *Host) applyGateway(d Desired) (int, error) {
	link, err := h.nl.LinkByName(d.Gateway.Name)
	if err != nil {
		return 0, fmt.Errorf("gateway interface %s: %w; Open vSwitch has not made it", d.Gateway.Name, err)
	}
	h.gateway.Store(int64(link.Attrs().Index))
	// Duplicate address detection would keep the link-local address unusable for a second: settings
	// come before "up".
	n, err := h.applyGatewaySysctls(d)
	if err != nil {
		return n, err
	}
	k, err := h.applyLink(link, d.Gateway)
	if err != nil {
		return n + k, fmt.Errorf("gateway interface %s: %w", d.Gateway.Name, err)
	}
	m, err := h.applyAddresses(link, d.Gateway.Addresses)
	if err != nil {
		return n + k + m, fmt.Errorf("gateway interface %s: %w", d.Gateway.Name, err)
	}
	return n + k + m, nil
}

func (h *Host) applyLink(link netlink.Link, g Gateway) (int, error) {
	var n int
	attrs := link.Attrs()
	if g.MTU > 0 && attrs.MTU != g.MTU {
		if err := h.nl.LinkSetMTU(link, g.MTU); err != nil {
			return n, fmt.Errorf("MTU %d: %w", g.MTU, err)
		}
		n++
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := h.nl.LinkSetUp(link); err != nil {
			return n, fmt.Errorf("up: %w", err)
		}
		n++
	}
	return n, nil
}

// applyAddresses gives link exactly the global addresses of want. New ones come first: with its
// last address an interface loses all its routes. The kernel removes the secondary addresses of one
// that goes, hence the second look.
//
// The prefix routes are not left to the kernel: they are Coelan's own, so that a deleted route is
// noticed and restored.
func (h *Host) applyAddresses(link netlink.Link, want []netip.Prefix) (int, error) {
	added, err := h.addAddresses(link, want)
	if err != nil {
		return added, err
	}
	removed, err := h.removeAddresses(link, want)
	if err != nil || removed == 0 {
		return added + removed, err
	}
	again, err := h.addAddresses(link, want)
	return added + removed + again, err
}

func (h *Host) addAddresses(link netlink.Link, want []netip.Prefix) (int, error) {
	have, err := dump(func() ([]netlink.Addr, error) { return h.nl.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return 0, fmt.Errorf("addresses: %w", err)
	}
	var n int
	var errs []error
	for _, c := range missingAddresses(have, want) {
		if c.former != nil {
			if err := h.nl.AddrDel(link, c.former); err != nil {
				errs = append(errs, fmt.Errorf("address %s: delete: %w", c.prefix, err))
				continue
			}
		}
		if err := h.nl.AddrReplace(link, c.address()); err != nil {
			errs = append(errs, fmt.Errorf("address %s: %w", c.prefix, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// addressChange is an address to write.
type addressChange struct {
	prefix netip.Prefix
	// former has to go first: the kernel cannot change the flag that the address lacks. Nil: the
	// interface does not have the address.
	former *netlink.Addr
}

// missingAddresses are the changes that give an interface all of want.
func missingAddresses(have []netlink.Addr, want []netip.Prefix) []addressChange {
	var changes []addressChange
	for _, p := range want {
		c := addressChange{prefix: p}
		if i := slices.IndexFunc(have, func(a netlink.Addr) bool { return prefix(a.IPNet) == p }); i >= 0 {
			c.former = &have[i]
		}
		if c.former == nil || c.former.Flags&unix.IFA_F_NOPREFIXROUTE == 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// address is what the kernel is given. No duplicate of a node's own range is looked for.
func (c addressChange) address() *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(c.prefix), Flags: unix.IFA_F_NOPREFIXROUTE}
	if c.prefix.Addr().Is6() {
		a.Flags |= unix.IFA_F_NODAD
	}
	return a
}

func (h *Host) removeAddresses(link netlink.Link, want []netip.Prefix) (int, error) {
	have, err := dump(func() ([]netlink.Addr, error) { return h.nl.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return 0, fmt.Errorf("addresses: %w", err)
	}
	var n int
	var errs []error
	for _, a := range surplusAddresses(have, want) {
		if err := h.nl.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("address %s: delete: %w", prefix(a.IPNet), err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// surplusAddresses are the global addresses that are not wanted.
func surplusAddresses(have []netlink.Addr, want []netip.Prefix) []netlink.Addr {
	var surplus []netlink.Addr
	for _, a := range have {
		if p := prefix(a.IPNet); !slices.Contains(want, p) && !p.Addr().IsLinkLocalUnicast() {
			surplus = append(surplus, a)
		}
	}
	return surplus
}

// prefix converts n; an IPv4 address stays IPv4.
func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if bits == 32 || a.Is4In6() {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
