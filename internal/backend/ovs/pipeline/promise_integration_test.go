// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/rendezvous"
)

// promise computes what docs/develop/datapath.md specifies of a cluster: which ends reach each
// other, and with which addresses. It knows nothing of tables.
type promise struct{ *clusterWorld }

func (w promise) routerOf(p worldPort) intent.Router {
	if rt := w.router(w.network(p.Network).Router); rt != nil {
		return *rt
	}
	return intent.Router{Name: "none"} // on a physical network
}

// sees says whether routes of router b are valid in a.
func sees(a, b intent.Router) bool {
	return a.Name == b.Name || a.Shared && b.Shared || slices.Contains(a.Imports, b.Name)
}

// inCluster are the addresses by which hosts know a port, if any.
func (w promise) inCluster(p worldPort) []netip.Addr {
	if n := w.network(p.Network); n.FromNodes() || w.routerOf(p).Shared {
		return p.Addresses
	}
	return p.NodeAddresses
}

// gatewayAt is the node that has the address as its gateway's, -1 if none has.
func (w promise) gatewayAt(a netip.Addr) int {
	return slices.IndexFunc(w.nodes, func(n intent.Node) bool {
		return slices.ContainsFunc(n.Subnets, func(s intent.Subnet) bool { return s.Gateway == a })
	})
}

// subnetOf is the node that hands out the address, -1 if none does.
func (w promise) subnetOf(a netip.Addr) int {
	return slices.IndexFunc(w.nodes, func(n intent.Node) bool {
		return slices.ContainsFunc(n.Subnets, func(s intent.Subnet) bool { return s.Prefix.Contains(a) })
	})
}

// inSubnet says whether the address is in a subnet of an overlay network with an accepted router.
func (w promise) inSubnet(a netip.Addr, accept func(intent.Router) bool) bool {
	for _, n := range w.networks {
		if n.Physical == "" && accept(*w.router(n.Router)) &&
			slices.ContainsFunc(n.Subnets, func(s intent.NetworkSubnet) bool { return s.Prefix.Contains(a) }) {
			return true
		}
	}
	return false
}

var lost = arrival{end: "dropped"}

func (w promise) host(node int, src, dst netip.Addr, ttl uint8) arrival {
	return arrival{end: "host", node: node, src: src, dst: dst, ttl: ttl}
}

// fromPort is where a packet with TTL 64 of port a ends.
func (w promise) fromPort(a worldPort, to netip.Addr) arrival {
	own, ok := firstOf(a.Addresses, to)
	if !ok {
		return lost
	}
	if w.network(a.Network).Physical != "" {
		return w.fromPhysical(a, own, to)
	}
	rt := w.routerOf(a)
	// What its router, and those that it imports from, have: by the ports' own addresses.
	for _, b := range w.ports {
		if slices.Contains(b.Addresses, to) && sees(rt, w.routerOf(b)) {
			return w.carry(a, b, own, to, true)
		}
	}
	if hop, known := w.staticRoute(rt, to, false); known {
		return w.byHop(a, hop, own, to)
	}
	if w.inSubnet(to, func(of intent.Router) bool { return sees(rt, of) }) {
		if w.encapsulation.Tunneled() || rt.Private() {
			return lost
		}
		return w.host(w.nodeOf(a), own, to, 64) // the kernels have routes
	}
	if hop, known := w.staticRoute(rt, to, true); known && w.subnetOf(to) < 0 && !(w.native && inServiceRange(to)) {
		return w.byHop(a, hop, own, to)
	}
	if rt.Shared {
		return w.beyondShared(a, own, to)
	}
	return w.beyondPrivate(a, rt, own, to)
}

