// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// cluster is all that there is: the same for all nodes, each of which knows a part.
type clusterWorld struct {
	encapsulation intent.Encapsulation
	v4, v6        bool
	underlayV6    bool
	native        bool // the bridges balance Services
	policed       bool // policies are enforced, and let everything pass
	nodes         []intent.Node
	networks      []intent.Network
	routers       []intent.Router
	blocks        []intent.Block
	ports         []worldPort         // of all nodes
	lost          []intent.Port       // those that may send from no address: their lease is over
	floating      []intent.FloatingIP // of ports
	served        []servedIP
	gateways      []intent.GatewayAddress
	egress        []intent.EgressAddress
	paths         []intent.EgressPath
	states        []map[ExternalKey]EgressState // by node: how it treats egress addresses
	down          map[NextHopKey]bool           // next hops of egress addresses that do not work
	neighbours    map[NeighbourKey]intent.MAC   // on external networks, as far as they are known
}

// worldPort is a port, and whether all nodes know it.
type worldPort struct {
	intent.Port
	fixed bool
}

// lostLease is the number of the addresses that Ports without a valid lease had.
const lostLease = 200

// servedIP is a floating IP of a Service, and the node that has been chosen to answer for it.
type servedIP struct {
	intent.FloatingIP
	node int // -1: none
}

// The physical networks' uplinks.
const (
	vlanUplink = datapath.FirstUplinkPort
	flatUplink = datapath.FirstUplinkPort + 1
	worldVLAN  = 100
)

// view is what one node knows.
func (w *clusterWorld) view(node int) intent.Objects {
	o := intent.Objects{
		Local: intent.Local{Node: w.nodes[node].Name, Encapsulation: w.encapsulation},
		Nodes: w.nodes, Networks: w.networks, Routers: w.routers, Blocks: w.blocks, FloatingIPs: w.floating,
		GatewayAddresses: w.gateways, EgressAddresses: w.egress, EgressPaths: w.paths,
	}
	for _, f := range w.served {
		o.FloatingIPs = append(o.FloatingIPs[:len(o.FloatingIPs):len(o.FloatingIPs)], f.FloatingIP)
		if f.node == node {
			o.ChosenAddresses = append(o.ChosenAddresses, intent.ChosenAddress{Address: f.Address})
		}
	}
	if w.encapsulation.Tunneled() {
		o.Local.TunnelIP = w.endpoint(node)
	}
	if w.native {
		o.Local.ServiceMode = intent.NativeServices
	}
	for _, p := range w.ports {
		switch {
		case p.Node == o.Local.Node:
			o.Ports = append(o.Ports, p.Port)
		case p.fixed:
			remote := p.Port
			remote.NodeAddresses = nil
			o.Ports = append(o.Ports, remote)
		}
	}
	for _, p := range w.lost {
		if p.Node == o.Local.Node {
			o.Ports = append(o.Ports, p)
		}
	}
	if w.policed {
		o.Local.PolicyMode = intent.EnforcedPolicies
		for _, p := range o.Ports {
			if s := (intent.Subject{Key: p.SubjectKey()}); !slices.ContainsFunc(o.Subjects, func(o intent.Subject) bool { return o.Key == s.Key }) {
				o.Subjects = append(o.Subjects, s)
			}
		}
	}
	return o
}

// worldServiceRanges are where ClusterIPs are from.
var worldServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}

// endpoint is the address of a node's end of the tunnels.
func (w *clusterWorld) endpoint(node int) netip.Addr {
	for _, a := range w.nodes[node].Addresses {
		if a.Is6() == w.underlayV6 {
			return a
		}
	}
	panic("the node has no address of the underlay's family")
}

func address4(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}

// address6 is fd00::a:0:0:b:c as bytes at the end of each part.
func address6(a, b, c int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(a), 7: byte(b), 15: byte(c)})
}

// both is what has one of each family, as far as the world has the family.
func both[T any](w *clusterWorld, v4, v6 T) (list []T) {
	if w.v4 {
		list = append(list, v4)
	}
	if w.v6 {
		list = append(list, v6)
	}
	return list
}

