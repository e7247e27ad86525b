// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/statefile"
)

// memory is what an interface had when it was whole.
type memory struct {
	// Boot identifies the run of the kernel that Index belongs to.
	Boot string `json:"boot"`
	// Link is the interface's name, Node the address without which it is not whole, if it had one.
	Link      string         `json:"link"`
	Node      netip.Addr     `json:"node"`
	Index     int            `json:"index"`
	Addresses []savedAddress `json:"addresses"`
	Routes    []savedRoute   `json:"routes"`
	// TurnedIPv6Off says that the card in a bridge had IPv6 before.
	TurnedIPv6Off bool `json:"turnedIPv6Off,omitempty"`
}

// savedAddress is a global address; link-local ones come by themselves.
type savedAddress struct {
	Prefix netip.Prefix `json:"prefix"`
	Label  string       `json:"label,omitempty"`
	Scope  int          `json:"scope,omitempty"`
	Flags  int          `json:"flags,omitempty"`
}

// savedRoute is a route through the interface that the kernel did not make by itself.
type savedRoute struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Source      netip.Addr   `json:"source,omitzero"`
	Table       int          `json:"table"`
	Metric      int          `json:"metric,omitempty"`
	Protocol    int          `json:"protocol"`
	Scope       int          `json:"scope,omitempty"`
	MTU         int          `json:"mtu,omitempty"`
	OnLink      bool         `json:"onLink,omitempty"`
}

func (m *memory) has(node netip.Addr) bool {
	return !node.IsValid() ||
		slices.ContainsFunc(m.Addresses, func(a savedAddress) bool { return a.Prefix.Addr() == node })
}

// load reads the file; nil if there is none. A damaged file is an error once: it is moved away by
// the next save.
func load(path string) (*memory, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &memory{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; it is removed and written again", path, err), os.Remove(path))
	}
	return m, nil
}

// save replaces the file.
func (m *memory) save(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return statefile.WriteBytes(path, 0o600, b)
}

// keptFlags of an address are those that are configured; the others are its state.
const keptFlags = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS

func addressesOf(link netlink.Link) ([]savedAddress, error) {
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	return saveAddresses(list), nil
}

// saveAddresses leaves out what comes by itself.
func saveAddresses(list []netlink.Addr) []savedAddress {
	var saved []savedAddress
	for _, a := range list {
		p := prefix(a.IPNet)
		if p.Addr().IsLinkLocalUnicast() || a.Flags&unix.IFA_F_MANAGETEMPADDR != 0 {
			continue
		}
		saved = append(saved, savedAddress{Prefix: p, Label: a.Label, Scope: a.Scope, Flags: a.Flags & keptFlags})
	}
	return saved
}

func (a savedAddress) netlink() *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix), Label: a.Label, Scope: a.Scope, Flags: a.Flags}
	if a.Prefix.Addr().Is6() {
		// It was this node's a moment ago; the check for duplicates would cost a second.
		addr.Flags |= unix.IFA_F_NODAD
	}
	return addr
}

// kernelRoutes are made by the kernel itself, or by Host.
var kernelRoutes = []netlink.RouteProtocol{unix.RTPROT_KERNEL, unix.RTPROT_REDIRECT, unix.RTPROT_RA, Protocol}

func routesOf(link netlink.Link) ([]savedRoute, error) {
	var all []netlink.Route
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}
		list, err := dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(f, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, err
		}
		all = append(all, list...)
	}
	return saveRoutes(all), nil
}

// saveRoutes leaves out what comes by itself. A route through a gateway needs the one that leads to
// the gateway, so the narrowest scopes come first.
func saveRoutes(list []netlink.Route) []savedRoute {
	var saved []savedRoute
	for _, r := range list {
		if r.Table != unix.RT_TABLE_LOCAL && r.Type == unix.RTN_UNICAST && !slices.Contains(kernelRoutes, r.Protocol) {
			saved = append(saved, saveRoute(r))
		}
	}
	slices.SortStableFunc(saved, func(a, b savedRoute) int { return b.Scope - a.Scope })
	return saved
}

func saveRoute(r netlink.Route) savedRoute {
	return savedRoute{
		Destination: prefix(r.Dst), Gateway: addr(r.Gw), Source: addr(r.Src), Table: r.Table, Metric: r.Priority,
		Protocol: int(r.Protocol), Scope: int(r.Scope), MTU: r.MTU, OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
	}
}

func (r savedRoute) netlink(device int) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: device, Dst: ipNet(r.Destination), Table: r.Table, Priority: r.Metric,
		Protocol: netlink.RouteProtocol(r.Protocol), Scope: netlink.Scope(r.Scope), MTU: r.MTU,
	}
	if r.Gateway.IsValid() {
		route.Gw = r.Gateway.AsSlice()
	}
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	if r.OnLink {
		route.Flags = unix.RTNH_F_ONLINK
	}
	return route
}

// BootID is the kernel's random name of its present run; empty if it cannot be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
