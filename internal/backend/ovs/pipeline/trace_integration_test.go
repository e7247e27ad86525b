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

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// Whatever the State and the packet, Open vSwitch does with it what the oracle says: it reaches the
// destination that it should, in the form and with as many recirculations as it should, or is
// dropped by a flow that names the reason.
func TestTraceAgainstOracle(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ends := map[string]int{}
	checkUntilSeen(t, ends, []string{"dropped", "answered", "port", "host", "tunnel"}, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		state := drawState(t)
		if err := tr.load(ctx, state); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			p := drawPacket(t, state)
			want := oracle{state}.expect(p)
			ends[want.end()]++
			got, text, err := tr.trace(ctx, p)
			if got.Port != 0 && (got.Src != p.src || got.Dst != p.dst) {
				t.Fatalf("%s: sent from %s to %s\n%s", traceFlow(p), got.Src, got.Dst, text)
			}
			got.EthSrc, got.Src, got.Dst, got.VNI = intent.MAC{}, netip.Addr{}, netip.Addr{}, 0
			if err != nil {
				t.Fatalf("%s: %v\n%s", traceFlow(p), err, text)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("%s\n(-oracle +switch):\n%s\n%s", traceFlow(p), diff, text)
			}
		}
	})
}

// drawState has this node and up to three others, and up to four ports here.
func drawState(t *rapid.T) *intent.State {
	families := rapid.SampledFrom([]string{"4", "6", "46"}).Draw(t, "families")
	v4, v6 := strings.Contains(families, "4"), strings.Contains(families, "6")
	encapsulation := rapid.SampledFrom([]intent.Encapsulation{intent.VXLAN, intent.Geneve, intent.NoEncap}).Draw(t, "encapsulation")
	o := intent.Objects{
		Local: intent.Local{Node: "n0", Encapsulation: encapsulation},
	}
	for n := range rapid.SampledFrom([]int{3, 2, 4, 1}).Draw(t, "nodes") {
		node := intent.Node{Name: fmt.Sprint("n", n)}
		if v4 {
			node.Addresses = append(node.Addresses, netip.AddrFrom4([4]byte{192, 168, 33, byte(n + 1)}))
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n), 0}), 24)
			node.Subnets = append(node.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
		}
		if v6 {
			node.Addresses = append(node.Addresses, netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x33, 15: byte(n + 1)}))
			p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(n)}), 64)
			node.Subnets = append(node.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
		}
		o.Nodes = append(o.Nodes, node)
	}
	if encapsulation.Tunneled() {
		o.Local.TunnelIP = o.Nodes[0].Addresses[rapid.IntRange(0, len(o.Nodes[0].Addresses)-1).Draw(t, "underlay")]
	}
	for i := range rapid.SampledFrom([]int{4, 3, 2, 0}).Draw(t, "ports") {
		p := intent.Port{
			ID: fmt.Sprint(i, "/eth0"), Namespace: "default", Pod: fmt.Sprint("web-", i), Interface: "eth0",
			Node: "n0", Network: "default",
		}
		last := byte(2 + i)
		if v4 {
			p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{10, 244, 0, last}))
		}
		if v6 {
			p.Addresses = append(p.Addresses, netip.AddrFrom16([16]byte{0: 0xfd, 15: last}))
		}
		p.MAC = reserved.PodMAC(p.Addresses[0])
		o.Ports = append(o.Ports, p)
	}
	if rapid.Bool().Draw(t, "policies are enforced") {
		o.Local.PolicyMode, o.Subjects = intent.EnforcedPolicies, []intent.Subject{{Key: intent.PodSubject("")}}
	}
	return stateOf(t, o)
}

