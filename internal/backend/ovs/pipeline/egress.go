// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/rendezvous"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/openflow"
)

// egressFeature has Ports of all nodes leave the cluster by addresses of external Networks for
// which one node is active at a time. Other nodes send to that node through the tunnel what the
// cluster has no route for: with the Router's VNI, and with the MAC of the address as destination,
// which tells the node by which address the packet leaves. The active node translates as for a
// Router's gateway, and routes the replies in the Router. Replies, and packets that a node passes
// on as another one has become active, have a MAC of their own as source.
//
// The policies of the Port's node are the only ones that judge such packets.
var egressFeature = &feature{
	number: 30,
	name:   "egress",
	needed: (*rules).answersOutside,
	local: func(r *rules) {
		if !r.tunneled() {
			return
		}
		if r.usesEgress() {
			r.meter(uplinkMeter(datapath.TunnelPort, icmpErrors), uplinkRates[icmpErrors])
		}
		if r.relays("") {
			// The TTL was counted where the packet came in.
			r.on(ttl, 250, from(fromUplink)).set(openflow.EthSrc(relayMAC)).goTo(output)
		}
		if r.routesIn() {
			// So was that of these. They are no answers, which alone reach some Ports.
			r.on(ttl, 260, from(fromUplink), routedIn).goTo(output)
		}
		if r.relays("") && r.anyPrivate() {
			r.on(clusterSource, 100, from(fromUplink)).goTo(cluster)
		}
	},
	node: func(r *rules, n intent.Node) {
		if n.Name == r.local.Node || !r.tunneled() || !r.anyPrivate() || !r.relays("") {
			return
		}
		for _, s := range n.Subnets {
			// That node knows which of these addresses are of Ports in the private Router. Its VNI
			// is set.
			if remote, ok := r.endpoint(n, s.Prefix); ok {
				r.beyond(s.Prefix, from(fromUplink)).set(throughTunnel(routerMAC, remote)...).
					set(toPort(datapath.TunnelPort)).goTo(ttl)
			}
		}
	},
	network: func(r *rules, n intent.Network) {
		if e, ok := r.probes(n); ok {
			e.reachable() // the answers to this node's own questions
		}
	},
	router: func(r *rules, rt intent.Router) {
		if home, ok := r.home(rt); ok && r.tunneled() && r.relays(rt.Name) {
			r.on(gatewayReply, 50, inRouter(rt), isLater).set(inRouter(home)).goTo(l3)
		}
	},
	egressAddress: func(r *rules, a intent.EgressAddress) {
		if !slices.Contains(a.Nodes, r.local.Node) {
			return
		}
		e, rt, ok := r.egressHere(a)
		if !ok {
			return
		}
		e.reachable()
		path, byPolicy := r.policyPath(a.Egress)
		if byPolicy {
			e.answersByPolicy(rt, path)
		} else {
			e.translated(rt)
		}
		state := r.egressState(a)
		if state.Active != r.local.Node {
			e.rivals()
			e.passedOn(rt, state.Active)
			return
		}
		if state.Silent {
			e.rivals()
		} else {
			r.knows(e.address, intent.MAC(e.mac), 0, inNetwork(e.external))
		}
		e.reachableHere()
		e.fromNodes(egressWay{router: rt, byPolicy: byPolicy})
		if byPolicy {
			r.as(policyRouteFeature, func() { e.byPolicy(rt, path) })
		}
	},
	port: func(r *rules, p intent.Port) {
		n, rt, ok := r.lookup(p.Network)
		if !ok || n.Physical != "" {
			return
		}
		if p.Egress != "" {
			r.byEgress(p)
		}
		r.byAddresses(p, intent.RouterUser(rt.Name), egressWay{router: rt, below: belowGateway})
	},
}

// Of several ways out of the cluster, a floating IP is the first, then an Egress, then the Router's
// gateway: an address of this node, or one that one of several nodes is active for. A Router has
// both only while it changes from one to the other.
const (
	belowFloating = iota + 1
	belowEgress
	belowGateway
)

// egressWay is a way out of the cluster.
type egressWay struct {
	router intent.Router  // connections are translated in its zone
	below  uint16         // see translation.way
	to     []netip.Prefix // only what is for these; none: all
	// byPolicy says that it leaves by a next hop of the Egress, with its own address.
	byPolicy bool
}

// matches are what packets of the family of an address have that go this way.
func (w egressWay) matches(like netip.Addr) (list [][]openflow.FieldValue) {
	for _, d := range w.to {
		if d.Addr().Is4() == like.Is4() {
			list = append(list, []openflow.FieldValue{to(d)})
		}
	}
	if len(w.to) == 0 {
		list = append(list, nil)
	}
	return list
}

