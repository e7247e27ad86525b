// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the cluster, its switches together keep the promises: packets reach the ends that they
// should and no others, with the addresses that they should have, and answers come back to the
// address that was asked.
func TestWorldsKeepPromises(t *testing.T) {
	tracers := newTracers(t, 3)
	ends := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := &simulation{clusterWorld: drawWorld(t), ctx: ctx, tracers: tracers}
		for n := range s.nodes {
			if err := tracers[n].load(ctx, stateFrom(t, s.view(n))); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.ports) == 0 {
			return
		}
		for range 30 {
			switch rapid.SampledFrom([]string{"port", "port", "host", "service"}).Draw(t, "sender") {
			case "port":
				s.testPort(t, ends)
			case "host":
				s.testHost(t, ends)
			case "service":
				s.testService(t, ends)
			}
		}
	})
	t.Logf("packets by kind and end: %v", ends)
	for _, end := range []string{"port dropped", "port port", "port host", "port wire", "port forwarded", "host dropped", "host port", "service answered", "service dropped"} {
		if ends[end] == 0 {
			t.Errorf("no packet of kind and end %q: the cases say nothing", end)
		}
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
	to := rapid.SampledFrom(s.clusterWorld.addresses()).Draw(t, "to")
	for _, own := range append(a.Addresses[:len(a.Addresses):len(a.Addresses)], a.NodeAddresses...) {
		if own == to {
			return
		}
	}
	what := fmt.Sprintf("port %s to %s", a.ID, to)
	want := promise{s.clusterWorld}.fromPort(a, to)
	got, err := s.fromPort(a, to, -1, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, strings.Join(s.log, "\n"))
	}
	if !got.same(want) {
		s.fatal(t, what, want, got)
	}
	ends["port "+got.end]++
	if got.end != "port" {
		return
	}
	model := promise{s.clusterWorld}
	if !got.port.hasAddress(to) { // the next hop of a static route
		back := model.fromPort(got.port, got.src)
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