// worldNetworks are the kinds of networks, by the router that they join. Those of
// red, blue and flat have the same addresses.
var worldNetworks = []struct {
	name, router string
	net          int // of 10.<net>.0.0/24; 0: addresses of the node, and a network for each
	physical     uint32
	vlan         uint16
}{
	{name: "user", router: "default", net: 50},
	{name: "office", router: "shared", net: 51},
	{name: "red", router: "red", net: 60},
	{name: "red2", router: "red", net: 61},
	{name: "blue", router: "blue", net: 60},
	{name: "green", router: "green", net: 62},
	{name: "ns", router: "ns"},
	{name: "iso", router: "iso"},
	{name: "iso2", router: "iso2"},
	{name: "vlan", net: 63, physical: vlanUplink, vlan: worldVLAN},
	{name: "flat", net: 60, physical: flatUplink},
}

// drawWorld draws a cluster of one to three nodes, with some of the networks.
func drawWorld(t *rapid.T) *clusterWorld {
	families := rapid.SampledFrom([]string{"4", "6", "46", "46"}).Draw(t, "families")
	w := &clusterWorld{
		encapsulation: rapid.SampledFrom([]intent.Encapsulation{intent.VXLAN, intent.VXLAN, intent.Geneve, intent.NoEncap}).Draw(t, "encapsulation"),
		v4:            strings.Contains(families, "4"), v6: strings.Contains(families, "6"),
	}
	w.native = rapid.Bool().Draw(t, "native services")
	w.policed = rapid.Bool().Draw(t, "policies are enforced")
	w.underlayV6 = !w.v4 || w.v6 && rapid.Bool().Draw(t, "underlay v6")
	for n := range rapid.SampledFrom([]int{2, 3, 1}).Draw(t, "nodes") {
		node := intent.Node{
			Name:      fmt.Sprint("n", n),
			Addresses: both(w, address4(192, 168, 33, n+1), netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x33, 15: byte(n + 1)})),
		}
		for _, p := range both(w, netip.PrefixFrom(address4(10, 244, n, 0), 24), netip.PrefixFrom(address6(244, n, 0), 64)) {
			node.Subnets = append(node.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
		}
		w.nodes = append(w.nodes, node)
	}
	w.drawRouters(t)
	w.networks = []intent.Network{{Name: "default", ID: 1, VNI: 1, Router: "default"}}
	noPrivate := rapid.IntRange(0, 5).Draw(t, "no private router") == 0
	for i, kind := range worldNetworks {
		rt := w.router(kind.router)
		if noPrivate && rt != nil && rt.Private() || rapid.IntRange(0, 2).Draw(t, kind.name) == 0 {
			continue
		}
		network := intent.Network{Name: kind.name, ID: intent.NetworkID(10 + i), VNI: uint32(70010 + i), Router: kind.router, VLAN: kind.vlan}
		if kind.physical != 0 {
			network.VNI, network.Physical = 0, physicalNetwork(kind.physical)
			network.External = rapid.Bool().Draw(t, kind.name+" is external")
			network.Leased = !network.External && w.v4 && rapid.Bool().Draw(t, kind.name+" has DHCP servers")
			network.Relay.Enabled = network.Leased && rapid.Bool().Draw(t, kind.name+" has them elsewhere")
		}
		if network.Leased { // its subnets are the servers'
			w.networks = append(w.networks, network)
			continue
		}
		if kind.net == 0 {
			for n := range w.nodes {
				network.Name, network.ID, network.VNI = fmt.Sprint(kind.name, "-n", n), intent.NetworkID(100+10*i+n), uint32(70100+10*i+n)
				w.networks = append(w.networks, network)
			}
			continue
		}
		for _, p := range both(w, netip.PrefixFrom(address4(10, kind.net, 0, 0), 24), netip.PrefixFrom(address6(kind.net, 0, 0), 64)) {
			network.Subnets = append(network.Subnets, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
		}
		w.networks = append(w.networks, network)
		if kind.physical == 0 {
			w.drawBlocks(t, network)
		}
	}
	if noPrivate || rapid.Bool().Draw(t, "only routers with networks") {
		w.routers = slices.DeleteFunc(w.routers, func(rt intent.Router) bool {
			return rt.Name != "default" && !slices.ContainsFunc(w.networks, func(n intent.Network) bool { return n.Router == rt.Name })
		})
	}
	w.drawPorts(t)
	w.drawRoutes(t)
	w.drawFloatingIPs(t)
	w.drawServedIPs(t)
	w.drawGateways(t)
	w.drawEgress(t)
	w.drawNeighbours(t)
	return w
}