// fromPhysical: the wire, but for the host's questions to node addresses.
func (w promise) fromPhysical(a worldPort, own, to netip.Addr) arrival {
	for _, b := range w.ports {
		if b.Network == a.Network && slices.Contains(b.Addresses, to) {
			return arrival{end: "port", port: b, src: own, dst: to, ttl: 64}
		}
	}
	if node := w.answering(w.network(a.Network), to); node >= 0 {
		return w.fromWire(w.network(a.Network), node, own, to, 64)
	}
	if _, ok := w.exitAt(w.network(a.Network), to); ok {
		return lost // nothing opens a connection to a Router's gateway
	}
	if e, ok := w.egressAt(w.network(a.Network), to); ok && len(w.holders(e, true)) > 0 {
		return lost // nor here; if no node answers, it is any host of the wire
	}
	if as, ok := firstOf(a.NodeAddresses, to); ok && w.gatewayAt(to) == w.nodeOf(a) {
		return w.host(w.nodeOf(a), as, to, 64)
	}
	return arrival{end: "wire"}
}

// beyondShared: a shared router's ports use the node's kernel as their router.
func (w promise) beyondShared(a worldPort, own, to netip.Addr) arrival {
	here := w.nodeOf(a)
	if node := w.subnetOf(to); node >= 0 {
		guarded := w.guarded(to)
		switch {
		case guarded >= 0 && (w.encapsulation.Tunneled() || node == here):
			return lost
		case node != here && w.encapsulation.Tunneled():
			return w.host(node, own, to, 63)
		case node == here && a.Network == "default" && w.gatewayAt(to) < 0:
			return lost // on link, and unanswered
		}
	}
	if as, ok := w.exitOf(a, to); ok && w.isOutside(to) {
		return w.leave(a, as, to)
	}
	return w.host(here, own, to, 64)
}

// guarded is the port that only hosts reach by that address, -1 if none.
func (w promise) guarded(a netip.Addr) int {
	return slices.IndexFunc(w.ports, func(p worldPort) bool {
		return !w.routerOf(p).Shared && slices.Contains(w.inCluster(p), a)
	})
}

// beyondPrivate: with the address that the port has in the cluster, if it has one,
// to those of its own router and to hosts and the outside.
func (w promise) beyondPrivate(a worldPort, rt intent.Router, own, to netip.Addr) arrival {
	here := w.nodeOf(a)
	as, ok := firstOf(w.inCluster(a), to)
	// A port without an address in the cluster cannot reach nodes there.
	if exit, leaves := w.exitOf(a, to); leaves && (w.isOutside(to) || !ok && w.isNode(to)) {
		return w.leave(a, exit, to)
	}
	if !ok {
		return lost
	}
	if i := w.guarded(to); i >= 0 {
		if b := w.ports[i]; sees(rt, w.routerOf(b)) {
			dst, _ := firstOf(b.Addresses, to)
			return w.carry(a, b, as, dst, false)
		}
	}
	switch node := w.gatewayAt(to); {
	case node >= 0 && (node == here || !w.encapsulation.Tunneled()):
		return w.host(here, as, to, 64)
	case node >= 0:
		return w.host(node, as, to, 63)
	case w.subnetOf(to) >= 0, w.inSubnet(to, func(of intent.Router) bool { return of.Shared }):
		return lost
	}
	return w.host(here, as, to, 64)
}

// carry is the way to a port: over one router if it is on another node, but for
// ports of the same network that all nodes know.
func (w promise) carry(a, b worldPort, src, dst netip.Addr, direct bool) arrival {
	at := arrival{end: "port", node: w.nodeOf(b), port: b, src: src, dst: dst, ttl: 64}
	switch {
	case a.ID == b.ID:
		return lost
	case a.Node == b.Node:
		return at
	case !w.encapsulation.Tunneled() && w.routerOf(a).Shared && w.routerOf(b).Shared:
		return w.host(w.nodeOf(a), src, dst, 64) // and on by the kernels
	case !w.encapsulation.Tunneled():
		return lost
	case !(direct && b.fixed && a.Network == b.Network):
		at.ttl = 63
	}
	return at
}

