// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	nl "github.com/vishvananda/netlink"
)

// TunnelRoute is the way to one host.
type TunnelRoute struct {
	Dst netip.Addr
	// Dev is the bridge that it leads out of.
	Dev string
	// Gateway is the next hop; zero if Dst is a neighbor itself.
	Gateway netip.Addr
}

// tunnelRoutes are what ovs-vswitchd was told of the ways to peers.
//
// It reads the kernel's routes itself, but at each change of any interface or route it forgets them
// all first, and a flow that is translated in between loses its packets until the next translation
// (ovs: lib/route-table.c). Routes to single hosts that were added are not forgotten.
type tunnelRoutes struct {
	basis   basis
	written map[netip.Addr]TunnelRoute
}

// basis is what all routes rest on: ovs-vswitchd itself, the bridge and its addresses, of which
// ovs-vswitchd chooses a route's source once, when the route is added.
type basis struct {
	renewals  int
	bridge    string
	index     int
	addresses string
}

func basisOf(link nl.Link, renewals int) (basis, error) {
	addresses, err := dump(func() ([]nl.Addr, error) { return nl.AddrList(link, nl.FAMILY_ALL) })
	if err != nil {
		return basis{}, fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	b := basis{renewals: renewals, bridge: link.Attrs().Name, index: link.Attrs().Index}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			b.addresses += a.IPNet.String() + " "
		}
	}
	return b, nil
}

// route makes the routes to peers those that the kernel has now.
func (n *Neighbours) route(ctx context.Context, link nl.Link, renewals int, hops []hop) error {
	now, err := basisOf(link, renewals)
	if err != nil {
		return err
	}
	if now != n.routes.basis {
		found, err := n.tables.HostRoutes(ctx)
		if err != nil {
			return fmt.Errorf("tunnel routes: %w", err)
		}
		n.routes.rest(now, found)
	}
	return n.routes.become(ctx, n.tables, routesBy(hops, now.bridge))
}

// routesBy are the routes to peers through next hops on a bridge.
func routesBy(hops []hop, bridge string) map[netip.Addr]TunnelRoute {
	routes := map[netip.Addr]TunnelRoute{}
	for _, h := range hops {
		r := TunnelRoute{Dst: h.peer, Dev: bridge}
		if h.addr != h.peer {
			r.Gateway = h.addr
		}
		routes[h.peer] = r
	}
	return routes
}

// rest starts anew on another basis. All that is there has to be written again, or deleted, an
// earlier run's too; one that leads to the loopback is the trace of a deletion that was
// interrupted. Routes that lead elsewhere belong to other programs.
func (t *tunnelRoutes) rest(now basis, found []TunnelRoute) {
	before := t.written
	t.basis, t.written = now, map[netip.Addr]TunnelRoute{}
	for _, r := range found {
		if _, ours := before[r.Dst]; ours || r.Dev == now.bridge || r.Gateway.IsLoopback() {
			t.written[r.Dst] = TunnelRoute{}
		}
	}
}

// become writes what differs. A route that cannot be as it should is removed: a wrong one is worse
// than none, since then the kernel's counts.
func (t *tunnelRoutes) become(ctx context.Context, tables TunnelTables, want map[netip.Addr]TunnelRoute) error {
	var errs []error
	failed := func(dst netip.Addr, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("tunnel route to %s: %w", dst, err))
		}
	}
	for dst, r := range want {
		old, there := t.written[dst]
		if there && old == r {
			continue
		}
		if err := tables.SetRoute(ctx, r); err != nil {
			failed(dst, err)
			delete(want, dst)
			continue
		}
		t.written[dst] = r
	}
	for dst := range t.written {
		if _, wanted := want[dst]; wanted {
			continue
		}
		if err := tables.DeleteRoute(ctx, dst); err != nil {
			failed(dst, err)
			continue
		}
		delete(t.written, dst)
	}
	return errors.Join(errs...)
}
