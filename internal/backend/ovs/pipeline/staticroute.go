// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// staticRouteFeature leads prefixes by way of a port that forwards them, such as
// a virtual machine, on whatever node it is. That port may send from them, too.
var staticRouteFeature = &feature{
	number: 10,
	name:   "static-route",
	router: func(r *rules, rt intent.Router) {
		routes := effective(rt.Routes)
		if len(routes) < len(rt.Routes) {
			r.problem("of several routes to one destination only the first has an effect")
		}
		for _, route := range routes {
			all := route.Destination.Bits() == 0
			if all && !rt.Private() {
				r.problem("a route to %s by way of %s has no effect: only a private router can have one",
					route.Destination, route.NextHop)
				continue
			}
			if all { // it is the router's own
				r.beyondRoutes(r.route(rt, route.Destination), rt, defaultRoute)
				r.staticRoute(defaultRoute, rt, rt, route)
				continue
			}
			for _, reader := range r.readers(rt) {
				// A shared router has the cluster's routes, which another's must not come before.
				if reader.Private() || !rt.Private() {
					r.staticRoute(l3, reader, rt, route)
				}
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		_, rt, ok := r.lookup(p.Network)
		if !ok {
			return
		}
		in, eth := openflow.InPort(r.number(p)), openflow.EthSrc(openflow.MAC(p.MAC))
		for _, route := range effective(rt.Routes) {
			for _, a := range p.Addresses {
				if a == route.NextHop {
					source := familyOf(a)
					if route.Destination.Bits() > 0 {
						source = openflow.IPSrc(route.Destination)
					}
					r.on(spoofguard, 90, in, eth, source).forward()
				}
			}
		}
	},
}

// isNextHop says whether any static route leads by way of the port.
func isNextHop(rt intent.Router, p intent.Port) bool {
	return slices.ContainsFunc(rt.Routes, func(route intent.Route) bool {
		return slices.Contains(p.Addresses, route.NextHop)
	})
}

// effective are the first routes to each destination.
func effective(routes []intent.Route) (list []intent.Route) {
	for _, route := range routes {
		if !slices.ContainsFunc(list, func(o intent.Route) bool { return o.Destination == route.Destination }) {
			list = append(list, route)
		}
	}
	return list
}

// staticRoute emits a route of router rt, in table t, for one of the readers of rt.
func (r *rules) staticRoute(t Table, reader, rt intent.Router, route intent.Route) {
	p, node := r.nextHop(rt, route.NextHop)
	if node == r.local.Node && p.ID != "" {
		r.deliver(t, reader, rt, route.Destination, p)
		return
	}
	if node != "" && node != r.local.Node {
		if n, ok := r.node(node); ok && r.routeToNode(t, reader, rt, route.Destination, n) {
			return
		}
	}
	r.routeIn(t, reader, route.Destination).drop("the next hop is not known, or out of reach")
}

// nextHop finds the port with an address on one of the router's networks, or at
// least the node that hands the address out.
func (r *rules) nextHop(rt intent.Router, a netip.Addr) (p intent.Port, node string) {
	r.dependOn(addressKey(a))
	for p := range r.state.PortsWith(a) {
		if n, of, ok := r.lookup(p.Network); ok && n.Physical == "" && of.Name == rt.Name {
			return p, p.Node
		}
	}
	r.dependOn(unitKey{kindJoined, rt.Name})
	for n := range r.state.NetworksOf(rt.Name) {
		r.dependOn(unitKey{kindBlocksOf, n.Name})
		for b := range r.state.BlocksOf(n.Name) {
			if b.Prefix.Contains(a) {
				return p, b.Node
			}
		}
	}
	return p, ""
}