// drawRouters draws which Routers exchange routes. Their ids are in any order.
func (w *clusterWorld) drawRouters(t *rapid.T) {
	names := []string{"shared", "ns", "red", "blue", "green", "iso", "iso2"}
	ids := rapid.Permutation([]int{20, 21, 22, 23, 24, 25, 26}).Draw(t, "router ids")
	w.routers = []intent.Router{{Name: "default", ID: 1, VNI: 1, Shared: true}}
	for i, name := range names {
		w.routers = append(w.routers, intent.Router{
			Name: name, ID: intent.RouterID(ids[i]), VNI: uint32(70020 + 100*ids[i]), Shared: name == "shared" || name == "ns",
		})
	}
	for _, pair := range [][2]string{{"red", "green"}, {"iso", "iso2"}, {"shared", "green"}} {
		how := rapid.SampledFrom([]string{"none", "both", "one way"}).Draw(t, fmt.Sprint(pair))
		if how != "none" {
			w.imports(pair[0], pair[1])
		}
		if how == "both" {
			w.imports(pair[1], pair[0])
		}
	}
}

func (w *clusterWorld) imports(importer, exporter string) {
	rt := w.router(importer)
	rt.Imports = append(rt.Imports, exporter)
	slices.Sort(rt.Imports)
}

func (w *clusterWorld) router(name string) *intent.Router {
	for i := range w.routers {
		if w.routers[i].Name == name {
			return &w.routers[i]
		}
	}
	return nil
}

// drawBlocks gives each node up to one part of each subnet: n has the addresses
// from 16 (n+1) to 16 (n+2).
func (w *clusterWorld) drawBlocks(t *rapid.T, network intent.Network) {
	for n, node := range w.nodes {
		if rapid.IntRange(0, 3).Draw(t, "no block") == 0 {
			continue
		}
		for _, s := range network.Subnets {
			w.blocks = append(w.blocks, intent.Block{Network: network.Name, Prefix: netip.PrefixFrom(at(s.Prefix, 16*(n+1)), s.Prefix.Addr().BitLen()-4), Node: node.Name})
		}
	}
}

