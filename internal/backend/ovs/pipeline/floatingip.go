// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/openflow"
)

// floatingIPFeature gives Ports of this node their addresses on external networks. One address is
// written over the other without any state: where a packet comes from the wire, before policies,
// and where it leaves for the wire, after them. So policies and conntrack know the Port by the
// address that it has in the cluster, and the outside by its own.
//
// Only what no other route is for goes out so, in place of the node's kernel: the cluster is
// reached as without a floating IP, and replies go back the way that the connection came.
var floatingIPFeature = &feature{
	number: 27,
	name:   "floating-ip",
	tables: []Table{fromExternal, floatingIP, floatingPort, toExternal, externalSource},
	needed: (*rules).answersOutside,
	local: func(r *rules) {
		const used = "the TTL is used up"
		for _, t := range ipTypes {
			for _, last := range []uint8{0, 1} {
				for _, table := range []Table{fromExternal, toExternal} {
					r.on(table, 500, openflow.EthType(t), openflow.IPTTL(last)).drop(used)
				}
			}
		}
		r.on(fromExternal, 0).goTo(floatingIP)
		r.on(toExternal, 0).goTo(externalSource)
		if r.policed() {
			// What comes from the wire has no name in the cluster, whatever its source.
			r.on(ingressPeer, 200, from(fromUplink)).end()
		}
		whole, ok := r.defaultRouter()
		if !ok {
			return
		}
		linkLocal := netip.MustParsePrefix("169.254.0.0/16")
		r.inside(whole, linkLocal)
		r.noWayOut(linkLocal)
		if r.native() {
			// An endpoint outside of the cluster answers to the kernel, which leads here again.
			r.on(l3, 65, from(fromPod), inRouter(whole), ofService).set(viaGateway()...).deliver()
			if r.anyPrivate() {
				r.on(cluster, 65, from(fromPod), ofService).set(viaGateway()...).deliver()
			}
			for _, t := range ipTypes {
				r.on(l3, 60, from(fromPod), inRouter(whole), openflow.EthType(t), isReply, ctFromGateway).
					set(viaGateway()...).deliver()
			}
		}
	},
	node: func(r *rules, n intent.Node) {
		whole, ok := r.defaultRouter()
		for _, s := range n.Subnets {
			r.noExternalSource(s.Prefix)
			r.noWayOut(s.Prefix)
			if ok && (!r.tunneled() || !n.AddressIn(r.local.TunnelIP).IsValid()) {
				r.inside(whole, s.Prefix) // by the kernel's routes: no tunnel leads there
			}
		}
		for _, a := range n.Addresses {
			if ok {
				r.inside(whole, host(a))
			}
		}
	},
	network: func(r *rules, n intent.Network) {
		if r.inCluster(n) {
			whole, ok := r.defaultRouter()
			for _, s := range n.Subnets {
				r.noExternalSource(s.Prefix)
				r.noWayOut(s.Prefix)
				if ok && !r.tunneled() {
					r.inside(whole, s.Prefix)
				}
			}
		}
	},
	serviceRange: func(r *rules, s intent.ServiceRange) {
		r.noExternalSource(s.Prefix)
		r.noWayOut(s.Prefix)
		if whole, ok := r.defaultRouter(); ok {
			r.inside(whole, s.Prefix)
		}
	},
	floatingIP: func(r *rules, f intent.FloatingIP) {
		if t, ok := r.translation(f); ok {
			t.inbound()
			t.outbound()
			t.quotesOfPort(0)
			r.byOtherAddress(t.port, t.router, 0, familyOf(t.address))
		}
	},
}

// inside has the kernel, which has a route, get packets for a prefix that is not outside of the
// cluster.
func (r *rules) inside(whole intent.Router, prefix netip.Prefix) {
	r.on(l3, 70, from(fromPod), inRouter(whole), openflow.IPDst(prefix)).set(viaGateway()...).deliver()
	if r.anyPrivate() {
		r.on(cluster, 70, from(fromPod), openflow.IPDst(prefix)).set(viaGateway()...).deliver()
	}
}

// noWayOut keeps packets for the cluster, of Ports of private Routers that have no address in it,
// from leaving by a floating IP.
func (r *rules) noWayOut(prefix netip.Prefix) {
	if r.anyPrivate() {
		r.on(clusterSource, 95, openflow.IPDst(prefix)).drop(clusterSource.miss)
	}
}

// noExternalSource drops packets from the wire that claim to be of the cluster.
func (r *rules) noExternalSource(prefix netip.Prefix) {
	r.on(floatingIP, 300, openflow.IPSrc(prefix)).
		drop("the source address is the cluster's, which the outside cannot have")
}

// translation is what an external address comes to for a Port of this node: one of its own, or that
// of its Router's gateway.
type translation struct {
	externalAddress
	port    intent.Port
	network intent.Network // the Port's
	router  intent.Router  // the Port's
	// known is the Port's address where the packet is judged, in the Router space.
	known netip.Addr
	space intent.Router
}

