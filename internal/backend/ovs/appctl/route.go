// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"context"
	"errors"
	"net/netip"
	"strings"
)

// Route is one to a single host, in the table that ovs-vswitchd routes its own tunnels by
// (userspace datapath). Such a route goes before the kernel's, and stays when ovs-vswitchd reads
// these anew (ovs: lib/ovs-router.c).
type Route struct {
	Dst netip.Addr
	// Dev is the bridge, or another interface, that it leads out of.
	Dev string
	// Gateway is the next hop; zero if Dst is a neighbor itself.
	Gateway netip.Addr
}

// HostRoutes lists the routes that were added by SetRoute or by hand.
func (c *Client) HostRoutes(ctx context.Context) ([]Route, error) {
	text, err := c.Call(ctx, "ovs/route/show")
	return parseHostRoutes(text), err
}

// parseHostRoutes reads lines such as "User: 10.0.0.2/32 dev br0 GW 10.1.0.1 SRC 10.1.0.5". Routes
// to more than one host, and those for marked packets only, are left out.
func parseHostRoutes(text string) []Route {
	var routes []Route
	for line := range strings.Lines(text) {
		rest, added := strings.CutPrefix(line, "User: ")
		words := strings.Fields(rest)
		if !added || len(words) < 3 || words[1] != "dev" {
			continue
		}
		dst, err := netip.ParsePrefix(words[0])
		if err != nil || !dst.IsSingleIP() {
			continue
		}
		r := Route{Dst: dst.Addr(), Dev: words[2]}
		if len(words) > 4 && words[3] == "GW" {
			if r.Gateway, err = netip.ParseAddr(words[4]); err != nil {
				continue
			}
		}
		routes = append(routes, r)
	}
	return routes
}

// SetRoute adds a route, or replaces the one to the same host. ovs-vswitchd refuses it while Dev
// has no address on the link of the next hop.
func (c *Client) SetRoute(ctx context.Context, r Route) error {
	args := []string{hostPrefix(r.Dst), r.Dev}
	if r.Gateway.IsValid() {
		args = append(args, r.Gateway.String())
	}
	_, err := c.Call(ctx, "ovs/route/add", args...)
	return err
}

// DeleteRoute removes the route to a host. It is no error if there is none.
//
// With any route out of a bridge ovs-vswitchd also forgets that tunnels end at the bridge's
// addresses, and takes nothing from them until it reads all routes anew. So the route is first led
// to where no tunnel ends.
func (c *Client) DeleteRoute(ctx context.Context, dst netip.Addr) error {
	loopback := Route{Dst: dst, Dev: "lo", Gateway: netip.MustParseAddr("127.0.0.1")}
	if dst.Is6() {
		loopback.Gateway = netip.IPv6Loopback()
	}
	if err := c.SetRoute(ctx, loopback); err != nil {
		return err
	}
	_, err := c.Call(ctx, "ovs/route/del", hostPrefix(dst))
	if refused := new(Error); errors.As(err, &refused) && refused.Text == "Not found" {
		err = nil
	}
	return err
}

func hostPrefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }
