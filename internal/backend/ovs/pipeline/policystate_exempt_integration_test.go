// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/test/lab/probe"
)

// What policies do not judge passes, and nothing else does.
func TestPolicyExemptions(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	s, all := newLiveServices(g.balanced)
	closed := g.nodes[0].pods[1]
	itself := &liveService{name: "itself", number: 60, endpoints: g.endpoints(closed), outside: true}
	here := &liveService{name: "here", number: 61, endpoints: []liveEndpoint{{g.nodes[0].local.Node, g.nodes[0], g.nodes[0].address, answerPort}}}
	plain := &liveService{name: "plain", number: 62, endpoints: g.endpoints(closed), external: true}
	free := &liveService{name: "free", number: 63, endpoints: g.endpoints(g.nodes[1].pods[0]), external: true}
	g.services = append(all, itself, here, plain, free)
	for _, v6 := range []bool{false, true} {
		g.run(g.outside, fmt.Sprintf("%s route add %s via %s", ip(v6), plain.clusterIP(v6).Addr(), g.nodes[0].address(v6)))
	}
	none := governance{ingress: fromNone, egress: fromNone}
	g.govern(map[*livePod]governance{closed: none, g.red[1]: none, g.onWire: none})
	for _, v6 := range []bool{false, true} {
		t.Run(familyName(v6), func(t *testing.T) {
			var all sync.WaitGroup
			for _, w := range append(g.exemptions(s, itself, here, v6), g.byClusterIP(plain, v6, lostCall)...) {
				if w.want[0] == lostCall { // takes as long for all as for one
					all.Go(func() { g.check(t, w) })
					continue
				}
				g.check(t, w)
			}
			all.Wait()
			for _, at := range []netip.AddrPort{free.clusterIP(v6), free.externalIP(v6)} {
				testAnswerOfHost(t, g.nodes[0], at)
			}
		})
	}
	// A client is judged by the address that the port sees.
	open := governance{ingress: []string{g.nodes[0].gateway(false), g.nodes[0].gateway(true)}, egress: fromNone}
	g.govern(map[*livePod]governance{closed: open})
	for _, v6 := range []bool{false, true} {
		g.check(t, way{name: "outside, masked", from: g.outside, to: itself.at(g.nodes[0], v6), want: []string{closed.name()}})
		g.check(t, way{name: "outside, not masked", from: g.outside, to: s.local.at(g.nodes[0], v6), want: []string{lostCall}})
		for _, w := range g.byClusterIP(plain, v6, closed.name()) {
			g.check(t, w)
		}
	}
	open.ingress = []string{outsideAddress(false), outsideAddress(true)}
	g.govern(map[*livePod]governance{closed: open})
	for _, v6 := range []bool{false, true} {
		g.check(t, way{name: "outside, masked", from: g.outside, to: itself.at(g.nodes[0], v6), want: []string{lostCall}})
		g.check(t, way{name: "outside, not masked", from: g.outside, to: s.local.at(g.nodes[0], v6), want: []string{closed.name()}})
	}
}

