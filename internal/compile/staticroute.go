// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// staticRouteFeature leads prefixes by way of a port that forwards them, such as
// a virtual machine, on whatever node it is. That port may send from them, too.
var staticRouteFeature = &feature{
	number: 10,
	name:   "static-route",
	router: func(r *rules, rt intent.Router) {
		for _, route := range rt.Routes {
			all := route.Destination.Bits() == 0
			if all && !rt.Private() {
				r.problem("a route to %s by way of %s has no effect: only a private router can have one", route.Destination, route.NextHop)
				continue
			}
			readers := []intent.Router{rt}
			if !all { // a default route is the router's own
				readers = r.readers(rt)
			}
			for _, reader := range readers {
				r.staticRoute(reader, rt, route)
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		_, rt, ok := r.lookup(p.Network)
		if !ok {
			return
		}
		in, eth := openflow.InPort(p.OFPort), openflow.EthSrc(openflow.MAC(p.MAC))
		for _, route := range rt.Routes {
			for _, a := range p.Addresses {
				if a == route.NextHop {
					source := familyOf(a)
					if route.Destination.Bits() > 0 {
						source = openflow.IPSrc(route.Destination)
					}
					r.on(spoofguard, 90, in, eth, source).goTo(forwarding)
				}
			}
		}
	},
}

func (r *rules) staticRoute(reader, rt intent.Router, route intent.Route) {
	if p, ok := r.portWith(rt, route.NextHop); ok {
		if p.Node == r.local.Node {
			r.deliver(l3, reader, rt, route.Destination, p)
		} else if n, ok := r.node(p.Node); ok {
			r.routeToNode(reader, rt, route.Destination, n)
		}
		return
	}
	if node := r.blockOwner(rt, route.NextHop); node != "" && node != r.local.Node {
		if n, ok := r.node(node); ok {
			r.routeToNode(reader, rt, route.Destination, n)
		}
		return
	}
	r.route(reader, route.Destination).drop("no port is known to have the address of the route's next hop")
}

// portWith finds the port with an address on one of the router's networks.
func (r *rules) portWith(rt intent.Router, a netip.Addr) (intent.Port, bool) {
	r.need(addressKey(a))
	for p := range r.state.PortsWith(a) {
		if n, of, ok := r.lookup(p.Network); ok && n.Physical == 0 && of.Name == rt.Name {
			return p, true
		}
	}
	return intent.Port{}, false
}

// blockOwner finds the node that hands out an address on one of the router's
// networks; empty if there is none.
func (r *rules) blockOwner(rt intent.Router, a netip.Addr) string {
	r.need(unitKey{kindJoined, rt.Name})
	for n := range r.state.NetworksOf(rt.Name) {
		r.need(unitKey{kindBlocksOf, n.Name})
		for b := range r.state.BlocksOf(n.Name) {
			if b.Prefix.Contains(a) {
				return b.Node
			}
		}
	}
	return ""
}
