// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"iter"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// gatewayFeature lets what this node has of a Router out of the cluster by an address of an
// external Network that is this node's own. conntrack writes it over the source, after policies, in
// a zone of the Router's that is for nothing else: so it finds replies, where they come from the
// wire, before their Port is known. A Port's floating IP comes first.
//
// A routed gateway writes nothing. What leaves has the Port's own address, and the MAC of the
// node's address as source; what the wire sends to that MAC for one of the Router's Networks is
// routed in the Router.
var gatewayFeature = &feature{
	number: 29,
	name:   "gateway",
	tables: []Table{gatewayRoute, gatewayReply, gatewaySource},
	needed: (*rules).answersOutside,
	local: func(r *rules) {
		r.keepInCluster(netip.MustParsePrefix("169.254.0.0/16"))
		if r.routesPrivate() {
			r.on(gatewayRoute, 0).toClusterSource()
		}
	},
	node: func(r *rules, n intent.Node) {
		for _, a := range n.Addresses {
			r.keepInCluster(host(a))
		}
		r.routeToNodesPods(n)
	},
	network: func(r *rules, n intent.Network) {
		if r.inCluster(n) {
			for _, s := range n.Subnets {
				r.keepInCluster(s.Prefix)
			}
		}
	},
	serviceRange: func(r *rules, s intent.ServiceRange) { r.keepInCluster(s.Prefix) },
	router: func(r *rules, rt intent.Router) {
		if rt.Private() {
			r.defaultByGateway(rt)
		}
	},
	gatewayAddress: func(r *rules, g intent.GatewayAddress) {
		if g.Node != r.local.Node {
			return
		}
		e, rt, ok := r.gateway(g)
		if !ok {
			return
		}
		e.answered()
		if g.Routed {
			e.routed(rt)
		} else {
			e.translated(rt)
		}
	},
	port: func(r *rules, p intent.Port) {
		n, rt, ok := r.lookup(p.Network)
		if !ok || n.Physical != "" {
			return
		}
		for g := range r.gatewayAddresses(rt) {
			e, ok := r.externalAddress(g.Network, g.Address)
			if !ok {
				continue
			}
			if g.Routed {
				r.byOwnAddresses(p, n, rt, e)
				continue
			}
			list, _ := r.translations(p, e)
			for _, t := range list {
				t.byGateway(egressWay{router: rt, below: belowEgress})
			}
		}
	},
}

// translated gives conntrack what comes for the address, which finds replies in the zone of a
// Router's gateway, and lets go on what it has given the address as source.
func (e externalAddress) translated(rt intent.Router) {
	r := e.r
	e.measured(r.mtuIn(rt))
	back := openflow.CT{
		Zone: datapath.GatewayZone(rt.ID), Table: openflow.Table(gatewayReply.ID), NAT: &openflow.NAT{},
	}
	r.on(floatingPort, 100, e.sent()...).set(inNoNetwork, inRouter(rt)).do(openflow.DecTTL(), back).end()
	r.on(gatewaySource, 100, inNetwork(e.external), openflow.IPSrc(e.address)).goTo(nextHop)
	for _, icmp := range icmpErrorsOf(e.address) { // conntrack translates what they quote
		r.on(fromExternal, 250, append(e.sent(), icmp)...).goTo(floatingIP)
	}
}

// leave has conntrack know a connection that leaves the cluster.
func (e externalAddress) leave(way egressWay) openflow.Action {
	if way.byPolicy {
		return e.track(way.router)
	}
	return e.commit(way.router)
}

// commit has conntrack write the address over the source.
func (e externalAddress) commit(rt intent.Router) openflow.Action {
	return openflow.CT{
		Commit: true, Zone: datapath.GatewayZone(rt.ID), Table: openflow.Table(gatewaySource.ID),
		NAT: &openflow.NAT{SNAT: true, AddrMin: e.address},
	}
}

// gateway finds out what an address comes to on the node that has it; false if nothing can be made
// of it.
func (r *rules) gateway(g intent.GatewayAddress) (e externalAddress, rt intent.Router, ok bool) {
	if rt, ok = r.router(g.Router); ok {
		e, ok = r.externalAddress(g.Network, g.Address)
	}
	return e, rt, ok
}

// byGateway lets a Port out by an address that conntrack writes over its own, and the replies in.
func (t *translation) byGateway(way egressWay) {
	r := t.r
	for _, when := range way.matches(t.address) {
		t.toWire(way.below, when...)
		match := append([]openflow.FieldValue{
			openflow.InPort(r.number(t.port)), inNetwork(t.external), openflow.IPSrc(t.known),
		}, when...)
		r.on(externalSource, 70-10*way.below, match...).set(openflow.EthSrc(t.mac)).
			do(openflow.DecTTL(), t.leave(way)).end()
	}
	t.quotesOfPort(way.below)
	// Ways in one Router have the same replies.
	if reply := r.on(gatewayReply, 100, inRouter(way.router), openflow.IPDst(t.known), isLater); !reply.added() {
		reply.set(inRouter(t.space)).set(r.toLocal(t.port)...).deliver()
	}
}

// gatewayAddresses are those that this node has as a gateway of the Router.
func (r *rules) gatewayAddresses(rt intent.Router) iter.Seq[intent.GatewayAddress] {
	r.dependOn(unitKey{kindGateways, rt.Name})
	return r.state.GatewayAddressesOf(r.local.Node, rt.Name)
}

// router looks up a Router, and reports a problem when it is missing.
func (r *rules) router(name string) (intent.Router, bool) {
	r.dependOn(unitKey{kindRouter, name})
	rt, ok := r.state.Routers().Get(name)
	if !ok {
		r.problem("router %q does not exist", name)
	}
	return rt, ok
}

// mtuIn is what fits all interfaces of a Router, in bytes.
func (r *rules) mtuIn(rt intent.Router) int {
	r.dependOn(unitKey{kindJoined, rt.Name})
	mtu := r.local.MTU
	for n := range r.state.NetworksOf(rt.Name) {
		r.dependOn(unitKey{kindNetwork, n.Name})
		mtu = min(mtu, cmp.Or(n.MTU, mtu))
	}
	return mtu
}
