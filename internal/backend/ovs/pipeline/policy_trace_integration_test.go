// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
)

// judgedPacket is the first packet of a connection between two ports, or of one of them
// and an address outside.
type judgedPacket struct {
	from, to *intent.Port // nil: outside
	src, dst netip.Addr
	protocol uint8
	port     uint16 // of ICMP: type and code
}

func drawJudged(t *rapid.T, s *intent.State) judgedPacket {
	var ports []*intent.Port
	for p := range s.Ports().All() {
		ports = append(ports, &p)
	}
	family := rapid.IntRange(0, 1).Draw(t, "family")
	p := judgedPacket{from: rapid.SampledFrom(append(ports, nil)).Draw(t, "from")}
	others := []*intent.Port{}
	if p.from != nil {
		others = append(others, nil)
	}
	for _, o := range ports {
		if o != p.from {
			others = append(others, o)
		}
	}
	p.to = rapid.SampledFrom(others).Draw(t, "to")
	n, _ := s.LocalNode()
	outside := []netip.Addr{netip.MustParseAddr([]string{"8.8.8.8", "2001:db8::8"}[family]), netip.MustParseAddr([]string{"10.9.9.9", "fd00:99::9"}[family])}
	if p.from != nil {
		outside = append(outside, n.Addresses[family], n.Subnets[family].Gateway)
	}
	address := func(of *intent.Port) netip.Addr {
		if of == nil {
			return rapid.SampledFrom(outside).Draw(t, "outside")
		}
		return of.Addresses[family]
	}
	p.src, p.dst = address(p.from), address(p.to)
	icmp := []uint8{1, 58}[family]
	p.protocol = rapid.SampledFrom([]uint8{6, 6, 6, 17, icmp, 47, 132}).Draw(t, "protocol")
	switch p.protocol {
	case icmp:
		p.port = rapid.SampledFrom([]uint16{evaluate.ICMP(8, 0), evaluate.ICMP(1, 4), evaluate.ICMP(1, 3), evaluate.ICMP(13, 1)}).Draw(t, "type and code")
	case 6, 17, 132:
		p.port = rapid.SampledFrom([]uint16{80, 81, 69, 70, 90, 91, 53, 8080}).Draw(t, "port")
	}
	return p
}

// flow is the packet as ofproto/trace takes it.
func (p judgedPacket) flow() string {
	in, mac := datapath.GatewayPort, datapath.GatewayMAC
	if p.from != nil {
		in, mac = ofPort(p.from.ID), p.from.MAC
	}
	to := datapath.RouterMAC
	if p.from != nil && p.to != nil {
		to = p.to.MAC
	}
	f := fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,", in, mac, to)
	name := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp"}[p.protocol]
	kind, addresses := name, "nw_src=%s,nw_dst=%s"
	if p.src.Is6() {
		kind, addresses = strings.TrimSuffix(name, "6")+"6", "ipv6_src=%s,ipv6_dst=%s"
	}
	if name == "" {
		kind = map[bool]string{true: "ip", false: "ipv6"}[p.src.Is4()] + fmt.Sprint(",nw_proto=", p.protocol)
	}
	f += kind + "," + fmt.Sprintf(addresses, p.src, p.dst) + ",nw_ttl=64"
	switch p.protocol {
	case 1:
		f += fmt.Sprintf(",icmp_type=%d,icmp_code=%d", p.port>>8, p.port&0xff)
	case 58:
		f += fmt.Sprintf(",icmpv6_type=%d,icmpv6_code=%d", p.port>>8, p.port&0xff)
	case 6, 17, 132:
		f += fmt.Sprintf(",%s_src=1234,%s_dst=%d", name, name, p.port)
	}
	return f
}

// expected is what policies decide, and in which direction.
func (p judgedPacket) expected(s *intent.State) (evaluate.Verdict, intent.Direction) {
	c := evaluate.Connection{Space: intent.DefaultRouterName, Source: p.src, Destination: p.dst, Protocol: p.protocol, Port: p.port}
	v := evaluate.Verdict{Allowed: true}
	if p.from != nil {
		if v = evaluate.Egress(s, *p.from, c); !v.Allowed || p.to == nil {
			return v, intent.Egress
		}
	}
	if p.to != nil {
		v = evaluate.Ingress(s, *p.to, c)
	}
	return v, intent.Ingress
}

