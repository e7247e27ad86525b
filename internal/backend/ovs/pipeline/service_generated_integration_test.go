// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// servedWorld is a cluster with Services.
type servedWorld struct {
	*clusterWorld
	services []servedService
}

// servedService is a Service with one port in each family, of TCP.
type servedService struct {
	intent.NodeService
	endpoints []worldPort
}

// drawServices draws Services of shared and of private Routers, with ports of these as endpoints.
func drawServices(t *rapid.T, w *clusterWorld) (s servedWorld) {
	s.clusterWorld = w
	model := promise{w}
	owners := []string{"default", "default", "default"}
	for _, rt := range w.routers {
		owners = append(owners, rt.Name)
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "services") {
		v := servedService{NodeService: intent.NodeService{
			Namespace: "default", Name: fmt.Sprint("service-", i), UID: fmt.Sprint(i), Router: rapid.SampledFrom(owners).Draw(t, "owner"),
			InternalLocal: rapid.IntRange(0, 2).Draw(t, "internal policy") == 0, ExternalLocal: rapid.IntRange(0, 2).Draw(t, "external policy") == 0,
		}}
		if rapid.IntRange(0, 3).Draw(t, "affinity") == 0 {
			v.AffinitySeconds = 10800
		}
		owner := *w.router(v.Router)
		for _, p := range w.ports {
			of := model.routerOf(p)
			fits := of.Name == owner.Name || of.Shared && owner.Shared
			if fits && len(model.inCluster(p)) > 0 && rapid.Bool().Draw(t, "endpoint "+p.ID) {
				v.endpoints = append(v.endpoints, p)
			}
		}
		s.services = append(s.services, v)
	}
	return s
}

// The frontends of Service i.
func (s servedWorld) clusterIP(i int, v6 bool) netip.Addr {
	if v6 {
		return address6(96, 0, i+1)
	}
	return address4(10, 96, 0, i+1)
}

func (s servedWorld) external(i int, v6 bool) netip.Addr {
	if v6 {
		return address6(152, 0, i+1)
	}
	return address4(198, 51, 100, i+1)
}

const generatedNodePort = 30000

// view is what a node knows.
func (s servedWorld) view(node int) intent.Objects {
	o := s.clusterWorld.view(node)
	o.Local.ServiceMode = intent.NativeServices
	o.ServiceRanges = []intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}, {Prefix: netip.PrefixFrom(address6(96, 0, 0), 64).Masked()}}
	for i, v := range s.services {
		out := v.NodeService
		for _, v6 := range []bool{false, true} {
			if v6 && !s.v6 || !v6 && !s.v4 {
				continue
			}
			p := intent.NodeServicePort{
				Protocol: intent.TCP, IPv6: v6, Port: 80, NodePort: uint16(generatedNodePort + i),
				ClusterIP: s.clusterIP(i, v6), ExternalIPs: []netip.Addr{s.external(i, v6)}, Unserved: len(v.endpoints) == 0,
			}
			for _, b := range v.endpoints {
				a, _ := firstOf(promise{s.clusterWorld}.inCluster(b), p.ClusterIP)
				e := intent.Endpoint{Address: a, Port: 8080}
				p.Endpoints = append(p.Endpoints, e)
				if b.Node == s.nodes[node].Name && (v.InternalLocal || v.ExternalLocal) {
					p.LocalEndpoints = append(p.LocalEndpoints, e)
				}
			}
			slices.SortFunc(p.Endpoints, intent.Endpoint.Compare)
			slices.SortFunc(p.LocalEndpoints, intent.Endpoint.Compare)
			out.LocalEndpoints = len(p.LocalEndpoints)
			out.Ports = append(out.Ports, p)
		}
		o.NodeServices = append(o.NodeServices, out)
	}
	return o
}