// testAnswerOfHost has a node's kernel answer a Pod from the address of a Service, as it does if it
// sends back what it was given to refuse. The Pod's connection does not go by the kernel therefore.
func testAnswerOfHost(t *testing.T, node *liveNode, at netip.AddrPort) {
	t.Helper()
	pod := node.pods[0]
	c, err := called(t.Context(), pod.Namespace, "udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kernel, err := probe.ListenForeign(t.Context(), node, at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kernel.Close() }()
	if _, err := kernel.WriteTo([]byte("kernel\n"), c.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(talkTime))
	if heard, err := c.in.ReadString('\n'); err != nil || heard != "kernel\n" {
		t.Errorf("%s: the pod hears %q, %v", at, heard, err)
	}
	want := netip.MustParseAddrPort(c.LocalAddr().String()).Addr().String()
	if _, seen, err := c.say("coelan", talkTime); err != nil || seen != want {
		t.Errorf("%s: the client is seen as %q, %v", at, seen, err)
	}
}

// byClusterIP are ways on which the first node's kernel leads others than its own processes to the
// ClusterIP of a Service.
func (g *policedWorld) byClusterIP(s *liveService, v6 bool, want string) []way {
	return []way{
		{name: "outside, external address without a node port", from: g.outside, to: s.externalIP(v6), want: []string{want}},
		{name: "outside, ClusterIP", from: g.outside, to: s.clusterIP(v6), want: []string{want}},
	}
}

func (g *policedWorld) exemptions(s liveServices, itself, here *liveService, v6 bool) []way {
	n1, n2 := g.nodes[0], g.nodes[1]
	pod, closed, far, red := n1.pods[0], n1.pods[1], n2.pods[0], g.red
	to := func(p *livePod) netip.AddrPort { return direct(p)(answerPort, v6) }
	node := func(n *liveNode) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(n.address(v6)), answerPort)
	}
	outside := netip.AddrPortFrom(netip.MustParseAddr(outsideAddress(v6)), answerPort)
	who, lost, refused := []string{closed.name()}, []string{lostCall}, []string{refusedCall}
	return []way{
		{name: "its node", from: n1.Namespace, to: to(closed), want: who},
		{name: "its node, Service", from: n1.Namespace, to: itself.clusterIP(v6), want: who},
		{name: "its node, node port", from: n1.Namespace, to: itself.at(n1, v6), want: lost},
		{name: "its node, load balancer", from: n1.Namespace, to: itself.loadBalancerIP(v6), want: lost},
		{name: "the other node", from: n2.Namespace, to: to(closed), want: lost},
		{name: "the other node, Service", from: n2.Namespace, to: itself.clusterIP(v6), want: lost},
		{name: "outside", from: g.outside, to: to(closed), want: lost},
		{name: "outside, node port", from: g.outside, to: itself.at(n1, v6), want: lost},
		{name: "outside, load balancer", from: g.outside, to: itself.loadBalancerIP(v6), want: lost},
		{name: "a pod", from: pod.Namespace, to: to(closed), want: lost},
		{name: "a pod, Service", from: pod.Namespace, to: s.near.clusterIP(v6), want: lost},
		{name: "a pod of the other node", from: far.Namespace, to: to(closed), want: lost},
		{name: "itself, Service", from: closed.Namespace, to: itself.clusterIP(v6), want: who},
		{name: "to its node", from: closed.Namespace, to: node(n1), want: []string{n1.local.Node}},
		{name: "to its node, Service", from: closed.Namespace, to: here.clusterIP(v6), want: []string{n1.local.Node}},
		{name: "to the other node", from: closed.Namespace, to: node(n2), want: lost},
		{name: "to the other node, Service", from: closed.Namespace, to: s.onHost.clusterIP(v6), want: lost},
		{name: "to a pod", from: closed.Namespace, to: to(pod), want: lost},
		{name: "to the outside", from: closed.Namespace, to: outside, want: lost},
		{name: "to a Service that nobody serves", from: closed.Namespace, to: s.none.clusterIP(v6), want: refused},
		{name: "to a Service that nobody serves, load balancer", from: closed.Namespace, to: s.none.loadBalancerIP(v6), want: refused},
		{name: "a tenant's, its node", from: n1.Namespace, to: byNode(red[1])(answerPort, v6), want: []string{red[1].name()}},
		{name: "a tenant's, its node, Service", from: n1.Namespace, to: s.red.clusterIP(v6), want: []string{red[1].name(), red[2].name()}},
		{name: "a tenant's, another tenant's pod", from: red[0].Namespace, to: to(red[1]), want: lost},
		{name: "a tenant's, the other node", from: n2.Namespace, to: byNode(red[1])(answerPort, v6), want: lost},
		{name: "on the wire, its node", from: n1.Namespace, to: byNode(g.onWire)(answerPort, v6), want: []string{g.onWire.name()}},
		{name: "on the wire", from: g.wire, to: to(g.onWire), want: lost},
	}
}

