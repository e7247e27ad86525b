// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"iter"
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// routed takes from the wire what is sent to the MAC of the address for the Router's Networks, and
// finds the next hop of what leaves with this MAC.
func (e externalAddress) routed(rt intent.Router) {
	r := e.r
	for s := range r.prefixesOf(rt) {
		e.routeTo(rt, s)
	}
	for s := range r.sourcesIn(rt) {
		if s.Addr().Is4() == e.address.Is4() {
			r.on(floatingIP, 310, append(e.toMAC(), openflow.IPSrc(s))...).
				drop("the source address is one of the router's, which the outside cannot have")
		}
	}
	for _, icmp := range icmpErrorsOf(e.address) { // what they quote is as it was sent
		r.on(fromExternal, 250, append(e.toMAC(), icmp)...).goTo(floatingIP)
	}
	for _, s := range e.external.Subnets {
		if s.Prefix.Contains(e.address) {
			e.leaveBy(s.Gateway)
		}
	}
}

// routeTo routes in the Router what comes from the wire for a prefix of its own.
func (e externalAddress) routeTo(rt intent.Router, prefix netip.Prefix) {
	r := e.r
	home, ok := r.home(rt)
	if !ok || prefix.Addr().Is4() != e.address.Is4() {
		return
	}
	sent := append(e.toMAC(), openflow.IPDst(prefix))
	r.on(floatingIP, 90, sent...).measured(r.mtuIn(rt))
	r.on(floatingPort, 90, sent...).set(inNoNetwork, inRouter(home), routedIn, openflow.EthDst(routerMAC)).
		do(openflow.DecTTL()).goTo(l3)
}

// routeToNodesPods routes what comes from the wire for the pods of a node, which are in the Router
// default, but not what is for the node itself.
func (r *rules) routeToNodesPods(n intent.Node) {
	for g := range r.routedGateways(intent.DefaultRouterName) {
		e, rt, ok := r.gateway(g)
		if !ok {
			continue
		}
		for _, s := range n.Subnets {
			e.routeTo(rt, s.Prefix)
			if s.Gateway.Is4() == e.address.Is4() {
				r.on(floatingIP, 95, append(e.toMAC(), openflow.IPDst(host(s.Gateway)))...).
					drop("the address is a node's, which the outside does not reach by a router's gateway")
			}
		}
	}
}

// leaveBy sends what leaves with the MAC of the address to a gateway of the external Network,
// unless it is for a host on the Network.
func (e externalAddress) leaveBy(gateway netip.Addr) {
	r, key := e.r, NeighbourKey{e.external.Name, gateway}
	leaving := r.on(nextHop, 55, inNetwork(e.external), openflow.EthSrc(e.mac), familyOf(e.address))
	r.dependOn(unitKey{kindNeighbour, key.text()})
	if mac, known := r.numbers.neighbour(key); known {
		leaving.toWire(e.external, openflow.MAC(mac))
		return
	}
	leaving.do(unresolved(e.uplink, gateway)).end()
}

// byOwnAddresses lets a Port out with its own addresses, and the MAC of an address of this node.
// Floating IPs and Egresses come first.
func (r *rules) byOwnAddresses(p intent.Port, n intent.Network, rt intent.Router, e externalAddress) {
	home, ok := r.home(rt)
	if !ok {
		return
	}
	in := openflow.InPort(r.number(p))
	for _, a := range p.Addresses {
		if a.Is4() != e.address.Is4() {
			continue
		}
		if _, inCluster := firstOf(r.clusterAddresses(p), a); inCluster && rt.Private() {
			// Before the address in the cluster is written over it.
			r.on(gatewayRoute, 90, in, openflow.IPSrc(a)).set(e.byUplink()...).deliver()
		} else {
			(&translation{e, p, n, rt, a, home}).toWire(belowEgress)
		}
		r.on(externalSource, 70-10*belowEgress, in, inNetwork(e.external), openflow.IPSrc(a)).
			set(openflow.EthSrc(e.mac)).do(openflow.DecTTL()).goTo(nextHop)
	}
}

// byOtherAddress keeps what leaves a private Router by a floating IP or an Egress from its routed
// gateway; below is as in translation.way.
func (r *rules) byOtherAddress(p intent.Port, rt intent.Router, below uint16, when ...openflow.FieldValue) {
	if !rt.Private() {
		return // its own routes have an order
	}
	for range r.routedGateways(rt.Name) {
		if w := r.on(gatewayRoute, 96-below, append(when, openflow.InPort(r.number(p)))...); !w.added() {
			w.toClusterSource()
		}
		return
	}
}

// defaultByGateway makes routed gateways of this node the default routes of a private Router.
func (r *rules) defaultByGateway(rt intent.Router) {
	for g := range r.routedGateways(rt.Name) {
		family := familyOf(g.Address)
		if w := r.on(l3, 90, inRouter(rt), from(fromPod), family); !w.added() {
			r.beyondRoutes(w, rt, defaultRoute)
			r.on(defaultRoute, 50, inRouter(rt), family).goTo(gatewayRoute)
		}
	}
}

// keepInCluster keeps what is for a prefix from routed gateways of private Routers. Prefixes of
// nodes are kept from any default route.
func (r *rules) keepInCluster(prefix netip.Prefix) {
	if r.routesPrivate() {
		r.on(gatewayRoute, 200, openflow.IPDst(prefix)).toClusterSource()
	}
}

// toClusterSource ends a flow of what leaves a private Router as without a routed gateway.
func (w flow) toClusterSource() { w.do(openflow.Resubmit(clusterSource.ID)).end() }

// routedGateways are the routed ones of the gateway addresses that this node has for a Router.
func (r *rules) routedGateways(router string) iter.Seq[intent.GatewayAddress] {
	r.dependOn(unitKey{kindGateways, router})
	return func(yield func(intent.GatewayAddress) bool) {
		for g := range r.state.GatewayAddressesOf(r.local.Node, router) {
			if g.Routed && !yield(g) {
				return
			}
		}
	}
}

// routesIn reports whether this node has any routed gateway address.
func (r *rules) routesIn() bool {
	r.dependOn(unitKey{kind: kindGateways})
	for g := range r.state.GatewayAddressesAt(r.local.Node) {
		if g.Routed {
			return true
		}
	}
	return false
}

// routesPrivate reports whether this node may have a routed gateway address for a private Router.
func (r *rules) routesPrivate() bool { return r.routesIn() && r.anyPrivate() }

// prefixesOf are those of a Router's own Networks.
func (r *rules) prefixesOf(rt intent.Router) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		r.dependOn(unitKey{kindJoined, rt.Name})
		for n := range r.state.NetworksOf(rt.Name) {
			r.dependOn(unitKey{kindNetwork, n.Name})
			for _, s := range n.Subnets {
				if !yield(s.Prefix) {
					return
				}
			}
		}
	}
}

// sourcesIn are the prefixes of the Networks that a private Router has routes to: what comes from
// the wire has no such source. Those of shared Routers are kept out for all.
func (r *rules) sourcesIn(rt intent.Router) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		if !rt.Private() {
			return
		}
		seen := map[netip.Prefix]bool{}
		for _, name := range append([]string{rt.Name}, rt.Imports...) {
			r.dependOn(unitKey{kindRouter, name})
			of, ok := r.state.Routers().Get(name)
			if !ok {
				continue
			}
			for s := range r.prefixesOf(of) {
				if !seen[s] {
					seen[s] = true
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}
