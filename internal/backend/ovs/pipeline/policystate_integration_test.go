// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// policedWorld is one where policies are enforced.
type policedWorld struct {
	*balanced
	pods map[*livePod]governance
}

// governance is a pod's allowed peers, as addresses. What is nil does not isolate the pod.
type governance struct {
	ingress, egress []string
	ports           []intent.PortRange // of what it allows; none: all
}

var fromNone = []string{}

func newPoliced(t *testing.T, mode intent.ServiceMode) *policedWorld {
	t.Helper()
	g := &policedWorld{balanced: newBalanced(t, intent.VXLAN), pods: map[*livePod]governance{}}
	g.governed = map[*livePod]bool{}
	for _, n := range g.nodes {
		n.local.PolicyMode, n.local.ServiceMode = intent.EnforcedPolicies, mode
	}
	return g
}

// govern changes how pods are governed, all at once.
func (g *policedWorld) govern(how map[*livePod]governance) {
	g.t.Helper()
	for p, now := range how {
		g.pods[p] = now
	}
	g.known.Rules, g.known.Subjects, g.governed = nil, nil, map[*livePod]bool{}
	for p, now := range g.pods {
		s := intent.Subject{Key: p.port.SubjectKey()}
		for direction, addresses := range map[intent.Direction][]string{intent.Ingress: now.ingress, intent.Egress: now.egress} {
			if addresses == nil {
				continue
			}
			of := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: p.name()}
			if direction == intent.Ingress {
				s.IngressIsolation = []intent.PolicyRef{of}
			} else {
				s.EgressIsolation = []intent.PolicyRef{of}
			}
			rule := intent.Rule{
				ID: fmt.Sprint(p.name(), "/", direction), Policy: of, Number: 1, Direction: direction,
				Tier: intent.NetworkPolicyTier, Action: intent.Allow, Blocks: blocks(addresses), Ports: now.ports,
			}
			if len(rule.Blocks) > 0 {
				g.known.Rules = append(g.known.Rules, rule)
				s.Rules = append(s.Rules, rule.ID)
			}
		}
		g.known.Subjects, g.governed[p] = append(g.known.Subjects, s), true
	}
	g.set(g.services...)
}

// blocks are prefixes and addresses as prefixes, sorted.
func blocks(list []string) (all []netip.Prefix) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			p = host(netip.MustParseAddr(text))
		}
		all = append(all, p)
	}
	return all
}

// marks counts the connections to a port that a node knows, by a bit of their marks.
func (g *policedWorld) marks(t *testing.T, n *liveNode, zone uint16, port uint16, bit uint32) (with, without int) {
	t.Helper()
	list, err := appctl.Vswitchd(n.ovs.Dir).Connections(t.Context(), zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		switch {
		case c.Orig.DstPort != port && c.Reply.SrcPort != port:
		case c.Mark&bit != 0:
			with++
		default:
			without++
		}
	}
	return with, without
}

// lineOf is a datagram's way from a client to a server. The test has both ends.
type lineOf struct {
	client net.Conn
	server net.PacketConn
	peer   net.Addr
}

const linePort = 9000

func newLine(t *testing.T, client, server *ovstest.Namespace, at string, to netip.AddrPort) *lineOf {
	t.Helper()
	l := &lineOf{}
	err := server.Do(func() (err error) {
		l.server, err = net.ListenPacket("udp", netip.AddrPortFrom(netip.MustParseAddr(at), linePort).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.server.Close() })
	if l.client, err = dial(t.Context(), client, "udp", to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.client.Close() })
	return l
}

// request sends a datagram and says whether it arrived.
func (l *lineOf) request(wait time.Duration) bool {
	text := fmt.Sprint(time.Now().UnixNano())
	if _, err := fmt.Fprint(l.client, text); err != nil {
		return false
	}
	buf := make([]byte, 100)
	for end := time.Now().Add(wait); ; {
		_ = l.server.SetReadDeadline(end)
		n, from, err := l.server.ReadFrom(buf)
		if err != nil {
			return false
		}
		if string(buf[:n]) == text {
			l.peer = from
			return true
		}
	}
}