// served says where the first packet of a client to a frontend may end, one arrival for each
// endpoint that the client may get; client nil: the node itself.
func (s servedWorld) served(client *worldPort, node, i int, to netip.Addr, external bool) []arrival {
	model, v := promise{s.clusterWorld}, s.services[i]
	owner := *s.router(v.Router)
	as, _ := firstOf(s.gateways(node), to)
	toKernel := arrival{end: "host", node: node, src: as, dst: to, ttl: 64}
	if client != nil {
		var ok bool
		if as, ok = firstOf(model.inCluster(*client), to); !ok {
			return []arrival{lost}
		}
		toKernel.src = as
		if owner.Private() && model.routerOf(*client).Name != owner.Name {
			if external {
				return []arrival{toKernel} // which sends it back as its own
			}
			return []arrival{lost}
		}
	}
	switch {
	case len(v.endpoints) == 0 && client != nil:
		return []arrival{toKernel} // which refuses it
	case len(v.endpoints) == 0:
		return []arrival{lost} // its kernel has refused it already
	}
	var ends []arrival
	for _, b := range v.endpoints {
		if v.InternalLocal && !external && s.nodeOf(b) != node {
			continue
		}
		own, _ := firstOf(b.Addresses, to)
		if client != nil && b.ID == client.ID {
			masked := datapath.ServiceSourceIPv4
			if to.Is6() {
				masked = datapath.ServiceSourceIPv6
			}
			ends = append(ends, arrival{end: "port", node: node, port: b, src: masked, dst: own, ttl: 64})
			continue
		}
		at := arrival{end: "port", node: s.nodeOf(b), port: b, src: as, dst: own, ttl: 64}
		if client != nil && at.node != node {
			at.ttl = 63
		}
		ends = append(ends, at)
	}
	if len(ends) == 0 {
		return []arrival{lost}
	}
	return ends
}

func (s servedWorld) gateways(node int) (list []netip.Addr) {
	for _, sn := range s.nodes[node].Subnets {
		list = append(list, sn.Gateway)
	}
	return list
}

// Whatever the cluster and its Services, the first packet of a connection gets to an endpoint that
// its client may get, and each of them is chosen at some time.
func TestWorldsServeClients(t *testing.T) {
	tracers := newTracers(t, 3)
	ends := map[string]int{}
	checkUntilSeen(t, ends, []string{"port port", "port dropped", "port host", "host port", "host dropped"}, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		w := drawWorld(t)
		// TestWorldsKeepPromises has them.
		w.floating, w.served, w.gateways, w.egress, w.paths = nil, nil, nil, nil, nil
		if !w.encapsulation.Tunneled() {
			w.encapsulation = intent.VXLAN // endpoints elsewhere are the kernel's else
		}
		s := &simulation{clusterWorld: w, ctx: ctx, tracers: tracers}
		served := drawServices(t, w)
		for n := range w.nodes {
			if err := tracers[n].load(ctx, stateFrom(t, served.view(n))); err != nil {
				t.Fatal(err)
			}
		}
		for range 15 {
			s.testServed(t, served, ends)
		}
	})
}

func (s *simulation) testServed(t *rapid.T, w servedWorld, ends map[string]int) {
	i := rapid.IntRange(0, len(w.services)-1).Draw(t, "service")
	v6 := rapid.Bool().Draw(t, "IPv6")
	if v6 && !s.v6 || !v6 && !s.v4 {
		v6 = !v6
	}
	node := rapid.IntRange(0, len(s.nodes)-1).Draw(t, "node")
	var client *worldPort
	if here := slices.DeleteFunc(slices.Clone(s.ports), func(p worldPort) bool {
		return p.Node != s.nodes[node].Name || s.network(p.Network).Physical != ""
	}); len(here) > 0 && rapid.IntRange(0, 3).Draw(t, "from the host") > 0 {
		p := rapid.SampledFrom(here).Draw(t, "client")
		client = &p
	}
	to, port, external := w.clusterIP(i, v6), uint16(80), false
	switch rapid.SampledFrom([]string{"cluster IP", "cluster IP", "external", "node port"}).Draw(t, "frontend") {
	case "external":
		to, external = w.external(i, v6), true
	case "node port":
		external, port = true, uint16(generatedNodePort+i)
		to, _ = firstOf(s.nodes[node].Addresses, to)
		if client == nil { // as its kernel translates it
			to = datapath.NodePortIPv4
			if v6 {
				to = datapath.NodePortIPv6
			}
		}
	}
	who := fmt.Sprint("host n", node)
	if client != nil {
		who = "port " + client.ID
		if rt := (promise{s.clusterWorld}).routerOf(*client); external && rt.Private() {
			if _, all := (promise{s.clusterWorld}).staticRoute(rt, to, true); all {
				return // by its own default route
			}
		}
	}
	want := w.served(client, node, i, to, external)
	what := fmt.Sprintf("%s to %s:%d, service %+v", who, to, port, w.services[i].NodeService)
	heard := map[string]bool{}
	for range 40 {
		got, err := s.firstPacket(t, client, node, to, port)
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, strings.Join(s.log, "\n"))
		}
		if !slices.ContainsFunc(want, got.same) {
			t.Fatalf("%s\nshould end as one of %v\nended:      %s\n%s", what, want, got, strings.Join(s.log, "\n"))
		}
		heard[got.String()] = true
		if len(heard) == len(want) {
			break
		}
	}
	// A group of few buckets has 16 slots at least; more tries than that leave none
	// out but by chance.
	if len(heard) < len(want) && len(want) < 3 {
		t.Fatalf("%s\nof %v\nonly %v", what, want, heard)
	}
	ends[strings.Fields(who)[0]+" "+want[0].end]++
}

