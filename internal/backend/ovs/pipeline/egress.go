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
// Router's gateway, and routes the replies in the Router.
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
			r.on(ttl, 250, from(fromUplink)).goTo(output)
			if r.anyPrivate() {
				r.on(clusterSource, 100, from(fromUplink)).goTo(cluster)
			}
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
		e.translated(rt)
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
		e.fromNodes(rt)
	},
	port: func(r *rules, p intent.Port) {
		n, rt, ok := r.lookup(p.Network)
		if !ok || n.Physical != "" {
			return
		}
		if p.Egress != "" {
			r.byEgress(p)
		}
		r.byAddresses(p, intent.RouterUser(rt.Name), egressWay{router: rt, below: belowEgress})
	},
}

// Of several ways out of the cluster, a floating IP is the first, then an Egress, then the Router's
// gateway.
const belowEgress = belowFloating + 1

// egressWay is what Ports have to say of a way out.
type egressWay struct {
	router intent.Router // connections are translated in its zone
	below  uint16        // see translation.way
	// first, added to priorities, has the way be looked at before that of the Router.
	first uint16
	when  []openflow.FieldValue
}

// byEgress lets a Port out as its Egress says.
func (r *rules) byEgress(p intent.Port) {
	r.dependOn(unitKey{kindPath, p.Egress})
	path, ok := r.state.EgressPaths().Get(p.Egress)
	whole, known := r.defaultRouter()
	if !ok || !known {
		return
	}
	way := egressWay{router: whole, below: belowFloating, first: 10}
	if len(path.Destinations) == 0 {
		r.byAddresses(p, intent.EgressUser(p.Egress), way)
	}
	for _, d := range path.Destinations {
		way.when = []openflow.FieldValue{to(d)}
		r.byAddressesOf(p, intent.EgressUser(p.Egress), way, func(a netip.Addr) bool { return a.Is4() == d.Addr().Is4() })
	}
}

func (r *rules) byAddresses(p intent.Port, user string, way egressWay) {
	r.byAddressesOf(p, user, way, func(netip.Addr) bool { return true })
}

// byAddressesOf lets a Port out by those addresses of a user that are among some. Each of the
// Port's own addresses has one of them.
func (r *rules) byAddressesOf(p intent.Port, user string, way egressWay, among func(netip.Addr) bool) {
	r.dependOn(unitKey{kindEgressOf, user})
	var four, six []intent.EgressAddress
	for a := range r.state.EgressAddressesOf(user) {
		switch {
		case !among(a.Address):
		case a.Address.Is4():
			four = append(four, a)
		default:
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
				r.byAddress(t, egressFor(t.known, list), way)
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

// byAddress lets out what is a Port's by an address: here, or on the node that is active for it.
func (r *rules) byAddress(t *translation, a intent.EgressAddress, way egressWay) {
	state := r.egressState(a)
	switch {
	case state.Active == "":
		t.way(way.below, nil, way.when...).drop("no node is active for the address " + a.Address.String())
	case state.Active == r.local.Node:
		e, _, ok := r.egressHere(a)
		if !ok {
			return
		}
		t.externalAddress = e
		t.byGateway(way)
	default:
		t.address, t.mac, t.uplink = a.Address, externalMAC(a.Address), datapath.TunnelPort
		if out, ok := t.toNode(state.Active, way.router); ok {
			t.way(way.below, out, way.when...).deliver()
			t.quotesOfPort(way.below)
		}
	}
}

// toNode is where a packet is that leaves by the external Network of another node.
func (e externalAddress) toNode(name string, rt intent.Router) (out []openflow.FieldValue, ok bool) {
	r := e.r
	n, ok := r.node(name)
	if !ok || !r.tunneled() {
		return nil, false
	}
	home, known := r.home(rt)
	remote, reached := r.endpoint(n, host(e.address))
	return []openflow.FieldValue{
		openflow.EthSrc(routerMAC), openflow.EthDst(e.mac), openflow.TunDst(remote),
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

// fromNodes takes what other nodes send to be translated to the address.
func (e externalAddress) fromNodes(rt intent.Router) {
	if w, ok := e.fromTunnel(rt); ok {
		w.set(inRouter(rt)).set(e.byUplink()...).set(openflow.EthDst(e.mac)).goTo(toExternal)
		e.r.on(externalSource, 50, from(fromTunnel), inNetwork(e.external), openflow.EthDst(e.mac), familyOf(e.address)).
			set(openflow.EthSrc(e.mac)).do(openflow.DecTTL(), e.commit(rt)).end()
	}
}

// passedOn sends on what other nodes have sent here to be translated to an address for which
// another node is active: they do not know it yet.
func (e externalAddress) passedOn(rt intent.Router, active string) {
	if active == "" {
		return
	}
	w, ok := e.fromTunnel(rt)
	out, reached := e.toNode(active, rt)
	if ok && reached { // the TTL keeps two nodes from passing it to each other for ever
		w.do(openflow.DecTTL()).set(out...).set(noInPort).goTo(output)
	}
}

// fromTunnel begins the flow for what other nodes have sent here to be translated to the address.
func (e externalAddress) fromTunnel(rt intent.Router) (w flow, ok bool) {
	home, ok := e.r.home(rt)
	if !ok || !e.r.tunneled() {
		return w, false
	}
	return e.r.on(tunnel, 120, openflow.TunnelID(uint64(home.VNI)), openflow.EthDst(e.mac), familyOf(e.address)), true
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
