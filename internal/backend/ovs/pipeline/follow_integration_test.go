// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// simulation is a cluster of switches, each with the flows of its node. It hands
// packets from switch to switch as tunnels and physical networks do.
type simulation struct {
	*clusterWorld
	ctx     context.Context
	tracers []*tracer
	log     []string // of the last packet
	zone    int      // where conntrack knows a connection by a gateway; 0: nowhere
}

// arrival is where a packet ended.
type arrival struct {
	end      string // "port", "host", "wire", "outside", "agent" or "dropped"
	node     int
	port     worldPort // if it is one
	src, dst netip.Addr
	ttl      uint8
	mac      intent.MAC // of the next hop outside
	gateway  netip.Addr // that the agent is to find the MAC of; invalid: of the destination
	last     outcome
	commits  []int // zones in which the first node marked the connection
	lookups  []int // zones in which the first node looked it up
}

func (a arrival) String() string {
	switch a.end {
	case "port":
		return fmt.Sprintf("port %s from %s to %s ttl %d", a.port.ID, a.src, a.dst, a.ttl)
	case "host":
		return fmt.Sprintf("host n%d from %s to %s ttl %d", a.node, a.src, a.dst, a.ttl)
	case "outside":
		return fmt.Sprintf("outside by %s from %s to %s ttl %d", a.mac, a.src, a.dst, a.ttl)
	case "agent":
		return fmt.Sprintf("agent of n%d, for gateway %s, from %s to %s ttl %d", a.node, a.gateway, a.src, a.dst, a.ttl)
	}
	return a.end
}

// same compares what a model can tell.
func (a arrival) same(b arrival) bool { return a.String() == b.String() }

// input is what a node compiles its flows from.
func (s *simulation) input(t fataler, node int) Input {
	o := s.view(node)
	for _, p := range both(s.clusterWorld, worldServiceRanges[0], worldServiceRanges[1]) {
		o.ServiceRanges = append(o.ServiceRanges, intent.ServiceRange{Prefix: p})
	}
	in := inputOf(stateFrom(t, o))
	in.Numbers = in.Numbers.WithNeighbours(s.neighbours)
	if s.states != nil {
		in.Numbers = in.Numbers.WithEgress(s.states[node]).WithNextHopsDown(s.down)
	}
	return in
}

// send lets a packet in on a node, and follows it. Conntrack finds the reply's
// mark on the node markedOn, if it looks into one of the zones.
func (s *simulation) send(node int, p packet, markedOn int, zones []int) (arrival, error) {
	var commits, asked []int
	for hop := range 5 {
		p.reply = markedOn >= 0
		p.marked = node == markedOn
		o, text, err := s.tracers[node].trace(s.ctx, p)
		s.log = append(s.log, fmt.Sprintf("on n%d: %s\n%s", node, traceFlow(p), text))
		if err != nil {
			return arrival{}, err
		}
		if p.marked && len(o.Lookups) == 1 && !slices.Contains(zones, o.Lookups[0]) {
			// Conntrack would have found nothing.
			p.marked = false
			if o, text, err = s.tracers[node].trace(s.ctx, p); err != nil {
				return arrival{}, err
			}
			s.log = append(s.log, "no mark in that zone\n"+text)
		}
		if i := slices.IndexFunc(o.Lookups, func(zone int) bool { return zone >= int(datapath.GatewayZone(0)) && zone != s.zone }); p.reply && i >= 0 {
			p.unknown = i + 1
			if o, text, err = s.tracers[node].trace(s.ctx, p); err != nil {
				return arrival{}, err
			}
			s.log = append(s.log, "no connection by that gateway\n"+text)
		}
		lookups, resubmits := 1, 1
		if len(s.floating)+len(s.served)+len(s.gateways)+len(s.egress) > 0 {
			lookups, resubmits = 2, 3 // a hairpin begins anew
		}
		if slices.ContainsFunc(s.gateways, func(g intent.GatewayAddress) bool { return g.Routed }) {
			resubmits++ // back to what leaves by another address
		}
		if p.reply && len(s.gateways)+len(s.egress) > 0 {
			lookups = 3 // where it was translated, and for either port
		}
		if len(o.Lookups) > lookups || strings.Count(text, "resubmit(") > resubmits {
			return arrival{}, fmt.Errorf("%d recirculations, %d resubmits", len(o.Lookups), strings.Count(text, "resubmit("))
		}
		if hop == 0 {
			commits, asked = o.Commits, o.Lookups
		}
		at := arrival{node: node, src: o.Src, dst: o.Dst, ttl: o.TTL, last: o, commits: commits, lookups: asked}
		next, more := packet{}, false
		switch {
		case o.Drop:
			at.end = "dropped"
		case o.Asked != "":
			kind, gateway, _ := strings.Cut(o.Asked, detailMark)
			if kind != UnresolvedUserdata {
				return arrival{}, fmt.Errorf("the agent is given it for %q", o.Asked)
			}
			at.end = "agent"
			at.gateway, _ = netip.ParseAddr(gateway)
		case o.Port == datapath.GatewayPort:
			at.end = "host"
		case o.Port == datapath.TunnelPort:
			next, node, more = s.acrossTunnel(node, o)
		case o.Port <= datapath.LastUplinkPort:
			at.end = "wire"
			if s.isFloating(o.Src, o.EthSrc) || s.isGateway(o.Src, o.EthSrc) || s.isEgress(o.Src, o.EthSrc) {
				at.end, at.mac = "outside", o.EthDst
			}
			next, node, more = s.acrossWire(node, o)
		default:
			at.end = "port"
			at.port = s.portAt(node, o.Port)
		}
		if !more {
			return at, nil
		}
		p = next
	}
	return arrival{}, fmt.Errorf("the packet crosses nodes without end")
}