// Errors about a connection that is allowed reach its client, whatever else may not.
func TestPolicyErrors(t *testing.T) {
	for _, mode := range []intent.ServiceMode{intent.NativeServices, intent.KubeProxy} {
		t.Run(string(mode), func(t *testing.T) {
			g := newPoliced(t, mode)
			n1, n2 := g.nodes[0], g.nodes[1]
			pod, near, far := n1.pods[0], n1.pods[1], n2.pods[0]
			s := &liveService{name: "shut", number: 1, endpoints: g.endpoints(near)}
			for i := range s.endpoints {
				s.endpoints[i].port = 7
			}
			g.services = []*liveService{s}
			server := governance{ingress: []string{pod.address(false), pod.address(true)}, egress: fromNone}
			client := governance{ingress: fromNone}
			g.govern(map[*livePod]governance{pod: client, near: server, far: server})
			for _, v6 := range []bool{false, true} {
				at := []netip.AddrPort{direct(near)(7, v6), direct(far)(7, v6)}
				if mode == intent.NativeServices {
					at = append(at, s.clusterIP(v6))
				}
				for _, to := range at {
					for _, network := range []string{"tcp", "udp"} {
						if _, _, err := g.ask(pod.Namespace, network, to, talkTime); !errors.Is(err, syscall.ECONNREFUSED) {
							t.Errorf("%s to %s: %v, not refused", network, to, err)
						}
					}
				}
				outside := direct(near)(7, v6).Addr().String()
				if out, _ := ping(pod.Namespace, direct(far)(7, v6).Addr().String(), "-t 1"); !strings.Contains(out, "exceeded") {
					t.Errorf("TTL 1 to %s: no \"exceeded\":\n%s", outside, out)
				}
			}
		})
	}
}

// Datagrams in fragments are judged by the first of these, which alone tells the port.
func TestPolicyFragments(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	n1, n2 := g.nodes[0], g.nodes[1]
	pod, near, far := n1.pods[0], n1.pods[1], n2.pods[0]
	s, f := &liveService{name: "near", number: 1, endpoints: g.endpoints(near)}, &liveService{name: "far", number: 2, endpoints: g.endpoints(far)}
	g.services = []*liveService{s, f}
	server := governance{
		ingress: []string{pod.address(false), pod.address(true)}, egress: fromNone,
		ports: []intent.PortRange{{Protocol: uint8(intent.UDP), First: answerPort, Last: answerPort}},
	}
	g.govern(map[*livePod]governance{pod: {ingress: fromNone}, near: server, far: server})
	long := strings.TrimSpace(payload)
	for _, v6 := range []bool{false, true} {
		for _, to := range []netip.AddrPort{direct(near)(answerPort, v6), direct(far)(answerPort, v6), s.clusterIP(v6), f.clusterIP(v6)} {
			c, err := called(t.Context(), pod.Namespace, "udp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i, text := range []string{long, "short", long} {
				if _, _, err := c.say(text, talkTime); err != nil {
					t.Errorf("%s, datagram %d: %v", to, i, err)
				}
			}
		}
	}
	server.ports = []intent.PortRange{{Protocol: uint8(intent.UDP), First: 9, Last: 9}}
	g.govern(map[*livePod]governance{near: server, far: server})
	for _, v6 := range []bool{false, true} {
		for _, to := range []netip.AddrPort{direct(near)(answerPort, v6), direct(far)(answerPort, v6)} {
			if c, err := called(t.Context(), pod.Namespace, "udp", to); err != nil {
				t.Fatal(err)
			} else if _, _, err := c.say(long, lostTime); err == nil {
				t.Errorf("%s: a datagram to another port arrives", to)
			}
		}
	}
}

// A connection that stays allowed loses nothing while policies change, its own among them.
func TestPolicyStreams(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	n1, n2 := g.nodes[0], g.nodes[1]
	pod, near, far := n1.pods[0], n1.pods[1], n2.pods[0]
	s := &liveService{name: "far", number: 1, endpoints: g.endpoints(far)}
	s.endpoints[0].port = linePort
	g.services = []*liveService{s}
	me := []string{pod.address(false), pod.address(true)}
	some := governance{ingress: me}
	more := governance{ingress: append(me, "192.0.2.1"), egress: []string{"192.0.2.2"}}
	g.govern(map[*livePod]governance{near: some, far: some, pod: {}})
	lines := []*lineOf{
		newLine(t, pod.Namespace, near.Namespace, near.address(false), direct(near)(linePort, false)),
		newLine(t, pod.Namespace, far.Namespace, far.address(true), s.clusterIP(true)),
	}
	for _, l := range lines {
		if !soon(func() bool { return l.request(lostTime) }) {
			t.Fatal("the line does not work")
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, l := range lines {
		all.Go(func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				if !l.request(talkTime) || !l.reply(talkTime) {
					t.Errorf("line %d: datagram %d is lost", i, n)
					return
				}
			}
			t.Logf("line %d: %d datagrams", i, n)
		})
	}
	for i := range 20 {
		how := map[*livePod]governance{near: some, far: more, pod: {egress: []string{near.address(false), far.address(true)}}}
		if i%2 == 0 {
			how = map[*livePod]governance{near: more, far: {}, pod: {ingress: fromNone}}
		}
		g.govern(how)
	}
	stop()
	all.Wait()
}

