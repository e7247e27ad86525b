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
	"coelan.io/coelan/internal/rapidtest"
	"coelan.io/coelan/internal/reserved"
)

// Whatever the cluster, its switches together keep the promises: packets reach the ends that they
// should and no others, with the addresses that they should have, and answers come back to the
// address that was asked.
func TestWorldsKeepPromises(t *testing.T) {
	tracers := newTracers(t, 3)
	ends := map[string]int{}
	checkUntilSeen(t, ends, []string{"port dropped", "port port", "port host", "port wire", "port forwarded", "host dropped", "host port", "service answered", "service dropped",
		"port outside", "port agent", "port hairpin", "floating port", "floating dropped", "host kernel", "served host", "served dropped",
		"reply outside", "reply agent", "reply port", "port by gateway", "gateway dropped",
		"port routed", "routed port", "routed dropped",
		"port by egress", "port by another node", "egress dropped", "port by next hop", "next hop reply", "egress reply", "egress reply by another node", "egress hairpin", "egress aged",
		"question agent", "question dropped", "answer agent", "answer of another server dropped", "answer of a port dropped", "lost dropped"}, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := &simulation{clusterWorld: drawWorld(t), ctx: ctx, tracers: tracers}
		for n := range s.nodes {
			if err := tracers[n].loadInput(ctx, s.input(t, n)); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.ports) == 0 {
			return
		}
		for range 30 {
			switch rapid.SampledFrom([]string{"port", "port", "host", "service", "floating", "served", "served", "gateway", "gateway", "egress", "egress", "leased"}).Draw(t, "sender") {
			case "port":
				s.testPort(t, ends)
			case "host":
				s.testHost(t, ends)
			case "service":
				s.testService(t, ends)
			case "floating":
				s.testFloatingIP(t, ends)
			case "served":
				s.testServedIP(t, ends)
			case "gateway":
				s.testGateway(t, ends)
			case "egress":
				s.testEgress(t, ends)
			case "leased":
				s.testLeased(t, ends)
			}
		}
	})
}

// checkUntilSeen checks cases, and goes on with more of them until packets have come to each of the
// ends: some are rare, and a hundred cases may have none.
func checkUntilSeen(t *testing.T, seen map[string]int, ends []string, check func(*rapid.T)) {
	t.Helper()
	const rounds = 20
	var missing []string
	for round := range rounds {
		rapidtest.Round(t, round, check)
		missing = nil
		for _, end := range ends {
			if seen[end] == 0 {
				missing = append(missing, end)
			}
		}
		if len(missing) == 0 {
			break
		}
	}
	t.Logf("packets by end: %v", seen)
	if len(missing) > 0 {
		t.Errorf("no packet came to one of the ends %q: the cases say nothing", missing)
	}
}

func (s *simulation) fatal(t *rapid.T, what string, want, got fmt.Stringer) {
	t.Helper()
	t.Fatalf("%s\nshould end: %s\nended:      %s\n%s", what, want, got, strings.Join(s.log, "\n"))
}

// testPort sends a packet of a port to any address and, if a port got it, the
// answer.
func (s *simulation) testPort(t *rapid.T, ends map[string]int) {
	a := rapid.SampledFrom(s.ports).Draw(t, "from")
	all := s.clusterWorld.addresses()
	if !s.native { // without Services, those bridges drop it
		all = append(all, both(s.clusterWorld, netip.MustParseAddr("10.96.0.9"), netip.MustParseAddr("fd00:96::9"))...)
	}
	s.testPortTo(t, a, rapid.SampledFrom(all).Draw(t, "to"), ends)
}