func (s *simulation) acrossTunnel(from int, o outcome) (packet, int, bool) {
	for n := range s.nodes {
		if s.endpoint(n) == o.TunDst {
			return packet{
				kind: "ip", inPort: datapath.TunnelPort, tunSrc: s.endpoint(from), vni: o.VNI,
				ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, n, true
		}
	}
	panic("there is no node " + o.TunDst.String())
}

// acrossWire hands a packet of a physical network to the node that has the MAC; false: a host
// outside has it, or none.
func (s *simulation) acrossWire(from int, o outcome) (packet, int, bool) {
	for _, p := range s.ports {
		if n := s.network(p.Network); p.MAC == o.EthDst && uplinkOf(n) == o.Port && n.VLAN == o.VLAN && p.Node != s.nodes[from].Name {
			return packet{
				kind: "ip", inPort: uplinkOf(n), vlan: o.VLAN, ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, s.nodeOf(p), true
		}
	}
	for _, f := range s.floating {
		b, n := s.floats(f), s.network(f.Network)
		if reserved.PodMAC(f.Address) == o.EthDst && uplinkOf(n) == o.Port && n.VLAN == o.VLAN && b.Node != s.nodes[from].Name {
			return packet{
				kind: "ip", inPort: uplinkOf(n), vlan: o.VLAN, ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, s.nodeOf(b), true
		}
	}
	for _, f := range s.served {
		n := s.network(f.Network)
		if reserved.PodMAC(f.Address) == o.EthDst && uplinkOf(n) == o.Port && n.VLAN == o.VLAN && s.native && f.node >= 0 && f.node != from {
			return packet{
				kind: "ip", inPort: uplinkOf(n), vlan: o.VLAN, ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, f.node, true
		}
	}
	for _, g := range s.gateways {
		n := s.network(g.Network)
		if reserved.PodMAC(g.Address) == o.EthDst && uplinkOf(n) == o.Port && n.VLAN == o.VLAN && g.Node != s.nodes[from].Name {
			return packet{
				kind: "ip", inPort: uplinkOf(n), vlan: o.VLAN, ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, s.nodeNamed(g.Node), true
		}
	}
	for _, e := range s.egress {
		n := s.network(e.Network)
		if reserved.PodMAC(e.Address) != o.EthDst || uplinkOf(n) != o.Port || n.VLAN != o.VLAN {
			continue
		}
		// The switches outside may know any node that has been active.
		if i := slices.IndexFunc(e.Nodes, func(name string) bool { return name != s.nodes[from].Name }); i >= 0 {
			return packet{
				kind: "ip", inPort: uplinkOf(n), vlan: o.VLAN, ethSrc: o.EthSrc, ethDst: o.EthDst, src: o.Src, dst: o.Dst, ttl: o.TTL,
			}, s.nodeNamed(e.Nodes[i]), true
		}
	}
	return packet{}, from, false
}

// isEgress says whether a packet comes from an address that one of several nodes is active for, or
// leaves with its MAC for a next hop.
func (s *simulation) isEgress(src netip.Addr, mac intent.MAC) bool {
	return slices.ContainsFunc(s.egress, func(e intent.EgressAddress) bool {
		return (len(s.nextHopsOf(e)) > 0 || e.Address == src) && mac == reserved.PodMAC(e.Address)
	})
}

// isGateway says whether a packet comes from a Router's gateway.
func (s *simulation) isGateway(src netip.Addr, mac intent.MAC) bool {
	return slices.ContainsFunc(s.gateways, func(g intent.GatewayAddress) bool {
		return (g.Routed || g.Address == src) && mac == reserved.PodMAC(g.Address)
	})
}

// isFloating says whether a packet comes from a floating IP.
func (s *simulation) isFloating(src netip.Addr, mac intent.MAC) bool {
	return mac == reserved.PodMAC(src) &&
		(slices.ContainsFunc(s.floating, func(f intent.FloatingIP) bool { return f.Address == src }) ||
			slices.ContainsFunc(s.served, func(f servedIP) bool { return f.Address == src }))
}

// floats is the port that a floating IP stands for.
func (w *clusterWorld) floats(f intent.FloatingIP) worldPort {
	return w.ports[slices.IndexFunc(w.ports, func(p worldPort) bool { return p.ObjectKey() == f.Port })]
}

func (s *simulation) portAt(node int, number uint32) worldPort {
	for _, p := range s.ports {
		if p.Node == s.nodes[node].Name && ofPort(p.ID) == number {
			return p
		}
	}
	return worldPort{Port: intent.Port{ID: "unknown"}}
}

func (w *clusterWorld) nodeOf(p worldPort) int {
	return w.nodeNamed(p.Node)
}

func (w *clusterWorld) nodeNamed(name string) int {
	return slices.IndexFunc(w.nodes, func(n intent.Node) bool { return n.Name == name })
}

// nextMAC is what a port learns when it asks for the MAC to send to: that of the
// destination if it is on link, else of its gateway.
func (s *simulation) nextMAC(p worldPort, source, to netip.Addr) (intent.MAC, error) {
	asked, onLink := s.gatewayOf(p, to)
	if onLink {
		asked = to
	}
	q := packet{inPort: ofPort(p.ID), ethSrc: p.MAC, link: p.MAC, src: source, ttl: 255}
	if to.Is4() {
		q.kind, q.dst, q.ethDst = "arp-request", asked, intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	} else {
		q.kind, q.target, q.dst, q.ethDst = "solicit", asked, netip.MustParseAddr("ff02::1:ff00:1"), intent.MAC{0x33, 0x33, 0xff, 0, 0, 1}
	}
	o, text, err := s.tracers[s.nodeOf(p)].trace(s.ctx, q)
	if err != nil {
		return intent.MAC{}, fmt.Errorf("%s: %w\n%s", traceFlow(q), err, text)
	}
	if n := s.network(p.Network); n.Physical != "" && o.Answer == (intent.MAC{}) {
		// The question goes to the wire.
		if o.Port != uplinkOf(n) || o.VLAN != n.VLAN {
			return intent.MAC{}, fmt.Errorf("%s: not on the wire: %+v\n%s", traceFlow(q), o, text)
		}
		return s.wireMAC(p, q, asked)
	}
	if o.Answer == (intent.MAC{}) {
		s.log = append(s.log, traceFlow(q)+"\n"+text)
	}
	return o.Answer, nil
}

// wireMAC is what the other nodes answer to a question on a physical network; a
// stranger's if they do not.
func (s *simulation) wireMAC(asker worldPort, q packet, asked netip.Addr) (intent.MAC, error) {
	stranger := intent.MAC{2, 2, 2, 2, 2, 2}
	n := s.network(asker.Network)
	q.inPort, q.vlan = uplinkOf(n), n.VLAN
	for i := range s.nodes {
		if i == s.nodeOf(asker) {
			continue
		}
		o, text, err := s.tracers[i].trace(s.ctx, q)
		if err != nil {
			return stranger, fmt.Errorf("%s: %w\n%s", traceFlow(q), err, text)
		}
		if o.Answer != (intent.MAC{}) {
			if o.VLAN != n.VLAN {
				return stranger, fmt.Errorf("%s: the answer has VLAN %d\n%s", traceFlow(q), o.VLAN, text)
			}
			return o.Answer, nil
		}
	}
	return stranger, nil
}

// gatewayOf is the port's gateway of the family of to, and whether to is on link.
func (w *clusterWorld) gatewayOf(p worldPort, to netip.Addr) (gateway netip.Addr, onLink bool) {
	n := w.network(p.Network)
	if n.FromNodes() {
		for _, s := range w.nodes[w.nodeOf(p)].Subnets {
			if s.Gateway.Is4() == to.Is4() {
				gateway, onLink = s.Gateway, s.Prefix.Contains(to)
			}
		}
		return gateway, onLink
	}
	if n.Leased {
		gateway = leasedAddress(n.Name, 1)
		return gateway, netip.PrefixFrom(gateway, 24).Masked().Contains(to)
	}
	for _, s := range n.Subnets {
		if s.Gateway.Is4() == to.Is4() {
			gateway, onLink = s.Gateway, s.Prefix.Contains(to)
		}
	}
	return gateway, onLink
}

// fromPort sends a packet as a port would, from its first address of the family.
func (s *simulation) fromPort(p worldPort, to netip.Addr, markedOn int, zones []int) (arrival, error) {
	return s.fromPortTTL(p, to, 64, markedOn, zones)
}

func (s *simulation) fromPortTTL(p worldPort, to netip.Addr, ttl uint8, markedOn int, zones []int) (arrival, error) {
	s.log = nil
	source, ok := firstOf(p.Addresses, to)
	if !ok {
		return arrival{end: "dropped"}, nil
	}
	mac, err := s.nextMAC(p, source, to)
	if err != nil || mac == (intent.MAC{}) {
		return arrival{end: "dropped"}, err
	}
	return s.send(s.nodeOf(p), packet{kind: "ip", inPort: ofPort(p.ID), ethSrc: p.MAC, ethDst: mac, src: source, dst: to, ttl: ttl}, markedOn, zones)
}

// forwardedBy sends back, by the port that a static route leads to, what a host behind it answers.
func (s *simulation) forwardedBy(p worldPort, src, to netip.Addr) (arrival, error) {
	s.log = nil
	own, _ := firstOf(p.Addresses, to)
	mac, err := s.nextMAC(p, own, to)
	if err != nil || mac == (intent.MAC{}) {
		return arrival{end: "dropped"}, err
	}
	return s.send(s.nodeOf(p), packet{kind: "ip", inPort: ofPort(p.ID), ethSrc: p.MAC, ethDst: mac, src: src, dst: to, ttl: 64}, -1, nil)
}

// fromHost sends a packet as a node's kernel would, which has the node's subnet on
// link, and routes by way of the other gateways.
func (s *simulation) fromHost(node int, from, to netip.Addr) (arrival, error) {
	s.log = nil
	mac, err := s.hostMAC(node, to)
	if err != nil || mac == (intent.MAC{}) {
		return arrival{end: "dropped"}, err
	}
	return s.send(node, packet{
		kind: "ip", inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, ethDst: mac, src: from, dst: to, ttl: 64,
	}, -1, nil)
}

// hostMAC is what a node's kernel learns when it asks for its next hop.
func (s *simulation) hostMAC(node int, to netip.Addr) (intent.MAC, error) {
	asked, own := to, netip.Addr{}
	for n, other := range s.nodes {
		for _, sn := range other.Subnets {
			switch {
			case n == node && sn.Gateway.Is4() == to.Is4():
				own = sn.Gateway
			case n != node && sn.Prefix.Contains(to):
				asked = sn.Gateway
			}
		}
	}
	for _, n := range s.networks {
		if rt := s.router(n.Router); rt != nil && rt.Shared {
			for _, sn := range n.Subnets {
				if sn.Prefix.Contains(to) {
					asked = sn.Gateway
				}
			}
		}
	}
	if asked != to && !s.encapsulation.Tunneled() {
		return datapath.RouterMAC, nil // it has a route that does not come here, but may try
	}
	q := packet{kind: "arp-request", inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, link: datapath.GatewayMAC, ethDst: intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, src: own, dst: asked, ttl: 255}
	if to.Is6() {
		q.kind, q.target, q.dst, q.ethDst = "solicit", asked, netip.MustParseAddr("ff02::1:ff00:1"), intent.MAC{0x33, 0x33, 0xff, 0, 0, 1}
	}
	o, text, err := s.tracers[node].trace(s.ctx, q)
	if err != nil {
		return intent.MAC{}, fmt.Errorf("%s: %w\n%s", traceFlow(q), err, text)
	}
	if o.Answer == (intent.MAC{}) {
		s.log = append(s.log, traceFlow(q)+"\n"+text)
	}
	return o.Answer, nil
}