// externalAddress is an address of an external Network that this node answers for.
type externalAddress struct {
	r        *rules
	external intent.Network
	uplink   uint32
	address  netip.Addr
	mac      openflow.MAC
}

// translation finds out what a floating IP comes to here; false if its Port is not on this node, or
// nothing can be made of it.
func (r *rules) translation(f intent.FloatingIP) (*translation, bool) {
	p, ok := r.localPort(f.Port)
	if !ok {
		return nil, false
	}
	e, ok := r.externalAddress(f.Network, f.Address)
	if !ok {
		return nil, false
	}
	list, ok := r.translations(p, e)
	if !ok {
		return nil, false
	}
	if len(list) == 0 {
		r.problem("port %s has no address of the family of %s", p.Name(), f.Address)
		return nil, false
	}
	return list[0], true
}

// externalAddress is an address of an external Network; false if nothing can be made of it here.
func (r *rules) externalAddress(network string, a netip.Addr) (e externalAddress, ok bool) {
	e = externalAddress{r: r, address: a, mac: externalMAC(a)}
	if e.external, _, ok = r.lookup(network); !ok {
		r.problem("network %q does not exist, or this node is not connected to it", network)
		return e, false
	}
	if !answerable(e.external, a) {
		r.problem("network %q is not external, or has no subnet with %s", network, a)
		return e, false
	}
	if e.uplink = r.numbers.Uplink(e.external.Physical); e.uplink == 0 {
		r.problem("no OpenFlow port leads to physical network %q", e.external.Physical)
		return e, false
	}
	return e, true
}

// externalMAC is the MAC of an address of an external Network, the same on each node: a node that
// takes it over needs no new entry in the neighbors' tables outside.
func externalMAC(a netip.Addr) openflow.MAC { return openflow.MAC(reserved.PodMAC(a)) }

// translations are what an external address comes to for the addresses of its family that a Port of
// this node has: those by which the cluster knows the Port, else its own.
func (r *rules) translations(p intent.Port, e externalAddress) (list []*translation, ok bool) {
	network, router, ok := r.network(p.Network)
	if !ok {
		return nil, false
	}
	if network.Physical != "" {
		r.problem("port %s is on physical network %q, which has a router of its own", p.Name(), network.Physical)
		return nil, false
	}
	whole, ok := r.defaultRouter()
	if !ok {
		return nil, false
	}
	of := func(addresses []netip.Addr, space intent.Router) {
		for _, a := range addresses {
			if a.Is4() == e.address.Is4() {
				list = append(list, &translation{e, p, network, router, a, space})
			}
		}
	}
	if of(r.clusterAddresses(p), whole); len(list) == 0 {
		of(p.Addresses, router)
	}
	return list, true
}

// answerable reports whether nodes can answer for that address of a Network.
func answerable(n intent.Network, a netip.Addr) bool {
	return n.Physical != "" && n.External && slices.ContainsFunc(n.Subnets, func(s intent.NetworkSubnet) bool {
		return s.Prefix.Contains(a) && s.Gateway != a
	})
}

// answered has this node answer for the address, and takes what comes for it from the wire, or from
// this node's own Ports.
func (e externalAddress) answered() {
	e.r.knows(e.address, intent.MAC(e.mac), 0, inNetwork(e.external))
	e.reachable()
	e.reachableHere()
}

// reachable takes what comes for the address from the wire.
func (e externalAddress) reachable() {
	r, to := e.r, e.toMAC()
	fromWire := r.on(l2, 230, append(to, from(fromUplink))...)
	if e.external.VLAN != 0 {
		fromWire = r.on(l2, 230, append(to, from(fromUplink), openflow.AnyVLAN())...).do(openflow.PopVLAN())
	}
	fromWire.goTo(fromExternal)
}

// toMAC matches what is addressed to the MAC of the address.
func (e externalAddress) toMAC() []openflow.FieldValue {
	return []openflow.FieldValue{inNetwork(e.external), openflow.EthDst(e.mac)}
}

// reachableHere takes what this node's own Ports send to the address.
func (e externalAddress) reachableHere() {
	r, to := e.r, e.toMAC()
	// Ports of this node on the external Network, after their own policies.
	if r.attached(e.external.Name) && r.policed() {
		r.on(output, 85, append(to, toPort(e.uplink))...).asFromWire().do(openflow.Resubmit(fromExternal.ID)).end()
	} else if r.attached(e.external.Name) {
		r.on(l2, 225, append(to, from(fromPod))...).asFromWire().goTo(fromExternal)
	}
	// The wire would not bring back what this node's Ports send to the address.
	r.on(nextHop, 400, inNetwork(e.external), openflow.IPDst(e.address)).
		asFromWire().do(openflow.Resubmit(fromExternal.ID)).end()
}