func (s *simulation) testPortTo(t *rapid.T, a worldPort, to netip.Addr, ends map[string]int) {
	for _, own := range append(a.Addresses[:len(a.Addresses):len(a.Addresses)], a.NodeAddresses...) {
		if own == to {
			return
		}
	}
	what := fmt.Sprintf("port %s to %s", a.ID, to)
	model := promise{s.clusterWorld}
	want := model.fromPort(a, to)
	got, err := s.fromPort(a, to, -1, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, strings.Join(s.log, "\n"))
	}
	if !got.same(want) {
		s.fatal(t, what, want, got)
	}
	ends["port "+got.end]++
	s.testExitReply(t, a, to, got, what, ends)
	if slices.ContainsFunc(s.gateways, func(g intent.GatewayAddress) bool { return g.Address == got.src }) {
		ends["port by gateway"]++
	}
	s.testHopReply(t, a, to, got, what, ends)
	if as, ok := model.exitOf(a, to); ok && as.own.IsValid() && !as.byPolicy && (got.end == "outside" || got.end == "agent") {
		ends["port routed"]++
	}
	if as, ok := model.exitOf(a, to); ok && as.ofNodes && got.src == as.address {
		ends["port by egress"]++
		if n, _ := model.translates(s.nodeOf(a), as); n != s.nodeOf(a) {
			ends["port by another node"]++
		}
	}
	if got.end != "port" {
		return
	}
	if got.dst != to && s.isFloating(to, reserved.PodMAC(to)) {
		if got.port.Node == a.Node {
			ends["port hairpin"]++
		}
		back := model.fromPort(got.port, got.src)
		answer, err := s.fromPort(got.port, got.src, noMark, nil)
		if err != nil || !answer.same(back) {
			s.fatal(t, "answer to "+what, back, answer)
		}
		_, byRoute := model.staticRoute(model.routerOf(got.port), got.src, true)
		// Of another network.
		byRoute = byRoute || slices.ContainsFunc(s.ports, func(p worldPort) bool {
			return slices.Contains(p.Addresses, got.src) && sees(model.routerOf(got.port), model.routerOf(p))
		})
		if !byRoute && answer.end == "port" && (answer.port.ID != a.ID || answer.src != to) {
			s.fatal(t, "answer to "+what+" comes to another port, or from another address", back, answer)
		}
		return
	}
	if !got.port.hasAddress(to) { // the next hop of a static route
		// Only packets of the port itself leave by its floating IP.
		back := model.withoutExits().fromPort(got.port, got.src)
		back.src = to
		if back.end != "port" && !model.routerOf(got.port).Shared {
			back = lost // only the port itself has an address outside of its router
		}
		answer, err := s.forwardedBy(got.port, to, got.src)
		if err != nil || !answer.same(back) {
			s.fatal(t, "answer from behind "+what, back, answer)
		}
		ends["port forwarded"]++
		return
	}
	// If the receiver reaches the sender at all, then with the address that was asked.
	back := model.fromPort(got.port, got.src)
	answer, err := s.fromPort(got.port, got.src, -1, nil)
	if err != nil || !answer.same(back) {
		s.fatal(t, "answer to "+what, back, answer)
	}
	if answer.end == "port" && answer.port.ID == a.ID && answer.src != to {
		s.fatal(t, "answer to "+what+" comes from another address", back, answer)
	}
}

func (p worldPort) hasAddress(a netip.Addr) bool {
	for _, own := range append(p.Addresses[:len(p.Addresses):len(p.Addresses)], p.NodeAddresses...) {
		if own == a {
			return true
		}
	}
	return false
}

