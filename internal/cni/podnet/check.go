// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/attachment"
)

// Check returns all differences between an interface and what it should be. It changes
// nothing. A *NetnsError or *MissingError is among them if it applies.
func (p *Plumber) Check(i Interface) error {
	host, err := p.host.LinkByName(i.HostInterface)
	if isNotFound(err) {
		return &MissingError{Name: i.HostInterface, Where: hostNamespace}
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.HostInterface, err)
	}
	var problems []error
	if host.Attrs().Flags&net.FlagUp == 0 {
		problems = append(problems, fmt.Errorf("interface %s is down", i.HostInterface))
	}
	err = p.visit(i.Netns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return checkPod(h, host, i)
	})
	return errors.Join(append(problems, err)...)
}

func checkPod(h *netlink.Handle, host netlink.Link, i Interface) error {
	link, err := h.LinkByName(i.IfName)
	if isNotFound(err) {
		return &MissingError{Name: i.IfName, Where: "network namespace " + i.Netns}
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.IfName, err)
	}
	return errors.Join(
		checkLink(link, host, i),
		checkAddresses(h, link, i),
		checkRoutes(h, link, i),
	)
}

func checkLink(link, host netlink.Link, i Interface) error {
	var problems []error
	differs := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("interface "+i.IfName+" "+format, args...))
	}
	attrs := link.Attrs()
	if link.Type() != "veth" || attrs.ParentIndex != host.Attrs().Index || host.Attrs().ParentIndex != attrs.Index {
		differs("is not the other end of %s", i.HostInterface)
	}
	if attrs.Flags&net.FlagUp == 0 {
		differs("is down")
	}
	if got := attrs.HardwareAddr.String(); got != i.MAC.String() {
		differs("has MAC %s, not %s", got, i.MAC)
	}
	if attrs.MTU != i.MTU {
		differs("has MTU %d, not %d", attrs.MTU, i.MTU)
	}
	if !i.TXOffload {
		if on, err := txChecksum(i.IfName, unix.ETHTOOL_GTXCSUM, 0); err != nil || on {
			differs("has TX checksum offload on, which this datapath cannot do (%v)", err)
		}
	}
	return errors.Join(problems...)
}

func checkAddresses(h *netlink.Handle, link netlink.Link, i Interface) error {
	list, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", i.IfName, err)
	}
	var have []netip.Prefix
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			ones, _ := a.Mask.Size()
			have = append(have, netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	var problems []error
	for _, want := range i.Addresses {
		if !slices.Contains(have, want) {
			problems = append(problems, fmt.Errorf("interface %s lacks address %s, has %v", i.IfName, want, have))
		}
	}
	return errors.Join(problems...)
}

func checkRoutes(h *netlink.Handle, link netlink.Link, i Interface) error {
	var problems []error
	for _, r := range i.AllRoutes() {
		family := netlink.FAMILY_V4
		if r.Destination.Addr().Is6() {
			family = netlink.FAMILY_V6
		}
		routes, err := h.RouteListFiltered(family, kernelRoute(link, r), netlink.RT_FILTER_DST)
		if err == nil && !slices.ContainsFunc(routes, func(have netlink.Route) bool { return serves(have, link, r) }) {
			err = fmt.Errorf("interface %s lacks the %s", i.IfName, r)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// serves says whether a route of the pod to the destination is as good as the wanted one.
// A default route through another interface was moved there on purpose, by the plugin
// that made that interface.
func serves(have netlink.Route, link netlink.Link, want attachment.Route) bool {
	if have.LinkIndex != link.Attrs().Index {
		return want.Destination.Bits() == 0
	}
	gw, _ := netip.AddrFromSlice(have.Gw)
	return gw.Unmap() == want.NextHop
}
