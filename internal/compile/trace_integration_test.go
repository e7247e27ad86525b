// SPDX-License-Identifier: Apache-2.0

//go:build integration

package compile

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/unixctl"
	"coelan.io/coelan/openflow"
)

// tracer is an Open vSwitch with a port of each kind that tells what it would do
// with a packet.
type tracer struct {
	vswitchd *unixctl.Client
	bridge   *bridge.Bridge
	compiler *Compiler
}

func newTracer(t *testing.T) *tracer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br-int"); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"add-port", "br-int", "tun0", "--", "set", "interface", "tun0", "type=vxlan", "ofport_request=1", "options:remote_ip=flow", "options:key=flow",
	}
	for _, port := range []int{2, 16, 17, 18, 19} {
		name := fmt.Sprint("p", port)
		args = append(args, "--", "add-port", "br-int", name, "--", "set", "interface", name, "type=internal", fmt.Sprint("ofport_request=", port))
	}
	if _, err := ovs.Vsctl(ctx, args...); err != nil {
		t.Fatal(err)
	}
	conn, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br-int"), openflow.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &tracer{
		vswitchd: unixctl.Vswitchd(ovs.Dir),
		compiler: New(),
		bridge: bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) {
			return conn, nil
		}}),
	}
}

func (tr *tracer) load(ctx context.Context, state *intent.State) error {
	res, err := tr.bridge.Sync(ctx, tr.compiler.Compile(state))
	if err == nil && len(res.Conflicts) > 0 {
		return fmt.Errorf("conflicts: %v", res.Conflicts)
	}
	return err
}

// trace asks Open vSwitch for the packet's outcome.
func (tr *tracer) trace(ctx context.Context, p packet) (outcome, string, error) {
	ct := "trk,new"
	if p.reply {
		ct = "trk,est,rpl"
	}
	text, err := tr.vswitchd.Call(ctx, "ofproto/trace", "br-int", traceFlow(p), "--ct-next", ct)
	if err != nil {
		return outcome{}, text, err
	}
	return tr.read(text)
}

// traceFlow is a packet as ofproto/trace takes it.
func traceFlow(p packet) string {
	f := []string{fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", p.inPort, p.ethSrc, p.ethDst)}
	if p.inPort == intent.TunnelPort {
		kind := "tun"
		if p.tunSrc.Is6() {
			kind = "tun_ipv6"
		}
		f = append(f, fmt.Sprintf("tun_id=%d,%s_src=%s", p.vni, kind, p.tunSrc))
	}
	if p.marked {
		f = append(f, "ct_mark=1")
	}
	switch {
	case p.kind == "arp-request" || p.kind == "arp-reply":
		op := map[string]int{"arp-request": 1, "arp-reply": 2}[p.kind]
		f = append(f, fmt.Sprintf("arp,arp_op=%d,arp_sha=%s,arp_spa=%s,arp_tpa=%s", op, p.link, p.src, p.dst))
	case p.kind == "solicit":
		f = append(f, fmt.Sprintf("icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,nd_target=%s,nd_sll=%s", p.src, p.dst, p.ttl, p.target, p.link))
	case p.kind == "advertise":
		f = append(f, fmt.Sprintf("icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,nd_target=%s", p.src, p.dst, p.ttl, p.target))
	case p.src.Is4():
		f = append(f, fmt.Sprintf("tcp,nw_src=%s,nw_dst=%s,nw_ttl=%d,tcp_src=1234,tcp_dst=80", p.src, p.dst, p.ttl))
	default:
		f = append(f, fmt.Sprintf("tcp6,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,tcp_src=1234,tcp_dst=80", p.src, p.dst, p.ttl))
	}
	if p.tagged { // after all fields, or they lack their Ethernet type
		f = append(f, "vlan_tci=0x1007")
	}
	return strings.Join(f, ",")
}

var (
	outputLine = regexp.MustCompile(`-> output port is (\d+)`)
	cookieText = regexp.MustCompile(`cookie 0x([0-9a-f]+)`)
	fieldText  = regexp.MustCompile(`([a-z0-9_]+)=([^,\s]+)`)
)

// read finds the outcome in what ofproto/trace printed. A packet that is dropped
// must have been so by a flow that tells why.
func (tr *tracer) read(text string) (outcome, string, error) {
	var o outcome
	o.Recircs = strings.Count(text, "resume conntrack")
	o.Commit = strings.Contains(text, "ct(commit,")
	fields := finalFields(text)
	ethDst, err := intent.ParseMAC(fields["dl_dst"])
	if err != nil {
		return o, text, err
	}
	switch port := outputLine.FindStringSubmatch(text); {
	case strings.Contains(text, "\n    IN_PORT"):
		o.Answer, err = intent.ParseMAC(fields["dl_src"])
		return o, text, err
	case port == nil || strings.Contains(text, "skipping output to input port"):
		o.Drop = true
		cookies := cookieText.FindAllStringSubmatch(text, -1)
		cookie, _ := strconv.ParseUint(cookies[len(cookies)-1][1], 16, 64)
		if m, ok := tr.compiler.Explain(cookie); !ok || !m.Drops() {
			return o, text, fmt.Errorf("dropped without a reason: cookie %#x means %+v", cookie, m)
		}
		return o, text, nil
	default:
		n, _ := strconv.ParseUint(port[1], 10, 32)
		o.Port, o.EthDst = uint32(n), ethDst
	}
	ttl, _ := strconv.ParseUint(fields["nw_ttl"], 10, 8)
	o.TTL = uint8(ttl)
	if o.Port == intent.TunnelPort {
		for _, name := range []string{"tun_dst", "tun_ipv6_dst"} {
			if a, err := netip.ParseAddr(fields[name]); err == nil && !a.IsUnspecified() {
				o.TunDst = a
			}
		}
	}
	return o, text, nil
}

// finalFields are those of the packet when it leaves.
func finalFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Flow: ") && (!strings.HasPrefix(line, "Final flow: ") || strings.Contains(line, "unchanged")) {
			continue
		}
		for _, f := range fieldText.FindAllStringSubmatch(line, -1) {
			fields[f[1]] = f[2]
		}
	}
	return fields
}