// reply sends one back and says whether it arrived.
func (l *lineOf) reply(wait time.Duration) bool {
	text := fmt.Sprint(time.Now().UnixNano())
	if _, err := l.server.WriteTo([]byte(text), l.peer); err != nil {
		return false
	}
	buf := make([]byte, 100)
	for end := time.Now().Add(wait); ; {
		_ = l.client.SetReadDeadline(end)
		n, err := l.client.Read(buf)
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue
		}
		if err != nil {
			return false
		}
		if string(buf[:n]) == text {
			return true
		}
	}
}

// connection is a way that policies can stop and allow.
type connection struct {
	name   string
	from   *ovstest.Namespace
	server *livePod
	at     func(v6 bool) string // the address that the server has for itself
	to     func(port uint16, v6 bool) netip.AddrPort
	// The pod that is governed, and how, if that is to stop the connection.
	pod  *livePod
	stop governance
	node *liveNode // that judges
	zone uint16
}

func direct(p *livePod) func(uint16, bool) netip.AddrPort {
	return func(port uint16, v6 bool) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(p.address(v6)), port)
	}
}

func byNode(p *livePod) func(uint16, bool) netip.AddrPort {
	return func(port uint16, v6 bool) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(p.inNode(v6)), port)
	}
}

// through leads to a server's port by a Service: the one for linePort has the number after.
func through(at func(s *liveService, v6 bool) netip.AddrPort, s, line *liveService) func(uint16, bool) netip.AddrPort {
	return func(port uint16, v6 bool) netip.AddrPort {
		if port == linePort {
			return at(line, v6)
		}
		return at(s, v6)
	}
}

// A policy stops connections that there are, and the answers in them; those that stay allowed lose
// nothing; what is allowed again goes on.
func TestPolicyConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []intent.ServiceMode{intent.NativeServices, intent.KubeProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			g := newPoliced(t, mode)
			for i, c := range g.connections(mode) {
				v6 := i%2 == 1 // of each, one family will do
				t.Run(c.name+"/"+familyName(v6), func(t *testing.T) { g.testConnection(t, c, v6) })
			}
		})
	}
}

func (g *policedWorld) connections(mode intent.ServiceMode) []connection {
	n1, n2 := g.nodes[0], g.nodes[1]
	pod, near, far := n1.pods[0], n1.pods[1], n2.pods[0]
	in, out := governance{ingress: fromNone}, governance{egress: fromNone}
	red := g.red
	list := []connection{
		{"same node, receiver", pod.Namespace, near, near.address, direct(near), near, in, n1, clusterZone},
		{"same node, sender", pod.Namespace, near, near.address, direct(near), pod, out, n1, clusterZone},
		{"other node, receiver", pod.Namespace, far, far.address, direct(far), far, in, n2, clusterZone},
		{"other node, sender", pod.Namespace, far, far.address, direct(far), pod, out, n1, clusterZone},
		{"from the other node", n2.Namespace, near, near.address, direct(near), near, in, n1, clusterZone},
		{"tenant", red[0].Namespace, red[1], red[1].address, direct(red[1]), red[1], in, n1, 20},
		{"tenant, sender", red[0].Namespace, red[1], red[1].address, direct(red[1]), red[0], out, n1, 20},
		{"tenant, other node", red[0].Namespace, red[2], red[2].address, direct(red[2]), red[2], in, n2, 20},
		{"tenant, node address", red[0].Namespace, red[1], red[1].address, byNode(red[1]), red[1], in, n1, clusterZone},
		{"tenant, node address, sender", red[0].Namespace, red[2], red[2].address, byNode(red[2]), red[0], out, n1, clusterZone},
		{"isolated namespaces", g.iso[0].Namespace, g.iso[1], g.iso[1].address, direct(g.iso[1]), g.iso[1], in, n2, clusterZone},
		{"isolated namespaces, sender", g.iso[0].Namespace, g.iso[1], g.iso[1].address, direct(g.iso[1]), g.iso[0], out, n1, clusterZone},
		{"from the wire", g.wire, g.onWire, g.onWire.address, direct(g.onWire), g.onWire, in, n1, uint16(datapath.PhysicalZone)},
	}
	if mode != intent.NativeServices {
		return list
	}
	add := func(name string, number int, router string, p *livePod) (*liveService, *liveService) {
		s := &liveService{name: name, number: number, router: router, endpoints: g.endpoints(p), outside: true}
		line := &liveService{name: name + "-line", number: number + 1, router: router, endpoints: g.endpoints(p), outside: true}
		line.endpoints[0].port = linePort
		g.services = append(g.services, s, line)
		return s, line
	}
	s, sLine := add("near", 1, "", near)
	f, fLine := add("far", 3, "", far)
	r, rLine := add("red", 5, "red", red[1])
	l, lLine := add("local", 7, "", near)
	l.externalLocal, lLine.externalLocal = true, true
	at1 := func(s *liveService, v6 bool) netip.AddrPort { return s.at(n1, v6) }
	ip := (*liveService).clusterIP
	return append(list, []connection{
		{"Service, receiver", pod.Namespace, near, near.address, through(ip, s, sLine), near, in, n1, clusterZone},
		{"Service, sender", pod.Namespace, near, near.address, through(ip, s, sLine), pod, out, n1, clusterZone},
		{"Service, other node, receiver", pod.Namespace, far, far.address, through(ip, f, fLine), far, in, n2, clusterZone},
		{"Service, other node, sender", pod.Namespace, far, far.address, through(ip, f, fLine), pod, out, n1, clusterZone},
		{"Service of a tenant, receiver", red[0].Namespace, red[1], red[1].address, through(ip, r, rLine), red[1], in, n1, clusterZone},
		{"Service of a tenant, sender", red[0].Namespace, red[1], red[1].address, through(ip, r, rLine), red[0], out, n1, clusterZone},
		{"tenant to another Service", red[0].Namespace, near, near.address, through(ip, s, sLine), red[0], out, n1, clusterZone},
		{"node port from outside", g.outside, near, near.address, through(at1, s, sLine), near, in, n1, clusterZone},
		{"node port that keeps the client", g.outside, near, near.address, through(at1, l, lLine), near, in, n1, clusterZone},
		{"node port of the node itself", n1.Namespace, near, near.address, through(at1, s, sLine), near, in, n1, clusterZone},
	}...)
}