// testHost sends a packet of a node or from outside, and has what it reaches answer.
func (s *simulation) testHost(t *rapid.T, ends map[string]int) {
	node := rapid.IntRange(0, len(s.nodes)-1).Draw(t, "node")
	b := rapid.SampledFrom(s.ports).Draw(t, "to port")
	model := promise{s.clusterWorld}
	in := model.inCluster(b)
	if len(in) == 0 {
		return
	}
	to := rapid.SampledFrom(in).Draw(t, "to")
	var sources []netip.Addr
	for _, a := range s.clusterWorld.addresses() {
		if a.Is4() == to.Is4() && a != to {
			sources = append(sources, a)
		}
	}
	for _, sn := range s.nodes[node].Subnets {
		if sn.Gateway.Is4() == to.Is4() {
			sources = append(sources, sn.Gateway, sn.Gateway, sn.Gateway, sn.Gateway)
		}
	}
	from := rapid.SampledFrom(sources).Draw(t, "from")
	what := fmt.Sprintf("host n%d as %s to %s", node, from, to)
	want := model.fromHost(node, from, to)
	got, err := s.fromHost(node, from, to)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, strings.Join(s.log, "\n"))
	}
	if !got.same(want) {
		s.fatal(t, what, want, got)
	}
	ends["host "+got.end]++
	if back := model.withoutExits().fromPort(b, from); got.end == "port" && got.node == node && back.end == "host" && model.isOutside(from) {
		n := s.network(b.Network)
		if as, ok := model.exitOf(b, from); ok && as.own.IsValid() && !(s.native && n.FromNodes()) && !model.routerOf(b).Shared {
			// What ports of a routed private router answer leaves by the wire, unless conntrack is
			// asked before the way is chosen.
			return
		}
		// What came by the node's kernel is answered by it, also where it has another way out.
		answer, err := s.fromPort(b, from, node, got.commits)
		if err != nil || !answer.same(back) {
			s.fatal(t, fmt.Sprintf("answer to %s: %v", what, err), back, answer)
		}
		if _, floating := model.floatingIPOf(b, from); floating {
			ends["host kernel"]++
		}
		return
	}
	if got.end != "port" || model.gatewayAt(from) != node {
		return
	}
	if n := s.network(b.Network); n.Physical != "" && b.Node != s.nodes[node].Name {
		return // it answers on the wire
	}
	back := arrival{end: "host", node: node, src: to, dst: from, ttl: 64}
	if b.Node != s.nodes[node].Name {
		back.ttl = 63
	}
	answer, err := s.fromPort(b, from, -1, nil)
	if err != nil || !answer.same(back) {
		s.fatal(t, "answer to "+what, back, answer)
	}
}

// testService has a node's kernel translate a port's packet to a Service, and
// what it reaches answer: by way of that kernel.
func (s *simulation) testService(t *rapid.T, ends map[string]int) {
	model := promise{s.clusterWorld}
	if s.native {
		return // the kernel does nothing
	}
	client, endpoint := rapid.SampledFrom(s.ports).Draw(t, "client"), rapid.SampledFrom(s.ports).Draw(t, "endpoint")
	node := s.nodeOf(client)
	if s.network(client.Network).Physical != "" || s.network(endpoint.Network).Physical != "" || client.ID == endpoint.ID {
		return
	}
	for i, as := range model.inCluster(client) {
		in := model.inCluster(endpoint)
		if len(in) == 0 {
			return
		}
		vip := netip.MustParseAddr("10.96.0.1")
		if as.Is6() {
			vip = netip.MustParseAddr("fd00:96::1")
		}
		if _, all := model.staticRoute(model.routerOf(client), vip, true); all {
			return // its packets to Services go by its default route
		}
		what := fmt.Sprintf("%s as %s to a Service of %s as %s", client.ID, as, endpoint.ID, in[i])
		toKernel, err := s.fromPort(client, vip, -1, nil)
		if want := (arrival{end: "host", node: node, src: as, dst: vip, ttl: 64}); err != nil || !toKernel.same(want) {
			s.fatal(t, what, want, toKernel)
		}
		want := model.fromHost(node, as, in[i])
		got, err := s.fromHost(node, as, in[i])
		if err != nil || !got.same(want) {
			s.fatal(t, what, want, got)
		}
		ends["service "+map[bool]string{true: "answered", false: "dropped"}[got.end == "port"]]++
		if from, to := model.routerOf(client), model.routerOf(endpoint); got.end != "port" || !to.Shared && !sees(to, from) {
			return // an import in one direction alone is no way back
		}
		answer, err := s.fromPort(endpoint, as, node, got.commits)
		back := arrival{end: "host", node: node, src: in[i], dst: as, ttl: answer.ttl}
		if err != nil || !answer.same(back) {
			s.fatal(t, fmt.Sprintf("answer to %s, marked in zones %v", what, got.commits), back, answer)
		}
		own, _ := firstOf(client.Addresses, as)
		last, err := s.fromHost(node, vip, as)
		if want := (arrival{end: "port", node: node, port: client, src: vip, dst: own, ttl: 64}); err != nil || !last.same(want) {
			s.fatal(t, "the Service's answer to "+what, want, last)
		}
	}
}