// Whatever the rules, subjects and peers, and the packet, the flows decide on a real Open vSwitch
// as one rule after the other would, and the flow that decides tells which it was.
func TestPoliciesTrace(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ends := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		o, policies := smallWorld(), drawSmall(t)
		if rapid.Bool().Draw(t, "native") {
			o.Local.ServiceMode = intent.NativeServices
		}
		o.Peers, o.Subjects = policies.Peers, policies.Subjects
		for _, r := range policies.Rules {
			if r.Tier == intent.SecurityGroupTier {
				r.Action = intent.Allow // the only one that it has
			}
			o.Rules = append(o.Rules, r)
		}
		state := stateOf(t, o)
		if err := tr.load(ctx, state); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			p := drawJudged(t, state)
			want, direction := p.expected(state)
			text, err := tr.vswitchd.Call(ctx, "ofproto/trace", tr.name, p.flow(), "--ct-next", "trk,new", "--ct-next", "trk,new")
			if err != nil {
				t.Fatal(err)
			}
			last, denied := tr.verdict(text)
			sent := outputLine.MatchString(text)
			switch {
			case want.Allowed && (denied || !sent), !want.Allowed && (!denied || sent):
				t.Fatalf("%s: want %+v in direction %d, got %+v\n%s", p.flow(), want, direction, last, text)
			case !denied && want.Rule.ID != "" && (last == nil || last.Direction != direction || !sameRank(state, last.RuleID, want.Rule)):
				t.Fatalf("%s: allowed by %+v, want %+v in direction %d\n%s", p.flow(), last, want, direction, text)
			case denied && (last.Direction != direction || last.Tier != want.Tier):
				t.Fatalf("%s: denied by %#v, want %+v in direction %d\n%s", p.flow(), *last, want, direction, text)
			case denied && want.Rule.ID == "" && last.String() != want.Reason:
				t.Fatalf("%s: %s, want %s\n%s", p.flow(), last, want.Reason, text)
			case denied && want.Rule.ID != "" && !sameRank(state, last.RuleID, want.Rule):
				t.Fatalf("%s: denied by %+v, want %+v\n%s", p.flow(), last, want, text)
			}
			ends[fmt.Sprintf("tier %d, allowed: %v, rule: %v", want.Tier, want.Allowed, want.Rule.ID != "")]++
		}
	})
	t.Logf("packets by what decided: %v", ends)
	if len(ends) < 9 {
		t.Errorf("too few ends: %v", ends)
	}
}

// verdict is the last one that a trace meets, and whether it is the end.
func (tr *tracer) verdict(text string) (last *Verdict, denied bool) {
	for _, match := range cookieText.FindAllStringSubmatch(text, -1) {
		cookie, _ := strconv.ParseUint(match[1], 16, 64)
		if m, ok := tr.compiler.Explain(cookie); ok && m.Verdict != nil {
			last = m.Verdict
			denied = m.Drops()
		}
	}
	return last, denied
}

// sameRank says whether the rule of an ID decides where another one does, and as that does.
func sameRank(s *intent.State, id string, o intent.Rule) bool {
	r, ok := s.Rules().Get(id)
	return ok && r.Tier == o.Tier && r.Direction == o.Direction && r.Priority == o.Priority && r.Action == o.Action &&
		(r.Number == o.Number || strings.HasPrefix(string(r.Policy.Kind), "NetworkPolicy"))
}

