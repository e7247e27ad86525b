// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks Coelan's routes (rtm_protocol), so that stale ones are found exactly and no other
// route is touched.
const Protocol netlink.RouteProtocol = 206

// Route is one route of the main table. Its protocol is Protocol.
type Route struct {
	// Destination is the masked prefix.
	Destination netip.Prefix
	// Via is the next hop; the zero value makes an on-link route through the gateway interface.
	Via netip.Addr
	// Gateway sends through the gateway interface, with Via taken to be on that link. Otherwise the
	// kernel finds the interface by Via.
	Gateway bool
	// Source is the address that the host itself uses toward the destination; may be zero.
	Source netip.Addr
	// MTU of the way, if it is smaller than the interface's; 0: the interface's.
	MTU int
}

// routeKey is a route as the kernel lists it.
type routeKey struct {
	dst    netip.Prefix
	via    netip.Addr
	src    netip.Addr
	device int
	mtu    int
}

func (h *Host) applyRoutes(d Desired) (int, error) {
	have, err := h.ownRoutes()
	if err != nil {
		return 0, err
	}
	want, errs := resolveRoutes(d.Routes, d.Gateway.Name, h.gatewayIndex(d.Gateway.Name), onLink)
	var n int
	changes, stale := planRoutes(have, want)
	for _, c := range changes {
		if err := h.writeRoute(c.route, c.replaces != nil); err != nil {
			errs = append(errs, fmt.Errorf("route %s: %w", prefix(c.route.Dst), err))
			continue
		}
		n++
		if c.leaves() {
			_ = h.nl.RouteDel(c.replaces)
		}
	}
	for _, r := range stale {
		if err := h.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("route %s: delete: %w", prefix(r.Dst), err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// routeChange is a route to write.
type routeChange struct {
	route netlink.Route
	// replaces is a route of our own to the same destination; nil: there is none.
	replaces *netlink.Route
}

// leaves says that the kernel may keep the replaced route: IPv6 replaces by metric, not by device.
func (c routeChange) leaves() bool {
	return c.replaces != nil && c.route.Dst.IP.To4() == nil && c.replaces.LinkIndex != c.route.LinkIndex
}

// planRoutes leads from the routes there are to those that are wanted: the changes come first, then
// what is stale is deleted. A route that only changed its way is a replacement, so that there is no
// moment without one.
func planRoutes(have, want map[routeKey]netlink.Route) (changes []routeChange, stale []netlink.Route) {
	old := map[netip.Prefix][]netlink.Route{}
	for _, k := range sortedKeys(have) {
		if _, ok := want[k]; !ok {
			old[k.dst] = append(old[k.dst], have[k])
		}
	}
	for _, k := range sortedKeys(want) {
		if _, ok := have[k]; ok {
			continue
		}
		c := routeChange{route: want[k]}
		if same := old[k.dst]; len(same) > 0 {
			c.replaces, old[k.dst] = &same[0], same[1:]
		}
		changes = append(changes, c)
	}
	for _, routes := range old {
		stale = append(stale, routes...)
	}
	slices.SortFunc(stale, func(a, b netlink.Route) int { return keyOf(a).compare(keyOf(b)) })
	return changes, stale
}

// RemoveRoutes deletes all routes and rules that carry Protocol.
func (h *Host) RemoveRoutes() error {
	have, err := h.ownRoutes()
	if err != nil {
		return err
	}
	errs := []error{h.removeReplies()}
	for k, r := range have {
		if err := h.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("route %s: delete: %w", k.dst, err))
		}
	}
	return errors.Join(errs...)
}

// writeRoute adds r. Only a route of our own is ever replaced: another program's route to the same
// prefix is an error.
func (h *Host) writeRoute(r netlink.Route, replace bool) error {
	if replace {
		return h.nl.RouteReplace(&r)
	}
	err := h.nl.RouteAdd(&r)
	if errors.Is(err, unix.EEXIST) {
		return errors.New("there is one already that Coelan did not make; remove it")
	}
	return err
}

// ownRoutes lists the main table's routes with our protocol number.
func (h *Host) ownRoutes() (map[routeKey]netlink.Route, error) {
	own := map[routeKey]netlink.Route{}
	filter := &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_MAIN}
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]netlink.Route, error) {
			return h.nl.RouteListFiltered(f, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		})
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			own[keyOf(r)] = r
		}
	}
	return own, nil
}