// drawPacket draws a packet from what means something in the State, and some
// that does not.
func drawPacket(t *rapid.T, s *intent.State) packet {
	ports := slices.Collect(s.Ports().All())
	macs := []intent.MAC{datapath.RouterMAC, datapath.RouterMAC, datapath.GatewayMAC, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x33, 0x33, 0, 0, 0, 1}, {2, 2, 2, 2, 2, 2}}
	addresses := []netip.Addr{
		netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"),
		netip.MustParseAddr("ff02::1"), datapath.GatewayMAC.LinkLocal(), netip.MustParseAddr("10.244.0.200"), netip.MustParseAddr("fd00::200"),
	}
	for n := range s.Nodes().All() {
		addresses = append(addresses, n.Addresses...)
		for _, sn := range n.Subnets {
			addresses = append(addresses, sn.Gateway, sn.Gateway.Next(), sn.Gateway.Next())
		}
	}
	for _, p := range ports {
		macs = append(macs, p.MAC)
		addresses = append(addresses, p.Addresses...)
		addresses = append(addresses, p.MAC.LinkLocal())
	}
	in := []uint32{1, 1, 2, 2, 19}
	for _, p := range ports {
		in = append(in, ofPort(p.ID), ofPort(p.ID))
	}
	p := packet{
		inPort: rapid.SampledFrom(in).Draw(t, "in"),
		ethSrc: rapid.SampledFrom(macs).Draw(t, "eth src"), ethDst: rapid.SampledFrom(macs).Draw(t, "eth dst"),
		kind:   rapid.SampledFrom([]string{"ip", "ip", "ip", "ip", "arp-request", "solicit", "ip", "arp-reply", "advertise"}).Draw(t, "kind"),
		src:    rapid.SampledFrom(addresses).Draw(t, "src"),
		target: rapid.SampledFrom(family(addresses, false)).Draw(t, "target"),
		link:   rapid.SampledFrom(append(macs, intent.MAC{})).Draw(t, "link"),
		ttl:    rapid.SampledFrom([]uint8{64, 64, 64, 255, 1, 0}).Draw(t, "ttl"),
		reply:  rapid.Bool().Draw(t, "reply"), marked: rapid.Bool().Draw(t, "marked"),
	}
	// Most packets are what their port may send and for the router, or nearly all would be dropped.
	if p.kind == "ip" && rapid.IntRange(0, 4).Draw(t, "routed") < 4 {
		p.ethDst = datapath.RouterMAC
	}
	if i := slices.IndexFunc(ports, func(o intent.Port) bool { return ofPort(o.ID) == p.inPort }); i >= 0 && rapid.IntRange(0, 4).Draw(t, "genuine") < 4 {
		p.ethSrc, p.link = ports[i].MAC, ports[i].MAC
		p.src = rapid.SampledFrom(append(slices.Clone(ports[i].Addresses), ports[i].Addresses...)).Draw(t, "own")
	}
	if p.kind == "solicit" && rapid.IntRange(0, 4).Draw(t, "near") < 4 {
		p.ttl = 255
	}
	is4 := p.kind == "arp-request" || p.kind == "arp-reply" || p.kind == "ip" && p.src.Is4()
	if p.src.Is4() != is4 {
		p.src = rapid.SampledFrom(family(addresses, is4)).Draw(t, "src again")
	}
	p.dst = rapid.SampledFrom(family(addresses, is4)).Draw(t, "dst")
	if rapid.IntRange(0, 30).Draw(t, "tag") == 7 {
		p.vlan = 7
	}
	if p.inPort == datapath.TunnelPort {
		p.tunSrc = rapid.SampledFrom(addresses[4:]).Draw(t, "tunnel src")
		if n, ok := s.Nodes().Get("n1"); ok && rapid.IntRange(0, 4).Draw(t, "from n1") < 4 {
			p.tunSrc = rapid.SampledFrom(n.Addresses).Draw(t, "node's")
		}
		p.vni = rapid.SampledFrom([]uint32{1, 1, 77, 5}).Draw(t, "vni")
	}
	return p
}

// family are the IPv4 addresses of a list, or the IPv6 addresses.
func family(list []netip.Addr, is4 bool) (some []netip.Addr) {
	for _, a := range list {
		if a.Is4() == is4 {
			some = append(some, a)
		}
	}
	return some
}