// Connections outlive that policies begin to be enforced, and can be stopped then.
func TestPolicyModeChanges(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	n1, n2 := g.nodes[0], g.nodes[1]
	pod, near := n1.pods[0], n1.pods[1]
	s := &liveService{name: "near", number: 1, endpoints: g.endpoints(near)}
	g.services = []*liveService{s}
	enforce := func(m intent.PolicyMode) {
		for _, n := range g.nodes {
			n.local.PolicyMode = m
		}
		g.govern(nil)
	}
	enforce(intent.UnenforcedPolicies)
	ways := map[string]netip.AddrPort{"direct": direct(near)(answerPort, false), "Service": s.clusterIP(true), "node": direct(near)(answerPort, true)}
	calls := map[string]*call{}
	for name, to := range ways {
		from := map[string]*livePod{"direct": pod, "Service": pod, "node": n2.pods[0]}[name]
		c, err := called(t.Context(), from.Namespace, "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		calls[name] = c
	}
	all := func(when string, works bool, wait time.Duration) {
		t.Helper()
		for name, c := range calls {
			if _, _, err := c.say(fmt.Sprint(when), wait); (err == nil) != works {
				t.Errorf("%s: %s: %v", when, name, err)
			}
		}
	}
	all("at first", true, talkTime)
	enforce(intent.EnforcedPolicies)
	all("enforced", true, talkTime)
	g.govern(map[*livePod]governance{near: {ingress: fromNone}})
	if c := calls["direct"]; !soon(func() bool { _, _, err := c.say("still", lostTime); return err != nil }) {
		t.Error("direct: goes on, though it is not allowed any more")
	}
	delete(calls, "direct")
	all("denied", false, lostTime)
	enforce(intent.UnenforcedPolicies)
	for name, c := range calls {
		_ = c.SetDeadline(time.Now().Add(talkTime))
		if text, err := c.in.ReadString('\n'); err != nil || !strings.Contains(text, "denied") {
			t.Errorf("%s: what was said while it was denied: %q, %v", name, text, err)
		}
	}
	all("not enforced any more", true, talkTime)
}

// A client that policies isolate, and its node, reuse ports that the server remembers (TIME_WAIT),
// so that conntrack takes all packets of the connection for invalid: see testUsedPort.
func TestPolicyUsedPorts(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	n1, n2 := g.nodes[0], g.nodes[1]
	client := n1.pods[0]
	for i, server := range []*livePod{n1.pods[1], n2.pods[0]} {
		at := netip.AddrPortFrom(netip.MustParseAddr(server.address(false)), 8091)
		listener, err := probe.Serve(server.Namespace, at, probe.Answer)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		s := &liveService{name: "used", number: 1 + i, endpoints: g.endpoints(server)}
		s.endpoints[0].port = at.Port()
		g.services = []*liveService{s}
		g.govern(map[*livePod]governance{client: {ingress: fromNone}, server: {egress: fromNone}})
		for port := 20000; port < 20010; port++ {
			ways := []netip.AddrPort{at, s.clusterIP(false)}
			if port%2 == 1 {
				slices.Reverse(ways)
			}
			for _, from := range []*ovstest.Namespace{client.Namespace, n1.Namespace} {
				for _, to := range ways {
					if err := probe.AnswerFrom(t.Context(), from, port, to); err != nil {
						t.Errorf("%s, from port %d: %v", to, port, err)
					}
					for _, n := range g.nodes {
						if _, err := n.ovs.Appctl(t.Context(), "dpctl/flush-conntrack"); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
}