// Open vSwitch takes 9,000 rules of one port and one Port with flows of the maximum message length,
// and decides by each of them.
func TestManyRulesOfOnePortTrace(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o := manyPolicies(1, 9000, 9000, 0, 0)
	o.Nodes = []intent.Node{{Name: "n0", Subnets: []intent.Subnet{{Network: "default", Prefix: netip.MustParsePrefix("10.0.0.0/16"), Gateway: address4(10, 0, 255, 1)}}}}
	groups := map[netip.Addr]string{address4(10, 1, 0, 1): "g0", address4(10, 1, 0, 2): "g4567", address4(10, 1, 0, 3): "g8999", address4(10, 1, 0, 4): "g9000"}
	for a, g := range groups {
		o.Peers = append(o.Peers, intent.Peer{Space: intent.DefaultRouterName, Address: a, Groups: []string{g}})
	}
	store := storeOf(t, o)
	start := time.Now()
	if err := tr.load(ctx, store.State()); err != nil {
		t.Fatal(err)
	}
	t.Logf("9,000 rules are in the switch after %v", time.Since(start))
	server, _ := store.State().Ports().Get(largePort(0).ID)
	for a, g := range groups {
		for _, port := range []uint16{80, 81} {
			p := judgedPacket{to: &server, src: a, dst: server.Addresses[0], protocol: 6, port: port}
			text, err := tr.vswitchd.Call(ctx, "ofproto/trace", tr.name, p.flow(), "--ct-next", "trk,new")
			if err != nil {
				t.Fatal(err)
			}
			last, denied := tr.verdict(text)
			switch allowed := port == 80 && g != "g9000"; {
			case last == nil || denied == allowed:
				t.Errorf("%s, port %d: %v\n%s", g, port, last, text)
			case allowed && last.Policies[0].Name != "p"+g[1:]:
				t.Errorf("%s, port %d: %s", g, port, last)
			}
		}
	}
}

// In a private Router peers are known by the addresses that they have there, and by their
// node addresses where these are used. Those of another Router are no peers, though they
// have the same addresses.
func TestPolicySpaces(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, mode := range []intent.ServiceMode{intent.NativeServices, intent.KubeProxy} {
		t.Run(string(mode), func(t *testing.T) {
			o := manyNetworks(2, 2)
			o.Local.ServiceMode, o.Local.PolicyMode = mode, intent.EnforcedPolicies
			policy := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "red"}
			port := func(p uint16) []intent.PortRange { return []intent.PortRange{{Protocol: 6, First: p, Last: p}} }
			for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
				for i, g := range []string{"own", "node"} {
					o.Rules = append(o.Rules, intent.Rule{
						ID: fmt.Sprint(d, g), Policy: policy, Number: i + 1, Direction: d, Tier: intent.NetworkPolicyTier, Action: intent.Allow, Groups: []string{g}, Ports: port(uint16(80 + i)),
					})
				}
			}
			for i := range o.Ports {
				o.Ports[i].UID = o.Ports[i].Pod
				o.Subjects = append(o.Subjects, intent.Subject{
					Key: o.Ports[i].SubjectKey(), Rules: []string{"1node", "1own", "2node", "2own"},
					IngressIsolation: []intent.PolicyRef{policy}, EgressIsolation: []intent.PolicyRef{policy},
				})
			}
			for _, p := range o.Ports[:2] {
				// Of the first network; those of the second have the same addresses.
				o.Peers = append(o.Peers, intent.Peer{Space: "net0", Address: p.Addresses[0], Groups: []string{"own"}}, intent.Peer{Space: intent.DefaultRouterName, Address: p.NodeAddresses[0], Groups: []string{"node"}})
			}
			if err := tr.load(ctx, stateFrom(t, o)); err != nil {
				t.Fatal(err)
			}
			for _, tc := range []struct {
				name    string
				from    intent.Port
				to      netip.Addr
				port    int
				allowed bool
			}{
				{"own addresses", o.Ports[0], o.Ports[1].Addresses[0], 80, true},
				{"own addresses, the other rule", o.Ports[0], o.Ports[1].Addresses[0], 81, false},
				{"another router's same addresses", o.Ports[2], o.Ports[3].Addresses[0], 80, false},
				{"node address", o.Ports[0], o.Ports[1].NodeAddresses[0], 81, true},
				{"node address, the other rule", o.Ports[0], o.Ports[1].NodeAddresses[0], 80, false},
			} {
				mac := datapath.RouterMAC
				flow := fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,tcp,nw_src=%s,nw_dst=%s,nw_ttl=64,tcp_dst=%d", ofPort(tc.from.ID), tc.from.MAC, mac, tc.from.Addresses[0], tc.to, tc.port)
				text, err := tr.vswitchd.Call(ctx, "ofproto/trace", tr.name, flow, "--ct-next", "trk,new", "--ct-next", "trk,new", "--ct-next", "trk,new")
				if err != nil {
					t.Fatal(err)
				}
				last, denied := tr.verdict(text)
				if sent := outputLine.MatchString(text); last == nil || sent != tc.allowed || denied == tc.allowed {
					t.Errorf("%s: sent: %v, %v\n%s", tc.name, sent, last, text)
				}
			}
		})
	}
}