// staticRoute finds the next hop of an address. Default routes are of the router
// itself, others also of those that it sees, but that shared routers take none
// from private ones.
func (w promise) staticRoute(rt intent.Router, to netip.Addr, all bool) (hop worldPort, known bool) {
	for _, of := range w.routers {
		if of.Name != rt.Name && (all || !sees(rt, of) || rt.Shared && !of.Shared) {
			continue
		}
		for _, route := range of.Routes {
			if route.Destination.Contains(to) && (route.Destination.Bits() == 0) == all {
				for _, p := range w.ports {
					if slices.Contains(p.Addresses, route.NextHop) && w.routerOf(p).Name == of.Name {
						return p, true
					}
				}
				return worldPort{}, true
			}
		}
	}
	return worldPort{}, false
}

func (w promise) byHop(a, hop worldPort, src, dst netip.Addr) arrival {
	if hop.ID == "" || hop.Node != a.Node && !w.encapsulation.Tunneled() {
		return lost
	}
	return w.carry(a, hop, src, dst, false)
}

// fromHost is where a packet with TTL 64 of a node's kernel ends, of which src is the host itself,
// a host outside, or a pod after translation by the kernel.
func (w promise) fromHost(node int, src, to netip.Addr) arrival {
	// Of a pod of a private router, with a packet that kube-proxy translated.
	var client intent.Router
	if i := w.guarded(src); i >= 0 && !w.native && w.ports[i].Node == w.nodes[node].Name && w.network(w.ports[i].Network).Physical == "" {
		client = w.routerOf(w.ports[i])
	}
	isHost := w.gatewayAt(src) >= 0
	isPod := !isHost && (w.subnetOf(src) >= 0 || w.inSubnet(src, func(of intent.Router) bool { return of.Shared }))
	for _, b := range w.ports {
		if !slices.Contains(w.inCluster(b), to) {
			continue
		}
		rt, local := w.routerOf(b), w.nodeOf(b) == node
		dst, _ := firstOf(b.Addresses, to)
		at := arrival{end: "port", node: w.nodeOf(b), port: b, src: src, dst: dst, ttl: 64}
		switch {
		case !local && !w.encapsulation.Tunneled():
			return lost
		case rt.Shared, client.Name != "" && sees(client, rt), isHost, local && !isPod:
			return at
		}
		return lost
	}
	return lost
}

// reply is where a packet ends that a node's kernel answers with in the name of a Service's
// floating IP: in the cluster as any other of the kernel, else on the wire, with the TTL that the
// kernel has made.
func (w promise) reply(f servedIP, to netip.Addr) arrival {
	if w.hasPods(to) {
		return w.fromHost(f.node, f.Address, to)
	}
	return w.leaveNode(f.node, exit{network: f.Network, address: f.Address}, to, 64)
}

// hasPods says whether an address is of a prefix that hosts know pods by.
func (w promise) hasPods(a netip.Addr) bool {
	return w.subnetOf(a) >= 0 || w.inSubnet(a, func(of intent.Router) bool { return of.Shared })
}

// floatingIPOf is the floating IP of a port that its packets to an address leave by.
func (w promise) floatingIPOf(p worldPort, to netip.Addr) (intent.FloatingIP, bool) {
	for _, f := range w.floating {
		if f.Port == p.ObjectKey() && f.Address.Is4() == to.Is4() {
			return f, true
		}
	}
	return intent.FloatingIP{}, false
}

// exit is an address of an external network that packets leave the cluster with.
type exit struct {
	network string
	address netip.Addr
	// ofNodes says that one of several nodes, nodes, is active for the address; else the port's
	// node has it.
	ofNodes bool
	nodes   []string
	// router has the connections that are translated to the address; empty: none are.
	router string
	// own is the port's address, which is not translated; not valid: it is.
	own netip.Addr
	// byPolicy says that packets leave by one of hops, which work.
	byPolicy bool
	hops     []netip.Addr
}

// source is what the outside sees.
func (e exit) source() netip.Addr {
	if e.own.IsValid() {
		return e.own
	}
	return e.address
}