func keyOf(r netlink.Route) routeKey {
	return routeKey{dst: prefix(r.Dst), via: addr(r.Gw), src: addr(r.Src), device: r.LinkIndex, mtu: r.MTU}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// gatewayIndex is the index of the gateway interface; 0: it is missing or down.
func (h *Host) gatewayIndex(name string) int {
	link, err := h.nl.LinkByName(name)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return 0
	}
	return link.Attrs().Index
}

// resolveRoutes gives each route its interface: the gateway's with that index, or that of the next
// hop as find says. A missing interface is an error of its own for each route.
func resolveRoutes(
	routes []Route, gateway string, index int, find func(via netip.Addr) (int, error),
) (map[routeKey]netlink.Route, []error) {
	want := map[routeKey]netlink.Route{}
	var errs []error
	for _, r := range routes {
		device := index
		if !r.Gateway {
			var err error
			if device, err = find(r.Via); err != nil {
				errs = append(errs, fmt.Errorf("route %s: %w", r.Destination, err))
				continue
			}
		}
		if device == 0 {
			errs = append(errs, fmt.Errorf("route %s: interface %s is missing or down", r.Destination, gateway))
			continue
		}
		nr := r.netlink(device)
		want[keyOf(nr)] = nr
	}
	return want, errs
}

func (r Route) netlink(device int) netlink.Route {
	nr := netlink.Route{
		Dst:       ipNet(r.Destination),
		LinkIndex: device,
		Protocol:  Protocol,
		Table:     unix.RT_TABLE_MAIN,
		Scope:     netlink.SCOPE_UNIVERSE,
		Type:      unix.RTN_UNICAST,
		MTU:       r.MTU,
	}
	if r.Source.IsValid() {
		nr.Src = r.Source.AsSlice()
	}
	switch {
	case !r.Via.IsValid():
		nr.Scope = netlink.SCOPE_LINK
	case r.Gateway:
		nr.Gw = r.Via.AsSlice()
		nr.Flags = int(netlink.FLAG_ONLINK)
	default:
		nr.Gw = r.Via.AsSlice()
	}
	return nr
}

// onLink finds the interface that has a prefix with via.
func onLink(via netip.Addr) (int, error) {
	// Not by h.nl: the request of this library does not pass strict checks for IPv6.
	routes, err := netlink.RouteGet(via.AsSlice())
	return nextHopLink(via, routes, err)
}

// nextHopLink reads the kernel's answer to which way leads to via.
func nextHopLink(via netip.Addr, routes []netlink.Route, err error) (int, error) {
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("next hop %s: no way there: %w", via, err)
	}
	if routes[0].Gw != nil {
		return 0, fmt.Errorf("next hop %s is behind the router %s; noEncap needs all nodes in one L2 segment", via,
			routes[0].Gw)
	}
	return routes[0].LinkIndex, nil
}

func sortedKeys(m map[routeKey]netlink.Route) []routeKey {
	keys := make([]routeKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, routeKey.compare)
	return keys
}

// compare orders by destination first.
func (k routeKey) compare(o routeKey) int {
	return cmp.Or(k.dst.Addr().Compare(o.dst.Addr()), cmp.Compare(k.dst.Bits(), o.dst.Bits()), k.via.Compare(o.via),
		k.src.Compare(o.src), cmp.Compare(k.device, o.device), cmp.Compare(k.mtu, o.mtu))
}