// noMark is on no node: of replies that conntrack finds no mark for.
const noMark = 1 << 16

// testFloatingIP sends a packet from the wire to a floating IP, or to another address by its MAC,
// and has the port that it reaches answer.
func (s *simulation) testFloatingIP(t *rapid.T, ends map[string]int) {
	if len(s.floating) == 0 {
		return
	}
	model := promise{s.clusterWorld}
	f := rapid.SampledFrom(s.floating).Draw(t, "floating IP")
	n, to := s.network(f.Network), f.Address
	var addresses []netip.Addr
	for _, a := range append(s.clusterWorld.addresses(), both(s.clusterWorld, netip.MustParseAddr("10.96.0.9"), netip.MustParseAddr("fd00:96::9"))...) {
		if a.Is4() == to.Is4() {
			addresses = append(addresses, a)
		}
	}
	from := rapid.SampledFrom(addresses).Draw(t, "from")
	if rapid.IntRange(0, 4).Draw(t, "to another") == 0 {
		to = rapid.SampledFrom(addresses).Draw(t, "to")
	}
	p := packet{
		kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), ethDst: reserved.PodMAC(f.Address),
		src: from, dst: to, ttl: rapid.SampledFrom([]uint8{64, 64, 64, 64, 2, 1}).Draw(t, "ttl"),
	}
	s.log = nil
	at := s.answersFor(t, n, f.Address)
	if own := s.nodeOf(s.floats(f)); !slices.Equal(at, []int{own}) {
		t.Fatalf("the nodes %v answer for %+v, but its port is on node %d\n%s", at, f, own, strings.Join(s.log, "\n"))
	}
	what := fmt.Sprintf("from %s on the wire of %s to %s ttl %d", from, n.Name, to, p.ttl)
	want := model.fromWire(n, at[0], from, to, p.ttl)
	got, err := s.send(at[0], p, -1, nil)
	if err != nil || !got.same(want) {
		s.fatal(t, fmt.Sprintf("%s: %v", what, err), want, got)
	}
	ends["floating "+got.end]++
	if got.end != "port" {
		return
	}
	s.log = nil
	back := model.fromPort(got.port, from)
	answer, err := s.fromPort(got.port, from, noMark, nil)
	if err != nil || !answer.same(back) {
		s.fatal(t, "answer to "+what, back, answer)
	}
	if (answer.end == "outside" || answer.end == "agent") && answer.src != to {
		s.fatal(t, "answer to "+what+" comes from another address", back, answer)
	}
}