// Whatever the State and the packet, Open vSwitch does with it what the oracle
// says: it reaches whom it should, as it should, with as many recirculations as
// it should, or is dropped by a flow that tells why.
func TestTraceAgainstOracle(t *testing.T) {
	tr := newTracer(t)
	ends := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
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
			if err != nil {
				t.Fatalf("%s: %v\n%s", traceFlow(p), err, text)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("%s\n(-oracle +switch):\n%s\n%s", traceFlow(p), diff, text)
			}
		}
	})
	t.Logf("packets by end: %v", ends)
	for _, end := range []string{"dropped", "answered", "port", "host", "tunnel"} {
		if ends[end] == 0 {
			t.Errorf("no packet was %s: the cases say nothing", end)
		}
	}
}

// drawState has this node and up to three others, and up to four ports here on
// two networks that know nothing of each other and use the same addresses.
func drawState(t *rapid.T) *intent.State {
	families := rapid.SampledFrom([]string{"4", "6", "46"}).Draw(t, "families")
	v4, v6 := strings.Contains(families, "4"), strings.Contains(families, "6")
	encapsulation := rapid.SampledFrom([]intent.Encapsulation{intent.VXLAN, intent.Geneve, intent.NoEncap}).Draw(t, "encapsulation")
	o := intent.Objects{
		Local:    intent.Local{Node: "n0", Encapsulation: encapsulation},
		Networks: []intent.Network{{Name: "blue", ID: 7, VNI: 77, Router: "red"}},
		Routers:  []intent.Router{{Name: "red", ID: 9}},
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
	if encapsulation.Tunnelled() {
		o.Local.TunnelIP = o.Nodes[0].Addresses[rapid.IntRange(0, len(o.Nodes[0].Addresses)-1).Draw(t, "underlay")]
	}
	for i := range rapid.SampledFrom([]int{4, 3, 2, 0}).Draw(t, "ports") {
		p := intent.Port{
			ID: fmt.Sprint(i, "/eth0"), Namespace: "default", Pod: fmt.Sprint("web-", i), Interface: "eth0",
			Node: "n0", Network: "default", OFPort: intent.FirstPodPort + uint32(i),
		}
		last := byte(2 + i)
		if i == 3 {
			p.Network, last = "blue", 2 // the addresses of the first port
		}
		if v4 {
			p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{10, 244, 0, last}))
		}
		if v6 {
			p.Addresses = append(p.Addresses, netip.AddrFrom16([16]byte{0: 0xfd, 15: last}))
		}
		p.MAC = intent.PodMAC(p.Addresses[0])
		o.Ports = append(o.Ports, p)
	}
	return stateOf(t, o)
}

// drawPacket draws a packet from what means something in the State, and some
// that does not.
func drawPacket(t *rapid.T, s *intent.State) packet {
	ports := slices.Collect(s.Ports().All())
	macs := []intent.MAC{intent.RouterMAC, intent.RouterMAC, intent.GatewayMAC, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x33, 0x33, 0, 0, 0, 1}, {2, 2, 2, 2, 2, 2}}
	addresses := []netip.Addr{
		netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"),
		netip.MustParseAddr("ff02::1"), intent.GatewayMAC.LinkLocal(), netip.MustParseAddr("10.244.0.200"), netip.MustParseAddr("fd00::200"),
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
		in = append(in, p.OFPort, p.OFPort)
	}
	p := packet{
		inPort: rapid.SampledFrom(in).Draw(t, "in"),
		tagged: rapid.IntRange(0, 30).Draw(t, "tag") == 7,
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
		p.ethDst = intent.RouterMAC
	}
	if i := slices.IndexFunc(ports, func(o intent.Port) bool { return o.OFPort == p.inPort }); i >= 0 && rapid.IntRange(0, 4).Draw(t, "genuine") < 4 {
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
	if p.inPort == intent.TunnelPort {
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