// natTo is a translation of conntrack's, with the address in brackets, before a port, or alone.
var natTo = regexp.MustCompile(`nat\((dst|src)=(?:\[([^]]+)\]:\d+|([0-9.]+):\d+|([0-9a-f.:]+))\)`)

var setField = regexp.MustCompile(`set_field:([0-9a-f.:x]+)->(\w+)`)

// readWritten takes what the packet has when it leaves from the actions: behind a group, the
// trace's "Final flow" is the one before it. It returns the destination that is written after the
// translation is committed, if one is.
func (o *outcome) readWritten(text string) (own netip.Addr) {
	last := text[max(0, strings.LastIndex(text, "Resuming from table")):]
	committed := strings.Index(last, "ct(commit")
	for _, m := range setField.FindAllStringSubmatchIndex(last, -1) {
		value, field := last[m[2]:m[3]], last[m[4]:m[5]]
		switch field {
		case "eth_src":
			o.EthSrc, _ = intent.ParseMAC(value)
		case "eth_dst":
			o.EthDst, _ = intent.ParseMAC(value)
		case "tun_dst", "tun_ipv6_dst":
			if a := netip.MustParseAddr(value); o.Port == datapath.TunnelPort && !a.IsUnspecified() {
				o.TunDst = a
			}
		case "ip_src", "ipv6_src":
			o.Src = netip.MustParseAddr(value)
		case "ip_dst", "ipv6_dst":
			if committed >= 0 && m[0] > committed {
				own = netip.MustParseAddr(value)
			}
		}
	}
	o.TTL = 64 - uint8(strings.Count(last, "dec_ttl"))
	return own
}

// firstPacket sends the first packet of a connection of TCP, and follows it to
// where its translation leads.
func (s *simulation) firstPacket(t *rapid.T, client *worldPort, node int, to netip.Addr, port uint16) (arrival, error) {
	s.log = nil
	p := packet{kind: "ip", inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, ethDst: datapath.RouterMAC, dst: to, ttl: 64}
	p.src, _ = firstOf(servedWorld{clusterWorld: s.clusterWorld}.gateways(node), to)
	if client != nil {
		source, ok := firstOf(client.Addresses, to)
		if !ok {
			return lost, nil
		}
		mac, err := s.nextMAC(*client, source, to)
		if err != nil || mac == (intent.MAC{}) {
			return lost, err
		}
		p.inPort, p.ethSrc, p.ethDst, p.src = ofPort(client.ID), client.MAC, mac, source
	}
	// Both choose a group's bucket.
	hash, source := rapid.Uint32Min(1).Draw(t, "hash"), rapid.Uint16Min(1024).Draw(t, "source port")
	flow := strings.Replace(traceFlow(p), "tcp_src=1234,tcp_dst=80", fmt.Sprintf("tcp_src=%d,tcp_dst=%d", source, port), 1) + fmt.Sprint(",dp_hash=", hash)
	text, err := s.tracers[node].vswitchd.Call(s.ctx, "ofproto/trace", s.tracers[node].name, flow, "--ct-next", "trk,new", "--ct-next", "trk,new")
	s.log = append(s.log, fmt.Sprintf("on n%d: %s\n%s", node, flow, text))
	if err != nil {
		return lost, err
	}
	o, _, err := s.tracers[node].read(text)
	if err != nil {
		return lost, err
	}
	own := o.readWritten(text)
	at := arrival{node: node, src: o.Src, dst: o.Dst, ttl: o.TTL}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Datapath actions:") {
			continue
		}
		for _, nat := range natTo.FindAllStringSubmatch(line, -1) {
			a := netip.MustParseAddr(nat[2] + nat[3] + nat[4])
			switch {
			case nat[1] == "src":
				at.src = a
			default:
				at.dst = a
			}
		}
	}
	if own.IsValid() { // over what conntrack writes
		at.dst = own
	}
	switch {
	case o.Drop:
		return lost, nil
	case o.Port == datapath.GatewayPort:
		at.end = "host"
	case o.Port == datapath.TunnelPort:
		o.Src, o.Dst = at.src, at.dst
		next, n, _ := s.acrossTunnel(node, o)
		return s.send(n, next, -1, nil)
	default:
		at.end, at.port = "port", s.portAt(node, o.Port)
	}
	return at, nil
}