// testServedIP sends a packet from the wire to the floating IP of a Service, which the kernel of
// the chosen node gets, and has that kernel answer.
func (s *simulation) testServedIP(t *rapid.T, ends map[string]int) {
	if len(s.served) == 0 {
		return
	}
	model := promise{s.clusterWorld}
	f := rapid.SampledFrom(s.served).Draw(t, "floating IP of a Service")
	n := s.network(f.Network)
	s.log = nil
	var want []int
	if s.native && f.node >= 0 {
		want = []int{f.node}
	}
	if at := s.answersFor(t, n, f.Address); !slices.Equal(at, want) {
		t.Fatalf("the nodes %v answer for %+v\n%s", at, f, strings.Join(s.log, "\n"))
	}
	var addresses []netip.Addr
	for _, a := range s.clusterWorld.addresses() {
		if a.Is4() == f.Address.Is4() && a != f.Address {
			addresses = append(addresses, a)
		}
	}
	other := rapid.SampledFrom(addresses).Draw(t, "client")
	if rapid.Bool().Draw(t, "from outside") {
		other = at(n.Subnets[slices.IndexFunc(n.Subnets, func(sn intent.NetworkSubnet) bool { return sn.Prefix.Contains(f.Address) })].Prefix, outsideHost)
	}
	if want != nil {
		s.testReply(t, ends, f, other)
		s.log = nil
	}
	node := f.node
	if node < 0 || rapid.IntRange(0, 3).Draw(t, "at any node") == 0 {
		node = rapid.IntRange(0, len(s.nodes)-1).Draw(t, "node")
	}
	p := packet{
		kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), ethDst: reserved.PodMAC(f.Address),
		src: other, dst: f.Address, ttl: rapid.SampledFrom([]uint8{64, 64, 1}).Draw(t, "ttl"),
	}
	what := fmt.Sprintf("from %s on the wire of %s to n%d for %s ttl %d", other, n.Name, node, f.Address, p.ttl)
	promised := model.fromWire(n, node, other, f.Address, p.ttl)
	got, err := s.send(node, p, -1, nil)
	if err != nil || !got.same(promised) {
		s.fatal(t, fmt.Sprintf("%s: %v", what, err), promised, got)
	}
	ends["served "+got.end]++
}

func (s *simulation) testReply(t *rapid.T, ends map[string]int, f servedIP, to netip.Addr) {
	s.log = nil
	model := promise{s.clusterWorld}
	isPort := slices.ContainsFunc(s.ports, func(p worldPort) bool { return slices.Contains(model.inCluster(p), to) })
	if model.hasPods(to) && !isPort {
		return // hosts have asked their own kernels, and nothing else has such addresses
	}
	want := model.reply(f, to)
	got, err := s.send(f.node, packet{
		kind: "ip", inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, ethDst: datapath.RouterMAC, src: f.Address, dst: to, ttl: 64,
	}, -1, nil)
	if err != nil || !got.same(want) {
		s.fatal(t, fmt.Sprintf("n%d answers %s as %s: %v", f.node, to, f.Address, err), want, got)
	}
	ends["reply "+got.end]++
}

// testGateway sends a packet from the wire to the address that a node has as a Router's gateway: it
// answers for it, and lets nothing in that no port has asked for.
func (s *simulation) testGateway(t *rapid.T, ends map[string]int) {
	if len(s.gateways) == 0 {
		return
	}
	g := rapid.SampledFrom(s.gateways).Draw(t, "gateway")
	n := s.network(g.Network)
	s.log = nil
	// What is to leave by it.
	for _, b := range s.ports {
		if b.Node != g.Node || (promise{s.clusterWorld}).routerOf(b).Name != g.Router {
			continue
		}
		for _, to := range family(both(s.clusterWorld, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8")), g.Address.Is4()) {
			s.testPortTo(t, b, to, ends)
		}
		break
	}
	s.log = nil
	if at := s.answersFor(t, n, g.Address); !slices.Equal(at, []int{s.nodeNamed(g.Node)}) {
		t.Fatalf("the nodes %v answer for %+v\n%s", at, g, strings.Join(s.log, "\n"))
	}
	var sources []netip.Addr
	for _, a := range s.clusterWorld.addresses() {
		if a.Is4() == g.Address.Is4() {
			sources = append(sources, a)
		}
	}
	p := packet{
		kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), ethDst: reserved.PodMAC(g.Address),
		src: rapid.SampledFrom(sources).Draw(t, "from"), dst: g.Address, ttl: 64,
	}
	marked := rapid.SampledFrom([]int{-1, noMark}).Draw(t, "new, or a reply")
	if g.Routed {
		s.testRouted(t, g, p, ends)
		return
	}
	got, err := s.send(s.nodeNamed(g.Node), p, marked, nil)
	if err != nil || !got.same(lost) {
		s.fatal(t, fmt.Sprintf("from %s on the wire of %s to gateway %s: %v", p.src, n.Name, g.Address, err), lost, got)
	}
	ends["gateway "+got.end]++
}