// byEgress lets a Port out as its Egress says.
func (r *rules) byEgress(p intent.Port) {
	r.dependOn(unitKey{kindPath, p.Egress})
	path, ok := r.state.EgressPaths().Get(p.Egress)
	whole, known := r.defaultRouter()
	if ok && known {
		way := egressWay{
			router: whole, below: belowFloating, to: path.Destinations, byPolicy: len(path.NextHops) > 0,
		}
		r.byAddresses(p, intent.EgressUser(p.Egress), way)
	}
}

// byAddresses lets a Port out by the addresses of a user. Each of the Port's own addresses has one
// of them.
func (r *rules) byAddresses(p intent.Port, user string, way egressWay) {
	r.dependOn(unitKey{kindEgressOf, user})
	var four, six []intent.EgressAddress
	for a := range r.state.EgressAddressesOf(user) {
		if a.Address.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	for _, list := range [][]intent.EgressAddress{four, six} {
		if len(list) == 0 {
			continue
		}
		known, _ := r.translations(p, externalAddress{r: r, address: list[0].Address})
		for _, t := range known {
			if way.router.Private() || !t.space.Private() {
				t.byAddress(egressFor(t.known, list), way)
			}
		}
	}
}

// egressFor is the one of several addresses that what a Port sends from one of its addresses has
// outside of the cluster. When one goes, only what had it gets another one.
func egressFor(known netip.Addr, list []intent.EgressAddress) intent.EgressAddress {
	return slices.MaxFunc(list, func(a, b intent.EgressAddress) int {
		wa, wb := rendezvous.Weight(known, a.Address.String()), rendezvous.Weight(known, b.Address.String())
		return cmp.Or(cmp.Compare(wa, wb), a.Address.Compare(b.Address))
	})
}

// byAddress lets out what is a Port's by an address: here, or on the node that is active for it. It
// leaves by no other address if that is not possible.
func (t *translation) byAddress(a intent.EgressAddress, way egressWay) {
	matches := way.matches(a.Address)
	if len(matches) == 0 {
		return
	}
	r := t.r
	if way.below < belowEgress {
		for _, when := range matches {
			r.byOtherAddress(t.port, t.router, way.below, append(when[:len(when):len(when)], familyOf(a.Address))...)
		}
	}
	t.repliesBeyond(way)
	state := r.egressState(a)
	why := "no node is active for the address " + a.Address.String()
	switch state.Active {
	case "":
	case r.local.Node:
		if e, _, ok := r.egressHere(a); ok && slices.Contains(a.Nodes, r.local.Node) {
			t.externalAddress = e
			t.byGateway(way)
			return
		}
		why = "this node cannot translate to the address " + a.Address.String()
	default:
		t.address, t.mac, t.uplink = a.Address, externalMAC(a.Address), datapath.TunnelPort
		if out, ok := t.toNode(state.Active, way.router, routerMAC); ok {
			for _, when := range matches {
				t.way(way.below, out, when...).deliver()
			}
			t.quotesOfPort(way.below)
			return
		}
		why = "node " + state.Active + ", which is active for the address " + a.Address.String() + ", is out of reach"
	}
	for _, when := range matches {
		t.closed(way.below, why, when...)
	}
}

// closed drops what would leave the cluster, but not replies to what came by the node's kernel.
func (t *translation) closed(below uint16, why string, when ...openflow.FieldValue) {
	r := t.r
	if r.native() { // these have been led back by now
		t.leaving(below, when...).drop(why)
		return
	}
	t.way(below, []openflow.FieldValue{toPort(nowhere)}, when...).deliver()
	match := append([]openflow.FieldValue{
		openflow.InPort(r.number(t.port)), openflow.IPSrc(t.known), toPort(nowhere),
	}, when...)
	r.on(output, 110-below, match...).drop(why)
}

// repliesBeyond lets in what other nodes send back in the default Router to a Port of a private
// one, which else only hosts reach there.
func (t *translation) repliesBeyond(way egressWay) {
	if t.router.Private() && !way.router.Private() && t.r.tunneled() {
		t.r.on(l3, 550, from(fromTunnel), inRouter(t.space), openflow.EthSrc(relayMAC), openflow.IPDst(t.known)).
			set(t.r.toLocal(t.port)...).deliver()
	}
}

// toNode is where a packet is that leaves by the external Network of another node. Its source says
// whether it has been passed on.
func (e externalAddress) toNode(name string, rt intent.Router, source openflow.MAC) (
	out []openflow.FieldValue, ok bool,
) {
	r := e.r
	n, ok := r.node(name)
	if !ok || !r.tunneled() {
		return nil, false
	}
	home, known := r.home(rt)
	remote, reached := r.endpoint(n, host(e.address))
	return []openflow.FieldValue{
		openflow.EthSrc(source), openflow.EthDst(e.mac), openflow.TunDst(remote),
		openflow.TunnelID(uint64(home.VNI)), toPort(datapath.TunnelPort),
	}, known && reached
}

// egressState is how this node treats an address.
func (r *rules) egressState(a intent.EgressAddress) EgressState {
	key := ExternalKey{a.Network, a.Address}
	r.dependOn(unitKey{kindEgressAddress, key.text()})
	return r.numbers.egressState(key)
}

// egressHere finds out what an address comes to on a node that may be active for it; false if
// nothing can be made of it.
func (r *rules) egressHere(a intent.EgressAddress) (e externalAddress, rt intent.Router, ok bool) {
	if rt, ok = r.router(a.Router); ok {
		e, ok = r.externalAddress(a.Network, a.Address)
	}
	return e, rt, ok
}

// fromNodes takes what other nodes send to leave by the address.
func (e externalAddress) fromNodes(way egressWay) {
	if match, ok := e.fromTunnel(way.router); ok {
		e.r.on(tunnel, 120, match...).set(inRouter(way.router)).set(e.byUplink()...).set(openflow.EthDst(e.mac)).
			goTo(toExternal)
		e.r.on(externalSource, 50, from(fromTunnel), inNetwork(e.external), openflow.EthDst(e.mac),
			familyOf(e.address)).
			set(openflow.EthSrc(e.mac)).do(openflow.DecTTL(), e.leave(way)).end()
	}
}

// passedOn sends on what other nodes have sent here to be translated to an address for which
// another node is active: they do not know it yet. What has been passed on already is dropped: of
// two nodes, each may take the other one for the active one.
func (e externalAddress) passedOn(rt intent.Router, active string) {
	match, ok := e.fromTunnel(rt)
	if !ok {
		return
	}
	why := "no node is active for the address " + e.address.String()
	if active != "" {
		why = "node " + active + ", not this one, is active for the address " + e.address.String()
		if out, reached := e.toNode(active, rt, relayMAC); reached {
			e.r.on(tunnel, 125, append(match[:len(match):len(match)], openflow.EthSrc(routerMAC))...).
				set(out...).set(noInPort).goTo(output)
		}
	}
	e.r.on(tunnel, 120, match...).drop(why)
}

// fromTunnel matches what other nodes have sent here to be translated to the address.
func (e externalAddress) fromTunnel(rt intent.Router) (match []openflow.FieldValue, ok bool) {
	home, ok := e.r.home(rt)
	if !ok || !e.r.tunneled() {
		return nil, false
	}
	return []openflow.FieldValue{openflow.TunnelID(uint64(home.VNI)), openflow.EthDst(e.mac), familyOf(e.address)}, true
}

// probes is what this node asks by, on an external Network, whether another node answers for an
// address; false if it has nothing to ask for.
func (r *rules) probes(n intent.Network) (e externalAddress, ok bool) {
	r.dependOn(unitKey{kind: kindRelays})
	for a := range r.state.EgressAddressesAt(r.local.Node) {
		if a.Network == n.Name {
			e = externalAddress{r: r, external: n, mac: openflow.MAC(reserved.ProbeMAC(r.local.Node))}
			return e, n.External && n.Physical != ""
		}
	}
	return e, false
}

// rivals gives the agent what other nodes ask for the address before they become active for it.
func (e externalAddress) rivals() {
	first := reserved.ProbeMACs()
	asker := openflow.FieldEthSrc.Masked(uint64(first[0])<<40|uint64(first[1])<<32, 0xffff<<32)
	when := []openflow.FieldValue{openflow.ARPOp(openflow.ARPRequest), openflow.ARPTPA(e.address)}
	if e.address.Is6() {
		when = []openflow.FieldValue{
			openflow.NDTarget(e.address), openflow.ICMPv6Type(icmp6Solicit), openflow.IPTTL(hopLimitND),
		}
	}
	e.r.on(neighbour, 110, append(when, inNetwork(e.external), from(fromUplink), asker)...).
		do(neighbourHeard(e.uplink)).end()
}

// relays reports whether this node may let out what other nodes have of a Router; of any if it has
// no name.
func (r *rules) relays(router string) bool {
	r.dependOn(unitKey{kindRelays, router})
	for e := range r.state.EgressAddressesAt(r.local.Node) {
		if router == "" || e.Router == router {
			return true
		}
	}
	return false
}

// usesEgress reports whether there is any EgressAddress.
func (r *rules) usesEgress() bool {
	r.dependOn(unitKey{kind: kindRelays})
	return r.state.EgressAddresses().Len() > 0
}
