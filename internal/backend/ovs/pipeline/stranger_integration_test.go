// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// Whatever a packet claims to be, it reaches no end that its sender must not reach, and leaves with
// no address or key that is not the sender's.
func TestStrangers(t *testing.T) {
	tracers := newTracers(t, 1)
	ends := map[string]int{}
	checkUntilSeen(t, ends, []string{"dropped", "answered", "port", "host", "tunnel", "wire"}, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := &simulation{clusterWorld: drawWorld(t), ctx: ctx, tracers: tracers}
		// By these tenants reach each other, and outside.
		s.floating, s.served, s.gateways, s.egress, s.paths = nil, nil, nil, nil, nil
		if err := tracers[0].load(ctx, stateFrom(t, s.view(0))); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			p := s.drawStranger(t)
			o, text, err := tracers[0].trace(ctx, p)
			if err != nil {
				t.Fatalf("%s: %v\n%s", traceFlow(p), err, text)
			}
			if wrong := (promise{s.clusterWorld}).wrong(p, o); wrong != "" {
				t.Fatalf("%s: %s\n%s", traceFlow(p), wrong, text)
			}
			ends[end(o)]++
		}
	})
}

// Whatever a packet claims to be, it leaves the cluster by no address of an external network that
// is not its sender's, and a node sends on what other nodes send it to the active node only.
func TestStrangersAtExits(t *testing.T) {
	tracers := newTracers(t, 1)
	ends := map[string]int{}
	checkUntilSeen(t, ends, []string{"port by exit", "tunnel by exit", "tunnel passed on", "port to active", "by next hop", "dropped"}, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := &simulation{clusterWorld: drawWorld(t), ctx: ctx, tracers: tracers}
		if err := tracers[0].loadInput(ctx, s.input(t, 0)); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			p := s.drawAtExit(t)
			if p.kind != "ip" {
				continue
			}
			o, text, err := tracers[0].trace(ctx, p)
			if err != nil {
				t.Fatalf("%s: %v\n%s", traceFlow(p), err, text)
			}
			kind, wrong := (promise{s.clusterWorld}).wrongAtExit(p, o)
			if wrong != "" {
				t.Fatalf("%s: %s\n%s", traceFlow(p), wrong, text)
			}
			ends[kind]++
		}
	})
}