// testRouted sends a packet from the wire to the MAC of a routed gateway, for any address, and has
// the port that it reaches answer.
func (s *simulation) testRouted(t *rapid.T, g intent.GatewayAddress, p packet, ends map[string]int) {
	addresses := s.clusterWorld.addresses()
	if rapid.Bool().Draw(t, "to a port of the router") {
		for _, b := range s.ports {
			if (promise{s.clusterWorld}).routerOf(b).Name == g.Router {
				addresses = b.Addresses
			}
		}
		for _, sn := range s.network(g.Network).Subnets {
			if sn.Prefix.Contains(g.Address) {
				p.src = at(sn.Prefix, outsideHost)
			}
		}
	}
	if addresses = family(addresses, g.Address.Is4()); len(addresses) == 0 {
		return
	}
	p.dst, p.ttl = rapid.SampledFrom(addresses).Draw(t, "to"), rapid.SampledFrom([]uint8{64, 64, 64, 2, 1}).Draw(t, "ttl")
	model := promise{s.clusterWorld}
	what := fmt.Sprintf("from %s on the wire of %s by the routed gateway %s of %s to %s", p.src, g.Network, g.Address, g.Router, p.dst)
	want := model.routedIn(g, p.src, p.dst, p.ttl)
	s.log = nil
	got, err := s.send(s.nodeNamed(g.Node), p, noMark, nil)
	if err != nil || !got.same(want) {
		s.fatal(t, fmt.Sprintf("%s: %v", what, err), want, got)
	}
	ends["routed "+got.end]++
	if got.end != "port" || !slices.Contains(got.port.Addresses, p.dst) {
		return // or the next hop of a static route, or the port of a floating IP
	}
	s.log = nil
	back := model.fromPort(got.port, p.src)
	answer, err := s.fromPort(got.port, p.src, noMark, nil)
	if err != nil || !answer.same(back) {
		s.fatal(t, "answer to "+what, back, answer)
	}
}

// testExitReply has what a port has reached from an address that conntrack gave its packet answer
// it.
func (s *simulation) testExitReply(t *rapid.T, a worldPort, to netip.Addr, got arrival, what string, ends map[string]int) {
	model := promise{s.clusterWorld}
	as, ok := model.exitOf(a, to)
	if !ok || as.router == "" || got.src != as.address || got.end == "host" {
		return
	}
	here, _ := model.translates(s.nodeOf(a), as)
	known, ok := firstOf(model.inCluster(a), to)
	own, _ := firstOf(a.Addresses, to)
	if !ok {
		known = own
	}
	zone := int(datapath.GatewayZone(s.router(as.router).ID))
	if (got.end == "outside" || got.end == "agent") && !slices.Contains(got.last.Commits, zone) {
		t.Fatalf("%s: committed in zones %v, want %d\n%s", what, got.last.Commits, zone, strings.Join(s.log, "\n"))
	}
	forget, err := s.tracers[here].knows(s.ctx, as.address, known)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	s.zone = zone
	defer func() {
		s.zone = 0
		if err := forget(); err != nil {
			t.Fatal(err)
		}
	}()
	back := arrival{end: "port", node: s.nodeOf(a), port: a, src: to, dst: own, ttl: 63}
	s.log = nil
	var answer arrival
	n := s.network(as.network)
	_, floats := model.floatingAt(n, to)
	switch {
	case got.end == "port" && floats && s.nodeOf(got.port) == here: // it turns back on the bridge
		own := model.routerOf(got.port)
		if _, byRoute := model.staticRoute(own, got.src, true); byRoute ||
			model.inSubnet(got.src, func(of intent.Router) bool { return sees(own, of) }) {
			return // another port gets what answers, or would
		}
		back.ttl = 62
		answer, err = s.fromPort(got.port, as.address, noMark, nil)
		ends["egress hairpin"]++
	default:
		answer, err = s.send(here, packet{
			kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), ethDst: reserved.PodMAC(as.address),
			src: to, dst: as.address, ttl: 64,
		}, noMark, nil)
		if err == nil && (len(answer.lookups) == 0 || answer.lookups[0] != zone) {
			t.Fatalf("reply to %s: looked up in zones %v, want %d\n%s", what, answer.lookups, zone, strings.Join(s.log, "\n"))
		}
	}
	if err != nil || !answer.same(back) {
		s.fatal(t, fmt.Sprintf("reply to %s, which left from %s on n%d as %s: %v", what, as.address, here, known, err), back, answer)
	}
	switch {
	case !as.ofNodes:
	case here != s.nodeOf(a):
		ends["egress reply by another node"]++
	default:
		ends["egress reply"]++
	}
}

