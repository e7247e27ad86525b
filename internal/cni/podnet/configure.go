// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/attachment"
)

// Configure gives the pod's end its addresses, routes and settings and sets it up. It
// changes only what differs, so it also repairs. A *MissingError says that the end is
// not there.
func (p *Plumber) Configure(i Interface) error {
	err := p.visit(i.Netns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		defer h.Close()
		return p.configure(h, i)
	})
	if err != nil {
		return fmt.Errorf("configure %s in %s: %w", i.IfName, i.Netns, err)
	}
	return nil
}

func (p *Plumber) configure(h *netlink.Handle, i Interface) error {
	link, err := h.LinkByName(i.IfName)
	if isNotFound(err) {
		return &MissingError{Name: i.IfName, Where: "network namespace " + i.Netns}
	}
	if err != nil {
		return err
	}
	// No router is to be believed but the one that is set here. Where the settings are
	// read-only, the flows on the bridge drop advertisements all the same.
	_ = p.writeSysctl(i.IfName, "accept_ra", "0")
	if err := setLink(h, link, i); err != nil {
		return err
	}
	if !i.TXOffload {
		if err := disableTXChecksum(i.IfName); err != nil {
			return err
		}
	}
	for _, a := range i.Addresses {
		if err := p.addAddress(h, link, a); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	for _, r := range i.AllRoutes() {
		if err := h.RouteReplace(kernelRoute(link, r)); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	return nil
}

// setLink sets what differs of MAC and MTU, and sets the link up.
func setLink(h *netlink.Handle, link netlink.Link, i Interface) error {
	attrs := link.Attrs()
	if mac := i.MAC.HardwareAddr(); attrs.HardwareAddr.String() != mac.String() {
		if err := h.LinkSetHardwareAddr(link, mac); err != nil {
			return fmt.Errorf("MAC %s: %w", mac, err)
		}
	}
	if attrs.MTU != i.MTU {
		if err := h.LinkSetMTU(link, i.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", i.MTU, err)
		}
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	return nil
}

// addAddress adds an address that can be used at once: duplicate address detection would take a
// second, and no other interface has the address.
func (p *Plumber) addAddress(h *netlink.Handle, link netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is4() {
		return addOrMend(h, link, addr)
	}
	addr.Flags = unix.IFA_F_NODAD
	err := addOrMend(h, link, addr)
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	// IPv6 is off by the host's defaults or the runtime's.
	if err := p.writeSysctl(link.Attrs().Name, "disable_ipv6", "0"); err != nil {
		return fmt.Errorf("IPv6 is disabled on the interface: %w", err)
	}
	return addOrMend(h, link, addr)
}

// addOrMend adds an address, in place of the same address with another prefix length
// if there is one.
func addOrMend(h *netlink.Handle, link netlink.Link, addr *netlink.Addr) error {
	err := h.AddrAdd(link, addr)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	list, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, old := range list {
		switch {
		case !old.IP.Equal(addr.IP):
		case old.Mask.String() == addr.Mask.String():
			return nil
		default:
			if err := h.AddrDel(link, &old); err != nil {
				return err
			}
		}
	}
	return h.AddrAdd(link, addr)
}

// writeSysctl writes a setting of the namespace that the thread is in.
func (p *Plumber) writeSysctl(ifName, key, value string) error {
	return os.WriteFile(filepath.Join(p.sysctlDir, "net/ipv6/conf", ifName, key), []byte(value), 0)
}

func kernelRoute(link netlink.Link, r attachment.Route) *netlink.Route {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Destination)}
	if r.NextHop.IsValid() {
		route.Gw = r.NextHop.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// MissingError says that an end of a pair is not where it should be.
type MissingError struct {
	Name  string
	Where string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("interface %q is missing in %s", e.Name, e.Where)
}