// drawAtExit draws a stranger, which may know what leads to egress addresses, or what a port sends
// to any address.
func (s *simulation) drawAtExit(t *rapid.T) packet {
	p := s.drawStranger(t)
	here := s.portsOn(0)
	switch draw := rapid.IntRange(0, 5).Draw(t, "stranger"); {
	case draw < 2 && len(here) > 0:
		a := rapid.SampledFrom(here).Draw(t, "port")
		to := rapid.SampledFrom(append(s.clusterWorld.addresses(), both(s.clusterWorld, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8"))...)).Draw(t, "to")
		if own, ok := firstOf(a.Addresses, to); ok {
			p = packet{kind: "ip", inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: datapath.RouterMAC, src: own, dst: to, ttl: p.ttl}
		}
	case draw < 5 && len(s.egress) > 0:
		e := rapid.SampledFrom(s.egress).Draw(t, "egress address")
		p.ethDst = reserved.PodMAC(e.Address)
		if len(s.nodes) < 2 || rapid.IntRange(0, 4).Draw(t, "from anywhere") == 0 {
			break
		}
		of := slices.DeleteFunc(family(s.clusterWorld.addresses(), e.Address.Is4()), func(a netip.Addr) bool { return a == e.Address })
		p = packet{
			kind: "ip", inPort: datapath.TunnelPort, tunSrc: s.endpoint(len(s.nodes) - 1), vni: s.home(e.Router).VNI,
			ethSrc: rapid.SampledFrom([]intent.MAC{datapath.RouterMAC, datapath.RelayMAC, p.ethSrc}).Draw(t, "source"), ethDst: p.ethDst,
			src: rapid.SampledFrom(of).Draw(t, "src again"), dst: rapid.SampledFrom(of).Draw(t, "dst again"), ttl: p.ttl,
		}
		if rapid.IntRange(0, 3).Draw(t, "another router") == 0 {
			p.vni = rapid.SampledFrom(s.keys()).Draw(t, "its vni")
		}
	}
	return p
}

// home is the router that has the routes of the one of that name.
func (w *clusterWorld) home(name string) intent.Router {
	if rt := w.router(name); rt != nil && !rt.Shared {
		return *rt
	}
	return *w.router(intent.DefaultRouterName)
}

// wrongAtExit says what is wrong with the outcome of a packet on the first node, where that has to
// do with addresses of external networks, and what has become of it.
func (w promise) wrongAtExit(p packet, o outcome) (kind, wrong string) {
	fromTunnel, own := p.inPort == datapath.TunnelPort, worldPort{}
	for _, a := range w.portsOn(0) {
		if ofPort(a.ID) == p.inPort {
			own = a
		}
	}
	isExit := slices.ContainsFunc(w.floating, func(f intent.FloatingIP) bool { return f.Address == o.Src }) ||
		slices.ContainsFunc(w.gateways, func(g intent.GatewayAddress) bool { return g.Address == o.Src })
	// addressed is the egress address that another node has sent the packet to.
	addressed, toEgress := exit{}, false
	for _, e := range w.egress {
		isExit = isExit || e.Address == o.Src
		if fromTunnel && p.vni == w.home(e.Router).VNI && p.ethDst == reserved.PodMAC(e.Address) && slices.Contains(e.Nodes, "n0") {
			addressed, toEgress = w.egressAt(w.network(e.Network), e.Address)
		}
	}
	switch {
	case o.Drop:
		return "dropped", ""
	case isExit && o.Src != p.src && fromTunnel:
		if !toEgress || addressed.address != o.Src || w.activeFor(0, addressed) != 0 {
			return "", "another node's packet leaves as " + o.Src.String()
		}
		return "tunnel by exit", ""
	case isExit && o.Src != p.src:
		as, ok := w.exitOf(own, p.dst)
		if node, here := w.translates(0, as); own.ID == "" || !ok || as.address != o.Src || !here || node != 0 {
			return "", "leaves as " + o.Src.String() + ", which is not the sender's"
		}
		return "port by exit", ""
	case isExit && fromTunnel:
		return end(o), "" // no port can send so
	case end(o) == "wire" && w.routedOut(own, p, o):
		return "port routed", ""
	case end(o) == "wire" && w.outByNextHop(own, p, o, addressed, toEgress):
		return "by next hop", ""
	case end(o) == "wire" && w.network(own.Network).Physical == "":
		return "", "is on the wire untranslated"
	case fromTunnel && end(o) == "tunnel":
		next := w.activeFor(0, addressed)
		switch {
		case !toEgress || next <= 0 || p.ethSrc != datapath.RouterMAC:
			return "", "from a tunnel to a tunnel"
		case o.TunDst != w.endpoint(next) || o.EthSrc != datapath.RelayMAC || o.EthDst != p.ethDst || o.VNI != p.vni || o.Src != p.src || o.Dst != p.dst || o.TTL != p.ttl:
			return "", fmt.Sprintf("passed on as another packet: %+v", o)
		}
		return "tunnel passed on", ""
	case end(o) == "tunnel" && own.ID != "":
		as, ok := w.exitOf(own, p.dst)
		if !ok || !as.ofNodes || o.EthDst != reserved.PodMAC(as.address) {
			break
		}
		if next := w.activeFor(0, as); next <= 0 || o.TunDst != w.endpoint(next) || o.VNI != w.home(as.router).VNI {
			return "", fmt.Sprintf("to a node that is not active: %+v", o)
		}
		return "port to active", ""
	}
	return end(o), ""
}

// outByNextHop says whether a packet leaves as it should by a next hop of an Egress: what another
// node has sent to an address of the Egress, or what a port sends.
func (w promise) outByNextHop(own worldPort, p packet, o outcome, addressed exit, toEgress bool) bool {
	as, source := addressed, p.src
	if !toEgress {
		var ok bool
		if as, ok = w.exitOf(own, p.dst); !ok || own.ID == "" {
			return false
		}
		source = as.own
	}
	node, here := w.translates(0, as)
	return here && node == 0 && o.Src == source && o.EthSrc == reserved.PodMAC(as.address) &&
		slices.ContainsFunc(w.hopsOf(as), func(hop netip.Addr) bool {
			mac, known := w.neighbours[NeighbourKey{as.network, hop}]
			return known && mac == o.EthDst || !known && o.Asked != "" // the agent finds the MAC
		})
}

// hopsOf are the next hops that what leaves by an address of an Egress is sent to; none: it is
// translated.
func (w promise) hopsOf(as exit) []netip.Addr {
	for _, e := range w.egress {
		if e.Network == as.network && e.Address == as.address {
			return w.byPolicy(as, w.nextHopsOf(e), netip.Addr{}).hops
		}
	}
	return nil
}

// routedOut says whether a port's packet leaves as it should by a routed gateway of its node.
func (w promise) routedOut(own worldPort, p packet, o outcome) bool {
	as, ok := w.exitOf(own, p.dst)
	return own.ID != "" && ok && as.own.IsValid() && o.Src == p.src && slices.Contains(own.Addresses, o.Src) &&
		o.EthSrc == reserved.PodMAC(as.address)
}

func end(o outcome) string {
	switch {
	case o.Drop:
		return "dropped"
	case o.Answer != intent.MAC{}:
		return "answered"
	case o.Port == datapath.GatewayPort:
		return "host"
	case o.Port == datapath.TunnelPort:
		return "tunnel"
	case o.Port <= datapath.LastUplinkPort:
		return "wire"
	}
	return "port"
}

// drawStranger draws a packet that enters the first node by anything but the gateway, with
// addresses, MACs and keys that are in use somewhere.
func (s *simulation) drawStranger(t *rapid.T) packet {
	here := s.portsOn(0)
	macs := []intent.MAC{datapath.RouterMAC, datapath.RouterMAC, datapath.GatewayMAC, datapath.RelayMAC, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {2, 2, 2, 2, 2, 2}}
	for _, p := range s.ports {
		macs = append(macs, p.MAC)
	}
	addresses := s.clusterWorld.addresses()
	in := []uint32{datapath.TunnelPort, datapath.TunnelPort, vlanUplink, flatUplink}
	for _, p := range here {
		in = append(in, ofPort(p.ID), ofPort(p.ID))
	}
	p := packet{
		inPort: rapid.SampledFrom(in).Draw(t, "in"),
		ethSrc: rapid.SampledFrom(macs).Draw(t, "eth src"), ethDst: rapid.SampledFrom(macs).Draw(t, "eth dst"),
		kind: rapid.SampledFrom([]string{"ip", "ip", "ip", "arp-request", "arp-reply", "solicit", "advertise"}).Draw(t, "kind"),
		src:  rapid.SampledFrom(addresses).Draw(t, "src"), link: rapid.SampledFrom(macs).Draw(t, "link"),
		ttl:  rapid.SampledFrom([]uint8{64, 64, 255, 1}).Draw(t, "ttl"),
		vlan: rapid.SampledFrom([]uint16{0, 0, 0, worldVLAN, 7}).Draw(t, "vlan"),
	}
	if p.kind == "ip" && rapid.IntRange(0, 2).Draw(t, "routed") > 0 {
		p.ethDst = datapath.RouterMAC
	}
	if i := slices.IndexFunc(here, func(o worldPort) bool { return ofPort(o.ID) == p.inPort }); i >= 0 && rapid.IntRange(0, 3).Draw(t, "genuine") > 0 {
		p.ethSrc, p.link, p.src = here[i].MAC, here[i].MAC, rapid.SampledFrom(here[i].Addresses).Draw(t, "own")
	}
	want4 := p.src.Is4()
	switch {
	case strings.HasPrefix(p.kind, "arp") && !want4:
		p.kind = "ip"
	case (p.kind == "solicit" || p.kind == "advertise") && want4:
		p.kind = "ip"
	}
	p.dst = rapid.SampledFrom(slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return a.Is4() != want4 })).Draw(t, "dst")
	p.target = p.dst
	if p.inPort == datapath.TunnelPort {
		p.vlan = 0
		p.tunSrc = rapid.SampledFrom(append(s.nodes[len(s.nodes)-1].Addresses, s.nodes[0].Addresses...)).Draw(t, "tunnel src")
		p.vni = rapid.SampledFrom(s.keys()).Draw(t, "vni")
	}
	return p
}

func (w *clusterWorld) portsOn(node int) (list []worldPort) {
	for _, p := range w.ports {
		if p.Node == w.nodes[node].Name {
			list = append(list, p)
		}
	}
	return list
}

// keys are all VNIs, and one that is not in use.
func (w *clusterWorld) keys() []uint32 {
	keys := []uint32{5}
	for _, n := range w.networks {
		keys = append(keys, n.VNI)
	}
	for _, rt := range w.routers {
		keys = append(keys, rt.VNI)
	}
	return keys
}

// wrong says what is wrong with the outcome of a packet on the first node; empty
// if nothing is.
func (w promise) wrong(p packet, o outcome) string {
	if o.Drop {
		return ""
	}
	switch {
	case p.inPort == datapath.TunnelPort:
		return w.wrongFromTunnel(p, o)
	case p.inPort <= datapath.LastUplinkPort:
		return w.wrongFromWire(p, o)
	}
	i := slices.IndexFunc(w.ports, func(a worldPort) bool { return a.Node == "n0" && ofPort(a.ID) == p.inPort })
	return w.wrongFromPort(w.ports[i], p, o)
}

// at is the port of the first node that a packet was sent to. A machine without an address gets
// what is for its MAC on its network, by which it asks for one; a pod without one gets nothing.
func (w promise) at(o outcome) worldPort {
	for _, p := range w.portsOn(0) {
		if ofPort(p.ID) == o.Port {
			return p
		}
	}
	for _, p := range w.lost {
		if p.Node == w.nodes[0].Name && p.Interface == "" && ofPort(p.ID) == o.Port {
			return worldPort{Port: p}
		}
	}
	return worldPort{}
}

func (w promise) wrongFromWire(p packet, o outcome) string {
	onWire := func(n intent.Network) bool { return uplinkOf(n) == p.inPort && n.VLAN == p.vlan }
	switch {
	case o.Answer != intent.MAC{}:
		for _, a := range w.portsOn(0) {
			if onWire(w.network(a.Network)) && a.hasAddress(p.dst) && a.MAC == o.Answer && o.VLAN == p.vlan {
				return ""
			}
		}
		return "the wire is answered for somebody who is not on it"
	case end(o) != "port":
		return "from the wire to anything but a port"
	case !onWire(w.network(w.at(o).Network)):
		return "from the wire to a port of another network"
	case o.VLAN != 0:
		return "a port gets a tag"
	}
	return ""
}

func (w promise) wrongFromTunnel(p packet, o outcome) string {
	if !slices.ContainsFunc(w.nodes[1:], func(n intent.Node) bool { return slices.Contains(n.Addresses, p.tunSrc) }) {
		return "not from a node"
	}
	var from intent.Router
	for _, rt := range w.routers {
		if rt.Private() && rt.VNI == p.vni {
			from = rt
		}
	}
	for _, n := range w.networks {
		if n.Physical == "" && n.VNI == p.vni {
			from = *w.router(n.Router)
		}
	}
	byHost := p.ethSrc == datapath.GatewayMAC || from.Shared && w.gatewayAt(p.src) >= 0
	switch to := w.at(o); {
	case from.Name == "":
		return "of no network and no router"
	case end(o) == "answered" || end(o) == "wire":
		return "from a tunnel to the " + end(o)
	case end(o) == "tunnel" || o.VLAN != 0:
		return "from a tunnel to a tunnel"
	case end(o) == "host" && !from.Shared && !byHost:
		return "from a private router to the host"
	case end(o) == "port" && !sees(from, w.routerOf(to)) && !(byHost && (w.routerOf(to).Shared || w.gatewayAt(p.src) >= 0)):
		return "to a port of another router"
	}
	return ""
}

func (w promise) wrongFromPort(a worldPort, p packet, o outcome) string {
	n, rt := w.network(a.Network), w.routerOf(a)
	forwards := slices.ContainsFunc(rt.Routes, func(r intent.Route) bool {
		return slices.Contains(a.Addresses, r.NextHop) && r.Destination.Contains(p.src)
	})
	switch to := w.at(o); {
	case p.vlan != 0:
		return "a port's tag passes"
	case p.ethSrc != a.MAC || !slices.Contains(a.Addresses, p.src) && !forwards:
		return "a port pretends to be another"
	case p.kind == "arp-reply" || p.kind == "advertise":
		return "a port answers questions"
	case end(o) == "answered":
		return ""
	case end(o) == "wire":
		if o.Port != uplinkOf(n) || o.VLAN != n.VLAN {
			return fmt.Sprintf("on uplink %d with VLAN %d", o.Port, o.VLAN)
		}
		return ""
	case n.Physical != "" && end(o) == "port":
		if to.Network != a.Network {
			return "from a physical network to another one"
		}
		return ""
	case end(o) == "port" && !sees(rt, w.routerOf(to)):
		return "to a port of another router"
	case end(o) == "host" && !slices.Contains(w.inCluster(a), o.Src) && !forwards:
		return "the host gets an address that it does not know"
	case end(o) == "tunnel":
		return w.wrongKey(n, rt, o)
	}
	return ""
}

// wrongKey checks the key of a port's packet in the tunnel: that of the network,
// of its router or one that the router imports from, or of the default router.
func (w promise) wrongKey(n intent.Network, rt intent.Router, o outcome) string {
	for _, of := range w.routers {
		home := of.VNI
		if of.Shared {
			home = 1
		}
		if sees(rt, of) && o.VNI == home || o.VNI == n.VNI || o.VNI == 1 && w.gatewayAt(o.Dst) >= 0 {
			return ""
		}
	}
	return fmt.Sprintf("in the tunnel with key %d", o.VNI)
}