// exitOf is the one of a port's packets to an address: its floating IP, else that of its Egress,
// else that of its router's gateway, which its node has, or one of several nodes is active for.
func (w promise) exitOf(p worldPort, to netip.Addr) (exit, bool) {
	if f, ok := w.floatingIPOf(p, to); ok {
		return exit{network: f.Network, address: f.Address}, true
	}
	known, ok := firstOf(w.inCluster(p), to)
	if i := slices.IndexFunc(w.paths, func(e intent.EgressPath) bool { return e.Name == p.Egress }); i >= 0 && ok {
		all := len(w.paths[i].Destinations) == 0
		if all || slices.ContainsFunc(w.paths[i].Destinations, func(d netip.Prefix) bool { return d.Contains(to) }) {
			if e, ok := w.oneOf(intent.EgressUser(p.Egress), known); ok {
				return w.byPolicy(e, w.paths[i].NextHops, known), true
			}
		}
	}
	rt := w.routerOf(p).Name
	for _, g := range w.gateways {
		if g.Router == rt && g.Node == p.Node && g.Address.Is4() == to.Is4() {
			if own, _ := firstOf(p.Addresses, to); g.Routed {
				return exit{network: g.Network, address: g.Address, own: own}, true
			}
			return exit{network: g.Network, address: g.Address, router: rt}, true
		}
	}
	if !ok {
		known, _ = firstOf(p.Addresses, to)
	}
	return w.oneOf(intent.RouterUser(rt), known)
}

// byPolicy is the exit of an Egress by its next hops, if it has some.
func (w promise) byPolicy(e exit, hops []netip.Addr, known netip.Addr) exit {
	if len(hops) == 0 {
		return e
	}
	e.byPolicy, e.own = true, known
	for _, hop := range hops {
		if hop.Is4() == e.address.Is4() && !w.down[NextHopKey{e.network, e.address, hop}] {
			e.hops = append(e.hops, hop)
		}
	}
	return e
}

// byNextHop is the way of a traced packet that leaves by a next hop, whatever it is for: that of
// its source port.
func (w promise) byNextHop(here int, as exit, to netip.Addr, ttl uint8) arrival {
	if len(as.hops) == 0 {
		return lost
	}
	hop := as.hops[tracedPort>>1%hopSlots%len(as.hops)]
	at := arrival{end: "outside", node: here, src: as.own, dst: to, ttl: ttl}
	var known bool
	if at.mac, known = w.neighbours[NeighbourKey{as.network, hop}]; !known {
		at.end, at.gateway = "agent", hop
	}
	return at
}

// oneOf is the one of a user's addresses that what has an address in the cluster leaves by.
func (w promise) oneOf(user string, known netip.Addr) (exit, bool) {
	byText := map[string]intent.EgressAddress{}
	for _, e := range w.egress {
		if e.User() == user && e.Address.Is4() == known.Is4() {
			byText[e.Address.String()] = e
		}
	}
	e, ok := byText[rendezvous.Choose(known, slices.Collect(maps.Keys(byText)))]
	return exit{network: e.Network, address: e.Address, ofNodes: true, nodes: e.Nodes, router: e.Router}, ok
}

// activeFor is the node that another one takes for the one that translates to an address; -1: none.
func (w promise) activeFor(node int, as exit) int {
	return w.nodeNamed(w.states[node][ExternalKey{as.network, as.address}].Active)
}

// translates is the node that translates what leaves from a node; false if none does. A node that
// may be active sends on what other nodes send it, but not what has been sent on already.
func (w promise) translates(here int, as exit) (node int, ok bool) {
	if !as.ofNodes {
		return here, true
	}
	may := func(n int) bool { return slices.Contains(as.nodes, w.nodes[n].Name) }
	at := here
	for range 3 {
		next := w.activeFor(at, as)
		switch {
		case next == at:
			return at, may(at)
		case next < 0 || !w.encapsulation.Tunneled() || at != here && !may(at):
			return 0, false
		}
		at = next
	}
	return 0, false
}

