// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab/probe"
)

// smuggler sends frames that no kernel would, from one pod to another that is in league with it.
type smuggler struct {
	*policedWorld
	from, to *livePod
	out, in  *probe.Wire
	number   int
}

func newSmuggler(t *testing.T, g *policedWorld, from, to *livePod) *smuggler {
	t.Helper()
	s := &smuggler{policedWorld: g, from: from, to: to}
	for p, w := range map[*livePod]**probe.Wire{from: &s.out, to: &s.in} {
		wire, err := probe.OpenWire(p.Namespace, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(wire.Close)
		*w = wire
	}
	return s
}

// frame makes one that bears text.
func (s *smuggler) frame(ip []byte) probe.Frame {
	kind := uint16(probe.EtherIPv4)
	if ip[0]>>4 == 6 {
		kind = probe.EtherIPv6
	}
	return probe.Ethernet(net.HardwareAddr(s.from.port.MAC[:]), net.HardwareAddr(s.to.port.MAC[:]), kind, ip)
}

// text is another one with each call.
func (s *smuggler) text() []byte {
	s.number++
	return fmt.Appendf(nil, "smuggled %p %d.", s, s.number)
}

// arrives sends packets and says whether text arrives.
func (s *smuggler) arrives(t *testing.T, text []byte, packets ...[]byte) bool {
	t.Helper()
	for _, p := range packets {
		if err := s.out.Send(s.frame(p)); err != nil {
			t.Fatal(err)
		}
	}
	return s.in.Quiet(lostTime, func(f probe.Frame) bool { return bytes.Contains(f, text) }) != nil
}

// fragment is a part of what an IP packet bears, from an offset on.
func fragment(src, dst netip.Addr, id uint16, offset int, more bool, data []byte) []byte {
	field := uint16(offset / 8)
	if src.Is6() {
		field <<= 3
		if more {
			field |= 1
		}
		h := binary.BigEndian.AppendUint16([]byte{uint8(intent.UDP), 0}, field)
		h = binary.BigEndian.AppendUint32(h, uint32(id))
		return probe.IP(src, dst, 44, 64, append(h, data...))
	}
	if more {
		field |= 0x2000
	}
	p := probe.IP(src, dst, 253, 64, data)
	p[9] = uint8(intent.UDP)
	binary.BigEndian.PutUint16(p[4:], id)
	binary.BigEndian.PutUint16(p[6:], field)
	binary.BigEndian.PutUint16(p[10:], 0)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return p
}

// datagram is one in two fragments: the second bears text.
func datagram(src, dst netip.AddrPort, id uint16, first int, text []byte) (packets [][]byte) {
	whole := probe.UDP(src, dst, append(bytes.Repeat([]byte("."), first-8), text...))
	if src.Addr().Is6() {
		whole = whole[40:]
	} else {
		whole = whole[20:]
	}
	return [][]byte{
		fragment(src.Addr(), dst.Addr(), id, 0, true, whole[:first]),
		fragment(src.Addr(), dst.Addr(), id, first, false, whole[first:]),
	}
}

// Pods that may not talk to each other do not in fragments of packets either, of which only the
// first tells a port.
func TestPolicyLaterFragments(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	g.services = nil
	pod, near := g.nodes[0].pods[0], g.nodes[0].pods[1]
	s := newSmuggler(t, g, pod, near)
	me := []string{pod.address(false), pod.address(true)}
	port := func(n uint16) []intent.PortRange {
		return []intent.PortRange{{Protocol: uint8(intent.UDP), First: n, Last: n}}
	}
	const usual, small = 1400, 800
	id := uint16(1000)
	next := func() uint16 { id++; return id }
	for _, v6 := range []bool{false, true} {
		src, dst := netip.MustParseAddr(pod.address(v6)), netip.MustParseAddr(near.address(v6))
		at := func(from, to uint16) (netip.AddrPort, netip.AddrPort) {
			return netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
		}
		send := func(from, to uint16, first int) bool {
			a, b := at(from, to)
			text := s.text()
			return s.arrives(t, text, datagram(a, b, next(), first, text)...)
		}
		t.Run(familyName(v6), func(t *testing.T) {
			g.govern(map[*livePod]governance{near: {}})
			if !send(7000, linePort, usual) {
				t.Error("nothing is governed: a datagram does not arrive")
			}
			g.govern(map[*livePod]governance{near: {ingress: me, ports: port(linePort)}})
			for _, which := range []string{"first", "second"} {
				if !send(7001, linePort, usual) {
					t.Errorf("the %s datagram to a port that is allowed does not arrive", which)
				}
			}
			for _, first := range []int{usual, small} {
				if send(7001, linePort+1, first) {
					t.Errorf("the end of a datagram to another port arrives, after %d bytes", first)
				}
			}
			g.govern(map[*livePod]governance{near: {ingress: fromNone}})
			for name, more := range map[string]bool{"in the middle": true, "the last": false} {
				text := s.text()
				for _, size := range []int{usual, small} {
					data := append(bytes.Repeat([]byte("."), size-len(text)-size%8), text...)
					if s.arrives(t, text, fragment(src, dst, next(), 1480, more, data[:len(data)/8*8])) {
						t.Errorf("a later fragment of nothing arrives, %s, of %d bytes", name, size)
					}
				}
			}
			for _, first := range []int{usual, small} {
				if send(7002, linePort, first) {
					t.Errorf("the end of a datagram from somebody who is denied arrives, after %d bytes", first)
				}
			}
		})
	}
}

// What is in fragments ends with the connection, and does not take back that it is denied.
func TestPolicyFragmentsOfDeniedConnections(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	g.services = nil
	pod, near := g.nodes[0].pods[0], g.nodes[0].pods[1]
	s := newSmuggler(t, g, pod, near)
	for _, v6 := range []bool{false, true} {
		g.govern(map[*livePod]governance{near: {}})
		line := newLine(t, pod.Namespace, near.Namespace, near.address(v6), direct(near)(linePort, v6))
		if !line.request(talkTime) || !line.reply(talkTime) {
			t.Fatal("the line does not work")
		}
		g.govern(map[*livePod]governance{near: {ingress: fromNone}})
		if !soon(func() bool { return !line.request(lostTime) }) {
			t.Error("datagrams arrive, though they are not allowed any more")
		}
		for range 3 {
			if _, err := fmt.Fprint(line.client, payload); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.in.Quiet(lostTime, func(f probe.Frame) bool { return bytes.Contains(f, []byte(payload[:100])) }); err != nil {
			t.Errorf("%s: the end of a datagram arrives in a connection that is not allowed any more", familyName(v6))
		}
		if with, without := g.marks(t, g.nodes[0], clusterZone, linePort, MarkDenied); without > 0 {
			t.Errorf("%s: fragments take the mark of a denied connection away: %d have it, %d do not", familyName(v6), with, without)
		}
		if line.reply(lostTime) {
			t.Errorf("%s: an answer arrives in a connection that is not allowed any more", familyName(v6))
		}
		line.server.Close()
	}
}

// ruled has rules for some pods, and all others open.
func (g *policedWorld) ruled(rules map[*livePod][]intent.Rule) {
	g.t.Helper()
	g.pods = map[*livePod]governance{}
	g.known.Rules, g.known.Subjects, g.governed = nil, nil, map[*livePod]bool{}
	for p, list := range rules {
		s := intent.Subject{Key: p.port.SubjectKey()}
		for _, r := range list {
			g.known.Rules, s.Rules = append(g.known.Rules, r), append(s.Rules, r.ID)
		}
		g.known.Subjects, g.governed[p] = append(g.known.Subjects, s), true
	}
	g.set(g.services...)
}

// A denied sender does not reach others by link-local addresses, which no policy names.
func TestPolicyLinkLocal(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	g.services = nil
	pod, near := g.nodes[0].pods[0], g.nodes[0].pods[1]
	s := newSmuggler(t, g, pod, near)
	for _, p := range []*livePod{pod, near} {
		for _, a := range p.port.Addresses {
			g.known.Peers = append(g.known.Peers, intent.Peer{Space: intent.DefaultRouterName, Address: a, Groups: []string{p.name()}})
		}
	}
	send := func(src, dst netip.Addr) bool {
		text := s.text()
		return s.arrives(t, text, probe.UDP(netip.AddrPortFrom(src, 7000), netip.AddrPortFrom(dst, 7001), text))
	}
	gateway := func(when string) {
		t.Helper()
		for _, p := range []*livePod{pod, near} {
			if out, err := ping(p.Namespace, datapath.GatewayMAC.LinkLocal().String()+"%eth0", ""); err != nil {
				t.Errorf("%s: %s does not reach its gateway: %s", when, p.name(), out)
			}
			if out, err := ping(g.nodes[0].Namespace, p.port.MAC.LinkLocal().String()+"%coelan-gw0", ""); err != nil {
				t.Errorf("%s: the gateway does not reach %s: %s", when, p.name(), out)
			}
		}
	}
	from, to := pod.port.MAC.LinkLocal(), near.port.MAC.LinkLocal()
	g.ruled(nil)
	if !send(from, to) {
		t.Error("nothing is governed: a datagram between link-local addresses does not arrive")
	}
	gateway("nothing is governed")
	deny := intent.Rule{
		ID: "deny", Policy: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "guard"}, Number: 1, Tier: intent.AdminTier, Action: intent.Deny,
	}
	in, out := deny, deny
	in.Direction, in.Groups = intent.Ingress, []string{pod.name()}
	out.Direction, out.Groups = intent.Egress, []string{near.name()}
	for name, rules := range map[string]map[*livePod][]intent.Rule{"receiver": {near: {in}}, "sender": {pod: {out}}} {
		g.ruled(rules)
		for what, ends := range map[string][2]netip.Addr{
			"IPv4": {pod.port.Addresses[0], near.port.Addresses[0]}, "IPv6": {pod.port.Addresses[1], near.port.Addresses[1]},
			"from link-local": {from, near.port.Addresses[1]}, "to link-local": {pod.port.Addresses[1], to}, "link-local": {from, to},
		} {
			if send(ends[0], ends[1]) {
				t.Errorf("the %s is governed: a datagram arrives, %s", name, what)
			}
		}
		gateway("the " + name + " is governed")
	}
}

// A pod that may send to few does not reach the port beside it under the address of one of them.
func TestPolicyOfAnothersAddress(t *testing.T) {
	g := newPoliced(t, intent.NativeServices)
	g.services = nil
	pod, near := g.nodes[0].pods[0], g.nodes[0].pods[1]
	s := newSmuggler(t, g, pod, near)
	for i, other := range []string{"192.0.2.1", "2001:db8::1"} {
		src, dst := pod.port.Addresses[i], netip.MustParseAddr(other)
		send := func() bool {
			text := s.text()
			return s.arrives(t, text, probe.UDP(netip.AddrPortFrom(src, 7000), netip.AddrPortFrom(dst, 7001), text))
		}
		g.govern(map[*livePod]governance{pod: {}, near: {}})
		if !send() {
			t.Errorf("nothing is governed: a datagram to %s by way of a neighbour does not arrive", other)
		}
		g.govern(map[*livePod]governance{pod: {egress: []string{other}}})
		if send() {
			t.Errorf("a datagram to %s, which is allowed, arrives at another port", other)
		}
		g.govern(map[*livePod]governance{pod: {egress: []string{near.address(i == 1)}}})
		if _, _, err := g.ask(pod.Namespace, "udp", direct(near)(answerPort, i == 1), talkTime); err != nil {
			t.Errorf("what is allowed does not arrive: %v", err)
		}
	}
}