func (g *policedWorld) testConnection(t *testing.T, c connection, v6 bool) {
	g.pods = map[*livePod]governance{}
	g.govern(nil)
	calls := map[string]*call{}
	for _, network := range g.networks {
		conn, err := called(t.Context(), c.from, network, c.to(answerPort, v6))
		if err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		defer conn.Close()
		if who, _, err := conn.say("first", talkTime); err != nil {
			t.Fatalf("%s: %s, %v", network, who, err)
		}
		calls[network] = conn
	}
	line := newLine(t, c.from, c.server.Namespace, c.at(v6), c.to(linePort, v6))
	if !line.request(talkTime) || !line.reply(talkTime) {
		t.Fatal("the line does not work")
	}
	g.govern(map[*livePod]governance{c.pod: c.stop})
	if !soon(func() bool { return !line.request(lostTime) }) {
		t.Error("datagrams arrive, though they are not allowed any more")
	}
	if with, without := g.marks(t, c.node, c.zone, linePort, MarkDenied); with == 0 {
		t.Errorf("%d connections are marked denied, %d not", with, without)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if line.reply(lostTime) {
			t.Error("an answer arrives in a connection that is not allowed any more")
		}
	})
	for network, conn := range calls {
		all.Go(func() {
			if _, _, err := conn.say("denied", lostTime); err == nil {
				t.Errorf("%s: goes on, though it is not allowed any more", network)
			}
		})
	}
	all.Wait()

	g.govern(map[*livePod]governance{c.pod: {}})
	if !soon(func() bool { return line.request(lostTime) }) || !line.reply(talkTime) {
		t.Error("the line does not work again")
	}
	if with, _ := g.marks(t, c.node, c.zone, linePort, MarkDenied); with > 0 {
		t.Errorf("%d connections are still marked denied", with)
	}
	if conn := calls["tcp"]; conn != nil {
		_ = conn.SetDeadline(time.Now().Add(talkTime))
		for _, want := range []string{"denied", "again"} {
			if want == "again" {
				if _, err := fmt.Fprintln(conn, want); err != nil {
					t.Error(err)
				}
			}
			if text, err := conn.in.ReadString('\n'); err != nil {
				t.Errorf("tcp: what was said when it was denied, or again: %q, %v", text, err)
			}
		}
	}
}