// ownOf are the prefixes of a private Router's Networks: answers to what comes from there do not
// leave it.
func (r *rules) ownOf(rt intent.Router) iter.Seq[netip.Prefix] {
	if !rt.Private() {
		return func(func(netip.Prefix) bool) {}
	}
	return r.prefixesOf(rt)
}

// sent matches what is sent to the address.
func (e externalAddress) sent() []openflow.FieldValue {
	return []openflow.FieldValue{inNetwork(e.external), openflow.IPDst(e.address)}
}

// measured compares what is sent to the address with an MTU.
func (e externalAddress) measured(mtu int) {
	e.r.on(floatingIP, 100, e.sent()...).measured(mtu)
}

// measured ends a flow that compares the length of packets with an MTU.
func (w flow) measured(mtu int) {
	w.set(regPathMTU.Value(uint64(mtu))).
		do(openflow.CheckPktLarger(uint16(mtu+ethernetHeader), regTooBig)). //nolint:gosec // MTUs have 16 bits
		goTo(floatingPort)
}

// inbound leads what comes from the wire for the floating IP to the Port.
func (t *translation) inbound() {
	r := t.r
	t.answered()
	for s := range r.ownOf(t.router) {
		if s.Addr().Is4() == t.address.Is4() {
			r.on(floatingIP, 310, append(t.sent(), openflow.IPSrc(s))...).
				drop("the source address is of the port's own router, which the outside cannot have")
		}
	}
	t.measured(cmp.Or(t.port.MTU, r.local.MTU))
	r.on(floatingPort, 100, t.sent()...).do(openflow.DecTTL()).
		set(openflow.IPDst(t.known), inNoNetwork, inRouter(t.space)).set(r.toLocal(t.port)...).deliver()
}

// quotesOfPort has the agent translate what ICMP errors quote where the Port's own address and the
// one in the cluster are written over each other: see nodeAddressFeature.
func (t *translation) quotesOfPort(below uint16) {
	r := t.r
	own, ok := firstOf(t.port.Addresses, t.address)
	if t.space.Private() || !ok || own == t.known {
		return
	}
	in := openflow.InPort(r.number(t.port))
	for _, e := range icmpErrorsOf(own) {
		r.on(output, 65-below, toPort(r.number(t.port)), openflow.IPDst(t.known), e).
			do(pauseForQuote(quoteToPort, t.uplink)).set(openflow.IPDst(own)).do(openflow.OutputField(regOutput)).end()
		r.on(clusterSource, 105-below, in, openflow.IPSrc(own), notQuoted, e).
			do(pauseForQuote(quoteFromPort, t.uplink)).set(quoted).do(openflow.Resubmit(clusterSource.ID)).end()
	}
}

// asFromWire makes a packet one that comes from the external Network, though it has been on the
// bridge all the time. The kernel's datapath would take the connection of its way out for that of
// its way in, where both are in one zone.
func (w flow) asFromWire() flow {
	return w.set(regSource.Field.Value(uint64(fromUplink)), noInPort).do(openflow.CTClear())
}

// toWire leads what the Port sends out of the cluster to the wire. Of several ways, the one that is
// below the others by less is taken.
func (t *translation) toWire(below uint16, when ...openflow.FieldValue) {
	t.way(below, t.byUplink(), when...).deliver()
}

// way begins the flow of what the Port sends out of the cluster, which sets the fields out.
func (t *translation) way(below uint16, out []openflow.FieldValue, when ...openflow.FieldValue) flow {
	w := t.leaving(below, when...).set(out...)
	if t.router.Private() && !t.space.Private() && !t.r.native() && !t.r.policed() {
		// The zone with the marks of what came by the node's kernel, which replies go back to.
		w = w.set(inRouter(t.space))
	}
	return w
}

// leaving begins the flow for what the Port sends out of the cluster.
func (t *translation) leaving(below uint16, when ...openflow.FieldValue) flow {
	r := t.r
	match := append([]openflow.FieldValue{openflow.InPort(r.number(t.port)), openflow.IPSrc(t.known)}, when...)
	switch {
	case !t.router.Private():
		return r.on(l3, 50-below, append(match, inRouter(t.space))...)
	case t.space.Private():
		return r.on(clusterSource, 90-below, match...)
	}
	return r.on(cluster, 50-below, match...)
}

// byUplink is where a packet is that leaves by the external Network.
func (e externalAddress) byUplink() []openflow.FieldValue {
	return []openflow.FieldValue{inNetwork(e.external), openflow.EthSrc(routerMAC), toPort(e.uplink)}
}