// egressAt is the one with that address of an external network.
func (w promise) egressAt(n intent.Network, a netip.Addr) (exit, bool) {
	for _, e := range w.egress {
		if e.Network == n.Name && e.Address == a {
			return exit{network: e.Network, address: e.Address, ofNodes: true, nodes: e.Nodes, router: e.Router}, true
		}
	}
	return exit{}, false
}

// holders are the nodes that take themselves for the active one, those that answer for the address
// or all.
func (w promise) holders(as exit, answering bool) (nodes []int) {
	for n, node := range w.nodes {
		silent := w.states[n][ExternalKey{as.network, as.address}].Silent
		if slices.Contains(as.nodes, node.Name) && w.activeFor(n, as) == n && !(answering && silent) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// exitAt is the gateway with that address of an external network.
func (w promise) exitAt(n intent.Network, a netip.Addr) (intent.GatewayAddress, bool) {
	for _, g := range w.gateways {
		if g.Network == n.Name && g.Address == a {
			return g, true
		}
	}
	return intent.GatewayAddress{}, false
}

// floatingAt is the floating IP with that address of an external network.
func (w promise) floatingAt(n intent.Network, a netip.Addr) (intent.FloatingIP, bool) {
	for _, f := range w.floating {
		if f.Network == n.Name && f.Address == a {
			return f, true
		}
	}
	return intent.FloatingIP{}, false
}

// servedAt is the floating IP of a Service with that address of an external network.
func (w promise) servedAt(n intent.Network, a netip.Addr) (servedIP, bool) {
	for _, f := range w.served {
		if f.Network == n.Name && f.Address == a {
			return f, true
		}
	}
	return servedIP{}, false
}

// answering is the node that answers for the floating IP with that address of an external network:
// with the port, or the one that has been chosen where the bridges balance Services; -1 if none
// does.
func (w promise) answering(n intent.Network, a netip.Addr) int {
	if f, ok := w.floatingAt(n, a); ok {
		return w.nodeOf(w.floats(f))
	}
	if f, ok := w.servedAt(n, a); ok && w.native {
		return f.node
	}
	return -1
}

// withoutExits is the cluster as if it had no floating IPs, no gateways and no Egress.
func (w promise) withoutExits() promise {
	other := *w.clusterWorld
	other.floating, other.served, other.gateways, other.egress, other.paths = nil, nil, nil, nil, nil
	return promise{&other}
}

func inServiceRange(a netip.Addr) bool {
	return slices.ContainsFunc(worldServiceRanges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isOutside says whether an address is none of the cluster: of a node, a range of Services, or a
// network with a shared router.
func (w promise) isOutside(a netip.Addr) bool {
	return w.subnetOf(a) < 0 && !inServiceRange(a) && !w.inSubnet(a, func(of intent.Router) bool { return of.Shared }) &&
		!w.isNode(a)
}

// isNode says whether a node has the address.
func (w promise) isNode(a netip.Addr) bool {
	return slices.ContainsFunc(w.nodes, func(n intent.Node) bool { return slices.Contains(n.Addresses, a) })
}

// leave is the way of a port's packet out of the cluster: by one router, from its floating IP, its
// Egress or its router's gateway.
func (w promise) leave(a worldPort, as exit, to netip.Addr) arrival {
	here, ok := w.translates(w.nodeOf(a), as)
	if !ok {
		return lost
	}
	return w.leaveNode(here, as, to, 63)
}

// leaveNode is the way of a packet that leaves the cluster at a node.
func (w promise) leaveNode(here int, as exit, to netip.Addr, ttl uint8) arrival {
	if as.byPolicy {
		return w.byNextHop(here, as, to, ttl)
	}
	n := w.network(as.network)
	at := arrival{end: "outside", node: here, src: as.source(), dst: to, ttl: ttl}
	if w.answering(n, to) == here {
		return w.fromWire(n, here, as.source(), to, at.ttl)
	}
	gateway, toGateway := w.exitAt(n, to)
	if toGateway && w.nodeNamed(gateway.Node) == here {
		return lost
	}
	other, toEgress := w.egressAt(n, to)
	if toEgress && slices.Contains(w.holders(other, false), here) {
		return lost
	}
	for _, b := range w.ports {
		if b.Network == n.Name && slices.Contains(b.Addresses, to) {
			at.port = b
		}
	}
	if at.port.ID != "" && w.nodeOf(at.port) == here {
		at.end = "port"
		return at
	}
	onLink := false
	for _, s := range n.Subnets {
		if s.Prefix.Contains(as.address) {
			onLink = s.Prefix.Contains(to)
			at.gateway = s.Gateway
		}
	}
	hop := at.gateway
	if onLink {
		hop, at.gateway = to, netip.Addr{}
	}
	mac, known := w.neighbours[NeighbourKey{n.Name, hop}]
	switch {
	case !known:
		at.end = "agent"
		return at
	case at.port.ID != "" && onLink:
		at.end = "port"
		return at
	case toGateway, toEgress && slices.ContainsFunc(other.nodes, func(name string) bool { return name != w.nodes[here].Name }):
		return lost
	}
	if node := w.answering(n, to); node >= 0 {
		return w.fromWire(n, node, as.source(), to, at.ttl)
	}
	at.mac = mac
	return at
}

// routedIn is where a packet ends that comes from the wire to the MAC of a routed gateway: at the
// port of its router with the address, or at the kernel of the node that hands the address out. The
// outside has no addresses of the cluster, nor of what the router has routes to.
func (w promise) routedIn(g intent.GatewayAddress, from, to netip.Addr, ttl uint8) arrival {
	here, rt := w.nodeNamed(g.Node), *w.router(g.Router)
	if !rt.Shared && w.inSubnet(from, func(of intent.Router) bool { return sees(rt, of) }) {
		return lost
	}
	if n := w.network(g.Network); w.answering(n, to) == here {
		return w.fromWire(n, here, from, to, ttl)
	}
	ofNode := -1
	if rt.Name == intent.DefaultRouterName {
		ofNode = w.subnetOf(to)
	}
	switch {
	case ttl <= 1, w.hasPods(from), inServiceRange(from):
		return lost
	case w.gatewayAt(to) >= 0 || ofNode < 0 && !w.inSubnet(to, func(of intent.Router) bool { return of.Name == rt.Name }):
		return lost
	}
	carry := func(b worldPort) arrival {
		if b.ID == "" || w.nodeOf(b) != here && !w.encapsulation.Tunneled() {
			return lost
		}
		return arrival{end: "port", node: w.nodeOf(b), port: b, src: from, dst: to, ttl: ttl - 1}
	}
	for _, b := range w.ports {
		if slices.Contains(b.Addresses, to) && sees(rt, w.routerOf(b)) {
			return carry(b)
		}
	}
	if hop, known := w.staticRoute(rt, to, false); known {
		return carry(hop)
	}
	if ofNode < 0 || w.guarded(to) >= 0 || ofNode != here && !w.encapsulation.Tunneled() {
		return lost
	}
	return w.host(ofNode, from, to, ttl-1)
}

// fromWire is where a packet ends that comes to a node by an external network: at the port there
// with the floating IP that it is for, or at the node's kernel if it is a Service's. The outside
// has no addresses of the cluster.
func (w promise) fromWire(n intent.Network, node int, from, to netip.Addr, ttl uint8) arrival {
	if node < 0 || ttl <= 1 || w.answering(n, to) != node {
		return lost
	}
	inCluster := w.hasPods(from) || inServiceRange(from)
	f, ok := w.floatingAt(n, to)
	if !ok && !inCluster {
		return w.host(node, from, to, ttl)
	}
	if !ok {
		return lost
	}
	b := w.floats(f)
	own := w.routerOf(b)
	ofItsRouter := !own.Shared && w.inSubnet(from, func(of intent.Router) bool { return of.Name == own.Name })
	if inCluster || ofItsRouter {
		return lost
	}
	a, _ := firstOf(b.Addresses, to)
	return arrival{end: "port", node: node, port: b, src: from, dst: a, ttl: ttl - 1}
}
