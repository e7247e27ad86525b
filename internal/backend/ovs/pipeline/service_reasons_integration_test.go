// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// testMode changes the Service mode, while pods talk to pods.
func testMode(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	s := &liveService{name: "mode", number: 70, endpoints: b.endpoints(n1.pods[1], n2.pods[0]), outside: true}
	b.set(s)
	at := func(p *livePod) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(p.address(v6)), answerPort)
	}
	calls := map[string]*call{}
	for _, c := range []struct {
		from *ovstest.Namespace
		to   *livePod
	}{
		{n1.pods[0].Namespace, n1.pods[1]}, {n1.pods[0].Namespace, n2.pods[0]}, {n1.Namespace, n2.pods[1]}, {b.red[0].Namespace, b.red[1]}, {b.red[0].Namespace, b.red[2]},
	} {
		for _, network := range b.networks {
			conn, err := called(t.Context(), c.from, network, at(c.to))
			if err != nil {
				t.Fatalf("%s to %s: %v", network, c.to.name(), err)
			}
			defer conn.Close()
			if who, _, err := conn.say("coelan", talkTime); err != nil || who != c.to.name() {
				t.Fatalf("%s to %s: %s, %v", network, c.to.name(), who, err)
			}
			calls[network+" "+c.to.name()] = conn
		}
	}
	all := func(after string) {
		t.Helper()
		for name, c := range calls {
			if who, _, err := c.say(after, talkTime); err != nil || !strings.HasSuffix(name, who) {
				t.Errorf("%s after %s: %s, %v", name, after, who, err)
			}
		}
	}
	mode := func(m intent.ServiceMode) {
		for _, n := range b.nodes {
			n.local.ServiceMode = m
		}
		b.set(s)
	}
	all("nothing")
	mode(intent.KubeProxy)
	all("the change to kube-proxy")
	if who, _, err := b.ask(n1.pods[0].Namespace, "tcp", s.clusterIP(v6), lostTime); err == nil {
		t.Errorf("%s answers where there is no kube-proxy", who)
	}
	mode(intent.NativeServices)
	all("the change back")
	b.check(t, way{name: "after the changes", from: n1.pods[0].Namespace, to: s.clusterIP(v6), want: []string{n1.pods[1].name(), n2.pods[0].name()}})
}

// dropped counts packets by the reasons that a node's flows give.
func (b *balanced) dropped(ctx context.Context, n *liveNode) map[string]uint64 {
	b.t.Helper()
	text, err := n.ovs.Ofctl(ctx, "dump-flows", "br-int")
	if err != nil {
		b.t.Fatal(err)
	}
	reasons := map[string]uint64{}
	for line := range strings.Lines(text) {
		var cookie, packets uint64
		for _, f := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' }) {
			_, _ = fmt.Sscanf(f, "cookie=0x%x", &cookie)
			_, _ = fmt.Sscanf(f, "n_packets=%d", &packets)
		}
		if m, ok := b.agents[n].compiler.Explain(cookie); ok && m.Drops() {
			reasons[m.Reason] += packets
		}
	}
	return reasons
}

// testReasons looks at why packets are dropped.
func testReasons(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	far := &liveService{name: "far", number: 80, endpoints: b.endpoints(n2.pods[0]), internalLocal: true}
	red := &liveService{name: "red", number: 81, router: "red", endpoints: b.endpoints(b.red[1])}
	few := &liveService{name: "few", number: 82, endpoints: b.endpoints(n1.pods[1]), outside: true, sourceRanges: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	}}
	b.set(far, red, few)
	for _, tc := range []struct {
		from   *livePod
		to     netip.AddrPort
		reason string
	}{
		{n1.pods[0], far.clusterIP(v6), noEndpoint},
		{n1.pods[0], red.clusterIP(v6), isolated},
		{b.blue[0], red.clusterIP(v6), isolated},
		{n1.pods[0], few.loadBalancerIP(v6), "the load balancer's source ranges do not have the sender"},
		{n1.pods[0], netip.AddrPortFrom(far.clusterIP(v6).Addr(), 81), "no Service has the address and port"},
		{n1.pods[0], netip.AddrPortFrom(far.clusterIP(v6).Addr().Next(), 80), ""}, // red's
	} {
		for _, network := range []string{"tcp", "udp"} {
			before := b.dropped(t.Context(), n1)
			_, _, err := b.ask(tc.from.Namespace, network, tc.to, lostTime)
			if got, err := outcomeOf("answered", err); got != lostCall {
				t.Errorf("%s from %s to %s: %s, %v", network, tc.from.name(), tc.to, got, err)
			}
			after := b.dropped(t.Context(), n1)
			if tc.reason != "" && after[tc.reason] == before[tc.reason] {
				t.Errorf("%s from %s to %s: no packet was dropped because %q", network, tc.from.name(), tc.to, tc.reason)
			}
		}
	}
}

// testManyEndpoints asks until every one of many endpoints has answered.
func testManyEndpoints(t *testing.T, b *balanced, count int) {
	defer func(all []string) { b.networks = all }(b.networks)
	b.networks = []string{"udp"}
	n1 := b.nodes[0]
	server := n1.pods[1]
	s := &liveService{name: "many", number: 90}
	first := 20000 + 10*count
	for i := range count {
		port := uint16(first + i)
		b.answer(server.Namespace, fmt.Sprint(port), server.address(false), port)
		s.endpoints = append(s.endpoints, liveEndpoint{fmt.Sprint(port), n1, server.address, port})
	}
	b.set(s)
	heard := map[string]int{}
	tries := 0
	for ; len(heard) < count && tries < 20*count; tries++ {
		who, _, err := b.ask(n1.pods[0].Namespace, "udp", s.clusterIP(false), talkTime)
		if err != nil {
			t.Fatal(err)
		}
		heard[who]++
	}
	most := 0
	for _, n := range heard {
		most = max(most, n)
	}
	t.Logf("%d endpoints answered in %d tries, one of them %d times", len(heard), tries, most)
	if len(heard) < count {
		t.Errorf("%d of %d endpoints never answered", count-len(heard), count)
	}
}