// outbound has what the Port sends out of the cluster come from the floating IP.
func (t *translation) outbound() {
	r, in := t.r, openflow.InPort(t.r.number(t.port))
	t.toWire(0)
	if r.policed() && !t.space.Private() {
		// A node may have come by the wire as well, and its address does not tell.
		r.on(policyConnection, 855, in, openflow.IPSrc(t.known), toPort(datapath.GatewayPort), isReply,
			ctBegunBy(t.uplink)).set(t.byUplink()...).goTo(policyVerdict)
	}
	r.on(externalSource, 100, in, inNetwork(t.external), openflow.IPSrc(t.known)).
		do(openflow.DecTTL()).set(openflow.IPSrc(t.address), openflow.EthSrc(t.mac)).goTo(nextHop)
}

// localPort finds the Port of this node with the Port object of that namespace/name.
func (r *rules) localPort(object string) (intent.Port, bool) {
	if object == "" {
		return intent.Port{}, false
	}
	r.dependOn(unitKey{kindNamed, object})
	return localPort(r.state, r.numbers, object)
}

func localPort(s *snapshot, numbers *Numbers, object string) (intent.Port, bool) {
	for p := range s.PortsNamed(object) {
		if p.Node == s.Local().Node && numbers.Port(p.ID) != 0 {
			return p, true
		}
	}
	return intent.Port{}, false
}

// answersOutside reports whether this node answers for any address of an external Network.
func (r *rules) answersOutside() bool {
	r.dependOn(unitKey{kind: kindOutside})
	return r.outside
}

// answering reports whether this node answers for any address of an external Network.
func (r *rules) answering(n intent.Network) bool {
	if !n.External || n.Physical == "" {
		return false
	}
	r.dependOn(unitKey{kindAnswering, n.Name})
	return answering(r.state, n.Name)
}

func answering(s *snapshot, network string) bool {
	for name := range answeredNetworks(s.State) {
		if name == network {
			return true
		}
	}
	return false
}

// answeredNetworks are the names of the Networks that this node has addresses of to answer for,
// some more than once.
func answeredNetworks(s *intent.State) iter.Seq[string] {
	return func(yield func(string) bool) {
		for f := range localFloatingIPs(s) {
			if !yield(f.Network) {
				return
			}
		}
		for f := range s.ChosenFloatingIPs() {
			if !yield(f.Network) {
				return
			}
		}
		for g := range s.GatewayAddressesAt(s.Local().Node) {
			if !yield(g.Network) {
				return
			}
		}
		for e := range s.EgressAddressesAt(s.Local().Node) {
			if !yield(e.Network) {
				return
			}
		}
	}
}

// localFloatingIPs are those of Ports of this node, of which there are fewer than in the cluster.
func localFloatingIPs(s *intent.State) iter.Seq[intent.FloatingIP] {
	return func(yield func(intent.FloatingIP) bool) {
		for p := range s.PortsAt(s.Local().Node) {
			for f := range s.FloatingIPsOf(p.ObjectKey()) {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// anyAnswering reports whether this node answers for any address of any external Network, or may
// lead packets to a node that does.
func anyAnswering(s *snapshot) bool {
	if s.EgressAddresses().Len() > 0 {
		return true
	}
	for name := range answeredNetworks(s.State) {
		if n, ok := s.Networks().Get(name); ok && n.External && n.Physical != "" {
			return true
		}
	}
	return false
}

// answeringMay are the external Networks of which two States may differ in whether the node answers
// for addresses of them.
func answeringMay(from, to *snapshot, delta intent.Delta) map[string]bool {
	names := map[string]bool{}
	for _, s := range []*snapshot{from, to} {
		for _, name := range delta.Networks {
			if n, ok := s.Networks().Get(name); ok && n.External {
				names[name] = true
			}
		}
		for _, key := range delta.FloatingIPs {
			if f, ok := s.FloatingIPs().Get(key); ok {
				names[f.Network] = true
			}
		}
		for _, key := range delta.ChosenAddresses {
			if a, ok := s.ChosenAddresses().Get(key); ok {
				for f := range s.FloatingIPsAt(a.Address) {
					names[f.Network] = true
				}
			}
		}
		for _, key := range delta.GatewayAddresses {
			if g, ok := s.GatewayAddresses().Get(key); ok && g.Node == s.Local().Node {
				names[g.Network] = true
			}
		}
		for _, key := range delta.EgressAddresses {
			if e, ok := s.EgressAddresses().Get(key); ok {
				names[e.Network] = true
			}
		}
		for _, id := range delta.Ports {
			p, ok := s.Ports().Get(id)
			if !ok || p.Object == "" {
				continue
			}
			for _, other := range []*snapshot{from, to} {
				for f := range other.FloatingIPsOf(p.ObjectKey()) {
					names[f.Network] = true
				}
			}
		}
	}
	return names
}

// uplinkZone is the zone of what Ports of this node send to each other on a physical network.
var uplinkZone = inZone(datapath.PhysicalZone)