// testHopReply has the next hop that a port's packet has left by answer it.
func (s *simulation) testHopReply(t *rapid.T, a worldPort, to netip.Addr, got arrival, what string, ends map[string]int) {
	model := promise{s.clusterWorld}
	as, ok := model.exitOf(a, to)
	if !ok || !as.byPolicy || got.end != "outside" && got.end != "agent" {
		return
	}
	ends["port by next hop"]++
	here, _ := model.translates(s.nodeOf(a), as)
	s.zone = int(datapath.GatewayZone(s.router(as.router).ID))
	defer func() { s.zone = 0 }()
	if !slices.Contains(got.last.Commits, s.zone) {
		t.Fatalf("%s: committed in zones %v, want %d\n%s", what, got.last.Commits, s.zone, strings.Join(s.log, "\n"))
	}
	own, _ := firstOf(a.Addresses, to)
	back := arrival{end: "port", node: s.nodeOf(a), port: a, src: to, dst: own, ttl: 63}
	n := s.network(as.network)
	s.log = nil
	answer, err := s.send(here, packet{
		kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(firstNextHop), ethDst: reserved.PodMAC(as.address),
		src: to, dst: as.own, ttl: 64,
	}, noMark, nil)
	if err != nil || !answer.same(back) {
		s.fatal(t, fmt.Sprintf("reply to %s, by the next hop of %s on n%d: %v", what, as.address, here, err), back, answer)
	}
	ends["next hop reply"]++
}