// at is the address of that number in a prefix.
func at(p netip.Prefix, number int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = byte(number)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// drawPorts draws up to two ports of each network on each node.
func (w *clusterWorld) drawPorts(t *rapid.T) {
	for n, node := range w.nodes {
		number, last := 0, 10 // of the node
		for _, network := range w.networks {
			if network.FromNodes() && network.Name != "default" && !strings.HasSuffix(network.Name, "-"+node.Name) {
				continue
			}
			for i := range rapid.SampledFrom([]int{1, 0, 2}).Draw(t, "ports of "+network.Name) {
				last++
				p := worldPort{Port: intent.Port{
					ID: fmt.Sprint(node.Name, "-", number, "/eth0"), Namespace: "default", Pod: fmt.Sprint(node.Name, "-", network.Name, "-", i), Interface: "eth0",
					Object: fmt.Sprint(node.Name, "-", network.Name, "-", i), Node: node.Name, Network: network.Name,
				}}
				number++
				if network.Leased {
					w.drawLeasedPort(t, &p, n, i)
					continue
				}
				w.drawPortAddresses(t, &p, n, i, last, network)
				p.MAC = reserved.PodMAC(p.Addresses[0])
				w.ports = append(w.ports, p)
			}
		}
	}
}

// drawLeasedPort draws a pod or a machine with an address of a DHCP server, or without one.
func (w *clusterWorld) drawLeasedPort(t *rapid.T, p *worldPort, n, i int) {
	p.Addresses = []netip.Addr{leasedAddress(p.Network, 100+10*n+i)}
	p.MAC = reserved.PodMAC(p.Addresses[0])
	if rapid.Bool().Draw(t, "machine") {
		p.Interface, p.Pod = "", p.Object
	}
	if rapid.IntRange(0, 3).Draw(t, "has no lease") == 0 {
		p.Addresses = nil
		w.lost = append(w.lost, p.Port)
		return
	}
	w.ports = append(w.ports, *p)
}

// leasedAddress is one that the DHCP servers of a physical network give.
func leasedAddress(network string, number int) netip.Addr {
	for _, kind := range worldNetworks {
		if kind.name == network {
			return address4(10, kind.net, 0, number)
		}
	}
	panic("no such network")
}

func (w *clusterWorld) drawPortAddresses(t *rapid.T, p *worldPort, n, i, last int, network intent.Network) {
	ofNode := both(w, address4(10, 244, n, last), address6(244, n, last))
	if network.FromNodes() {
		p.Addresses = ofNode
		return
	}
	rt := w.router(network.Router)
	if (rt == nil || rt.Private()) && rapid.Bool().Draw(t, "node address") {
		p.NodeAddresses = ofNode
	}
	number := 16*(n+1) + 2 + i
	hasBlock := slices.ContainsFunc(w.blocks, func(b intent.Block) bool { return b.Network == network.Name && b.Node == p.Node })
	if !hasBlock || rapid.IntRange(0, 2).Draw(t, "fixed") == 0 {
		p.fixed = true
		number = 100 + 10*n + i
	}
	for _, s := range network.Subnets {
		p.Addresses = append(p.Addresses, at(s.Prefix, number))
	}
}

// drawRoutes draws a static route of each router, by way of one of its ports.
func (w *clusterWorld) drawRoutes(t *rapid.T) {
	for i := range w.routers {
		rt := &w.routers[i]
		destination := both(w, netip.PrefixFrom(address4(172, 20+i, 0, 0), 16), netip.PrefixFrom(address6(172, 20+i, 0), 64))
		if rt.Private() && rapid.Bool().Draw(t, "default route") {
			destination = both(w, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		}
		for _, p := range w.ports {
			n := w.network(p.Network)
			if n.Router == rt.Name && !n.FromNodes() && len(rt.Routes) == 0 && rapid.IntRange(0, 3).Draw(t, "next hop") == 0 {
				for j, a := range p.Addresses {
					rt.Routes = append(rt.Routes, intent.Route{Destination: destination[j], NextHop: a})
				}
			}
		}
		if len(rt.Routes) > 0 && rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
			// The first one counts.
			rt.Routes = append(rt.Routes, intent.Route{Destination: rt.Routes[0].Destination, NextHop: at(destination[0], 9)})
		}
		if len(rt.Routes) == 0 && rapid.IntRange(0, 9).Draw(t, "lost next hop") == 0 {
			rt.Routes = []intent.Route{{Destination: destination[0], NextHop: at(destination[0], 9)}}
		}
	}
}

// drawFloatingIPs gives ports of all overlay networks up to one floating IP of each family.
func (w *clusterWorld) drawFloatingIPs(t *rapid.T) {
	for i, p := range w.ports {
		if w.network(p.Network).Physical != "" {
			continue
		}
		for _, n := range w.networks {
			if !n.External || rapid.IntRange(0, 2).Draw(t, "no floating IP") == 0 {
				continue
			}
			for _, s := range n.Subnets {
				f := intent.FloatingIP{Name: fmt.Sprint(p.ObjectKey(), "-", s.Prefix.Addr().BitLen()), Network: n.Name, Address: at(s.Prefix, 150+i), Port: p.ObjectKey()}
				if !slices.ContainsFunc(w.floating, func(o intent.FloatingIP) bool { return o.Name == f.Name }) {
					w.floating = append(w.floating, f)
				}
			}
		}
	}
}

// drawServedIPs gives a Service some floating IPs.
func (w *clusterWorld) drawServedIPs(t *rapid.T) {
	for _, n := range w.networks {
		if !n.External {
			continue
		}
		for _, s := range n.Subnets {
			if rapid.IntRange(0, 4).Draw(t, "no floating IP of a Service") == 0 {
				continue
			}
			node := -1
			if rapid.IntRange(0, 4).Draw(t, "none is chosen") > 0 {
				node = rapid.IntRange(0, len(w.nodes)-1).Draw(t, "chosen node")
			}
			w.served = append(w.served, servedIP{
				intent.FloatingIP{Name: fmt.Sprint("default/", n.Name, "-", s.Prefix.Addr().BitLen()), Network: n.Name, Address: at(s.Prefix, 140), Service: "default/web"},
				node,
			})
		}
	}
}

func (w *clusterWorld) external() (list []intent.Network) {
	for _, n := range w.networks {
		if n.External {
			list = append(list, n)
		}
	}
	return list
}

// drawGateways gives some Routers a gateway on an external network: addresses of some nodes, or
// those that one of several nodes is active for.
func (w *clusterWorld) drawGateways(t *rapid.T) {
	external := w.external()
	if len(external) == 0 {
		return
	}
	for i, rt := range w.routers {
		n := rapid.SampledFrom(external).Draw(t, "gateway of "+rt.Name)
		if rapid.Bool().Draw(t, "centralized") {
			w.drawEgressAddresses(t, intent.EgressAddress{Network: n.Name, Router: rt.Name}, 53+2*i)
			continue
		}
		routed := map[bool]bool{}
		for _, v6 := range []bool{false, true} {
			routed[v6] = rapid.Bool().Draw(t, "is routed")
		}
		for j, node := range w.nodes {
			for _, s := range n.Subnets {
				if rapid.Bool().Draw(t, "is a gateway") {
					w.gateways = append(w.gateways, intent.GatewayAddress{
						Router: rt.Name, Node: node.Name, Network: n.Name, Address: at(s.Prefix, 70+3*i+j),
						Routed: routed[s.Prefix.Addr().Is6()],
					})
				}
			}
		}
	}
}

// drawEgress draws an Egress or two, and Ports that they select, also one that does not take
// effect.
func (w *clusterWorld) drawEgress(t *rapid.T) {
	external := w.external()
	if len(external) == 0 {
		return
	}
	names := []string{"", "", "batch", "batch", "jobs", "gone"}
	for i, name := range []string{"batch", "jobs"} {
		path := intent.EgressPath{Name: name, Network: rapid.SampledFrom(external).Draw(t, "network of "+name).Name}
		if rapid.IntRange(0, 2).Draw(t, "some destinations") == 0 {
			for _, d := range both(w, "8.8.8.0/24", "2001:db8::/32") {
				path.Destinations = append(path.Destinations, netip.MustParsePrefix(d))
			}
			// The second one is within the first.
			for _, d := range both(w, "8.8.8.8/32", "2001:db8::8/128") {
				if rapid.Bool().Draw(t, "more destinations") {
					path.Destinations = append(path.Destinations, netip.MustParsePrefix(d))
				}
			}
			path.Destinations = path.Destinations[rapid.IntRange(0, 1).Draw(t, "one family"):]
		}
		w.drawNextHops(t, &path)
		if rapid.IntRange(0, 5).Draw(t, "no "+name) > 0 {
			w.paths = append(w.paths, path)
		}
		w.drawEgressAddresses(t, intent.EgressAddress{Network: path.Network, Router: intent.DefaultRouterName, Egress: name}, 40+2*i)
	}
	w.down = map[NextHopKey]bool{}
	for _, e := range w.egress {
		for _, hop := range w.nextHopsOf(e) {
			if rapid.IntRange(0, 3).Draw(t, "next hop works") == 0 {
				w.down[NextHopKey{e.Network, e.Address, hop}] = true
			}
		}
	}
	for i := range w.ports {
		w.ports[i].Egress = rapid.SampledFrom(names).Draw(t, "egress")
	}
}

// firstNextHop is the number of the first next hop of an Egress in each subnet of an external
// network.
const firstNextHop = 220

// drawNextHops draws that a third of Egresses do not translate, but send to next hops.
func (w *clusterWorld) drawNextHops(t *rapid.T, path *intent.EgressPath) {
	if rapid.IntRange(0, 2).Draw(t, "translates") > 0 {
		return
	}
	for _, s := range w.network(path.Network).Subnets {
		for i := range rapid.IntRange(0, 3).Draw(t, "next hops") {
			path.NextHops = append(path.NextHops, at(s.Prefix, firstNextHop+i))
		}
	}
}

// nextHopsOf are those of an address's Egress; none: it translates.
func (w *clusterWorld) nextHopsOf(e intent.EgressAddress) []netip.Addr {
	for _, path := range w.paths {
		if path.Name == e.Egress {
			return path.NextHops
		}
	}
	return nil
}

// drawEgressAddresses draws up to two addresses of each family, and what nodes know of them: as a
// rule the same.
func (w *clusterWorld) drawEgressAddresses(t *rapid.T, like intent.EgressAddress, number int) {
	for len(w.states) < len(w.nodes) {
		w.states = append(w.states, map[ExternalKey]EgressState{})
	}
	like.Nodes = nil
	for _, n := range w.nodes {
		if rapid.IntRange(0, 3).Draw(t, "may not be active") > 0 {
			like.Nodes = append(like.Nodes, n.Name)
		}
	}
	for _, s := range w.network(like.Network).Subnets {
		for i := range rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(t, "addresses") {
			e := like
			e.Address = at(s.Prefix, number+i)
			agreed := w.drawEgressState(t, e)
			e.Active = agreed.Active
			w.egress = append(w.egress, e)
			differ := rapid.IntRange(0, 3).Draw(t, "nodes disagree") == 0
			for n := range w.nodes {
				state := agreed
				if differ {
					state = w.drawEgressState(t, e)
				}
				if state.Active != "" || rapid.Bool().Draw(t, "known state") {
					w.states[n][ExternalKey{e.Network, e.Address}] = state
				}
			}
		}
	}
}

// drawEgressState draws that one of an address's nodes is active, none or, seldom, another one.
func (w *clusterWorld) drawEgressState(t *rapid.T, e intent.EgressAddress) EgressState {
	active := append([]string{""}, slices.Repeat(e.Nodes, 3)...)
	for _, n := range w.nodes {
		active = append(active, n.Name)
	}
	return EgressState{Active: rapid.SampledFrom(active).Draw(t, "active"), Silent: rapid.IntRange(0, 5).Draw(t, "silent") == 0}
}

// drawNeighbours draws which MACs on external networks are known.
func (w *clusterWorld) drawNeighbours(t *rapid.T) {
	w.neighbours = map[NeighbourKey]intent.MAC{}
	for _, n := range w.networks {
		for i, s := range n.Subnets {
			if n.External {
				w.drawNeighbour(t, n, s.Gateway, outsideMAC(0))
				w.drawNeighbour(t, n, at(s.Prefix, outsideHost), outsideMAC(1+i))
			}
		}
	}
	for _, p := range w.ports {
		for _, a := range p.Addresses {
			if n := w.network(p.Network); n.External {
				w.drawNeighbour(t, n, a, p.MAC)
			}
		}
	}
	for _, f := range w.floating {
		w.drawNeighbour(t, w.network(f.Network), f.Address, reserved.PodMAC(f.Address))
	}
	for _, f := range w.served {
		w.drawNeighbour(t, w.network(f.Network), f.Address, reserved.PodMAC(f.Address))
	}
	for _, g := range w.gateways {
		w.drawNeighbour(t, w.network(g.Network), g.Address, reserved.PodMAC(g.Address))
	}
	for _, e := range w.egress {
		w.drawNeighbour(t, w.network(e.Network), e.Address, reserved.PodMAC(e.Address))
	}
	for _, path := range w.paths {
		for i, hop := range path.NextHops {
			w.drawNeighbour(t, w.network(path.Network), hop, outsideMAC(firstNextHop+i))
		}
	}
}

// outsideHost is the number of a host outside in each subnet of an external network.
const outsideHost = 99

// outsideMAC is the MAC of the gateway (0) or of another host on external networks.
func outsideMAC(host int) intent.MAC { return intent.MAC{2, 0x77, 0, 0, 0, byte(host)} }

func (w *clusterWorld) drawNeighbour(t *rapid.T, n intent.Network, a netip.Addr, mac intent.MAC) {
	if rapid.IntRange(0, 2).Draw(t, "unknown MAC") > 0 {
		w.neighbours[NeighbourKey{n.Name, a}] = mac
	}
}

func (w *clusterWorld) network(name string) intent.Network {
	for _, n := range w.networks {
		if n.Name == name {
			return n
		}
	}
	return intent.Network{}
}

// addresses are all that mean something in the cluster, and some that do not.
func (w *clusterWorld) addresses() []netip.Addr {
	list := both(w, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8"))
	list = append(list, both(w, address4(10, 60, 0, 200), address6(60, 0, 200))...)
	list = append(list, both(w, address4(10, 244, 0, 200), address6(244, 0, 200))...)
	for _, n := range w.nodes {
		list = append(list, n.Addresses...)
		for _, s := range n.Subnets {
			list = append(list, s.Gateway)
		}
	}
	for _, rt := range w.routers {
		for _, route := range rt.Routes {
			if route.Destination.Bits() > 0 {
				list = append(list, at(route.Destination, 5))
			}
		}
	}
	for _, p := range w.ports {
		list = append(list, p.Addresses...)
		list = append(list, p.Addresses...)
		list = append(list, p.NodeAddresses...)
	}
	for _, n := range w.networks {
		for _, s := range n.Subnets {
			if n.External {
				list = append(list, at(s.Prefix, outsideHost))
			}
		}
	}
	for _, f := range w.floating {
		list = append(list, f.Address)
	}
	for _, f := range w.served {
		list = append(list, f.Address)
	}
	for _, g := range w.gateways {
		list = append(list, g.Address)
	}
	for _, e := range w.egress {
		list = append(list, e.Address)
	}
	for _, path := range w.paths {
		list = append(list, path.NextHops...)
	}
	return list
}