// testEgress has packets come from the wire for an address that one of several nodes is active for,
// and has a port that leaves by it send some with any TTL. Only the active node answers for it, if
// it is to, and no node lets anything in that no port has asked for.
func (s *simulation) testEgress(t *rapid.T, ends map[string]int) {
	if len(s.egress) == 0 {
		return
	}
	model := promise{s.clusterWorld}
	e := rapid.SampledFrom(s.egress).Draw(t, "egress address")
	n := s.network(e.Network)
	as, _ := model.egressAt(n, e.Address)
	s.log = nil
	if got, want := s.answersFor(t, n, e.Address), model.holders(as, true); !slices.Equal(got, want) {
		t.Fatalf("the nodes %v answer for %+v, want %v\n%s", got, e, want, strings.Join(s.log, "\n"))
	}
	var others []netip.Addr
	for _, a := range s.clusterWorld.addresses() {
		if a.Is4() == e.Address.Is4() {
			others = append(others, a)
		}
	}
	p := packet{
		kind: "ip", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), ethDst: reserved.PodMAC(e.Address),
		src: rapid.SampledFrom(others).Draw(t, "from"), dst: e.Address, ttl: rapid.SampledFrom([]uint8{64, 1}).Draw(t, "ttl"),
	}
	if rapid.IntRange(0, 3).Draw(t, "to another") == 0 {
		p.dst = rapid.SampledFrom(others).Draw(t, "to")
	}
	for node := range s.nodes {
		marked := rapid.SampledFrom([]int{-1, noMark}).Draw(t, "new, or a reply to something else")
		want := lost
		if slices.Contains(e.Nodes, s.nodes[node].Name) {
			// The node has the MAC, and may have a floating IP.
			want = model.fromWire(n, node, p.src, p.dst, p.ttl)
		}
		got, err := s.send(node, p, marked, nil)
		if err != nil || !got.same(want) {
			s.fatal(t, fmt.Sprintf("from %s on the wire of %s to %s, to the MAC of %s: %v", p.src, n.Name, p.dst, e.Address, err), want, got)
		}
		ends["egress "+got.end]++
	}
	var users []worldPort
	outside := both(s.clusterWorld, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8"))
	for _, f := range s.floating {
		outside = append(outside, f.Address)
		if f.Network == e.Network && slices.Contains(model.holders(as, false), s.nodeOf(s.floats(f))) {
			outside = append(outside, f.Address, f.Address, f.Address, f.Address)
		}
	}
	to := rapid.SampledFrom(family(slices.Concat(others, outside, outside), e.Address.Is4())).Draw(t, "sent to")
	for _, a := range s.ports {
		if exit, ok := model.exitOf(a, to); ok && exit.ofNodes && exit.address == e.Address && exit.network == e.Network {
			users = append(users, a)
		}
	}
	if len(users) == 0 {
		return
	}
	a := rapid.SampledFrom(users).Draw(t, "user")
	s.testPortTo(t, a, to, ends)
	ttl := rapid.SampledFrom([]uint8{1, 2, 3, 255}).Draw(t, "ttl of it")
	want := model.fromPort(a, to)
	as, _ = model.exitOf(a, to)
	if want.src != as.source() || as.byPolicy && want.end != "outside" && want.end != "agent" {
		return // it stays in the cluster
	}
	spent, least := 64-want.ttl, uint8(1)
	if want.end == "host" {
		// A Service's floating IP, where nothing comes in that has no other hop left.
		least = 2
	}
	if ttl < spent+least {
		want = lost
	} else {
		want.ttl = ttl - spent
	}
	what := fmt.Sprintf("port %s to %s with TTL %d", a.ID, to, ttl)
	got, err := s.fromPortTTL(a, to, ttl, -1, nil)
	if err != nil || !got.same(want) {
		s.fatal(t, fmt.Sprintf("%s: %v", what, err), want, got)
	}
	ends["egress aged"]++
}

// answersFor are the nodes that answer a question from the wire.
func (s *simulation) answersFor(t *rapid.T, n intent.Network, a netip.Addr) (nodes []int) {
	q := packet{
		kind: "arp-request", inPort: uplinkOf(n), vlan: n.VLAN, ethSrc: outsideMAC(1), link: outsideMAC(1),
		ethDst: intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, dst: a, ttl: 255,
	}
	for _, sn := range n.Subnets {
		if sn.Prefix.Contains(a) {
			q.src = at(sn.Prefix, outsideHost)
		}
	}
	if a.Is6() {
		q.kind, q.target, q.dst, q.ethDst = "solicit", a, netip.MustParseAddr("ff02::1:ff00:1"), intent.MAC{0x33, 0x33, 0xff, 0, 0, 1}
	}
	for i := range s.nodes {
		o, text, err := s.tracers[i].trace(s.ctx, q)
		s.log = append(s.log, fmt.Sprintf("on n%d: %s\n%s", i, traceFlow(q), text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if o.Answer == (intent.MAC{}) {
			continue
		}
		if o.Answer != reserved.PodMAC(a) || o.VLAN != n.VLAN {
			t.Fatalf("node %d answers for %s with %s in VLAN %d\n%s", i, a, o.Answer, o.VLAN, text)
		}
		nodes = append(nodes, i)
	}
	return nodes
}
