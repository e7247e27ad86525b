// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/openflow"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var remote = addr("192.168.33.12")

// state is a node with a pod of the default Network on port 16 and one of a private Router on port
// 17, which has node addresses, and another node.
func state(t testing.TB) pipeline.Input {
	t.Helper()
	subnet := func(node int) []intent.Subnet {
		four, six := fmt.Sprintf("10.244.%d.0/24", node), fmt.Sprintf("fd00:%d::/64", node)
		return []intent.Subnet{
			{Network: "default", Prefix: netip.MustParsePrefix(four), Gateway: netip.MustParsePrefix(four).Addr().Next()},
			{Network: "default", Prefix: netip.MustParsePrefix(six), Gateway: netip.MustParsePrefix(six).Addr().Next()},
		}
	}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local: intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11"), MTU: 1450},
			Nodes: []intent.Node{
				{Name: "n1", Addresses: []netip.Addr{addr("192.168.33.11")}, Subnets: subnet(1)},
				{Name: "n2", Addresses: []netip.Addr{remote}, Subnets: subnet(2), MTU: 1300},
			},
			Routers: []intent.Router{{Name: "default", ID: 1, VNI: 1}, {Name: "red", ID: 20, VNI: 20}},
			Networks: []intent.Network{
				{Name: "default", ID: 1, VNI: 1, Router: "default"},
				{Name: "red", ID: 10, VNI: 10, Router: "red", Subnets: []intent.NetworkSubnet{
					{Prefix: netip.MustParsePrefix("10.60.0.0/24"), Gateway: addr("10.60.0.1")},
					{Prefix: netip.MustParsePrefix("fd60::/64"), Gateway: addr("fd60::1")},
				}},
			},
			Ports: []intent.Port{
				{
					ID: "a/eth0", Network: "default", Node: "n1", MAC: intent.MAC{2, 16},
					Addresses: []netip.Addr{addr("10.244.1.2"), addr("fd00:1::2")},
				},
				{
					ID: "b/eth0", Network: "red", Node: "n1", MAC: intent.MAC{2, 17},
					Addresses:     []netip.Addr{addr("10.60.0.9"), addr("fd60::9")},
					NodeAddresses: []netip.Addr{addr("10.244.1.50"), addr("fd00:1::50")},
				},
			},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline.Input{State: s, Numbers: pipeline.NewNumbers(map[string]uint32{"a/eth0": 16, "b/eth0": 17}, nil)}
}

// udp is a frame with a datagram of a size.
func udp(src, dst netip.AddrPort, size int) []byte {
	header, kind := 20, uint16(openflow.EthTypeIPv4)
	if src.Addr().Is6() {
		header, kind = 40, openflow.EthTypeIPv6
	}
	p := make(packet.IP, size)
	if header == 40 {
		p[0], p[6], p[7] = 0x60, openflow.IPProtoUDP, 63
		be.PutUint16(p[4:], uint16(size-40))
		copy(p[8:], src.Addr().AsSlice())
		copy(p[24:], dst.Addr().AsSlice())
	} else {
		p[0], p[8], p[9] = 0x45, 63, openflow.IPProtoUDP
		be.PutUint16(p[2:], uint16(size))
		be.PutUint16(p[4:], 0x1234)
		be.PutUint16(p[6:], dontFragment)
		copy(p[12:], src.Addr().AsSlice())
		copy(p[16:], dst.Addr().AsSlice())
		p.SumHeader()
	}
	be.PutUint16(p[header:], src.Port())
	be.PutUint16(p[header+2:], dst.Port())
	for i := header + 8; i < size; i++ {
		p[i] = byte(i * 7 % 251)
	}
	frame := make([]byte, packet.EthernetLen, packet.EthernetLen+size)
	frame[0], frame[6] = 0x0a, 0x0b
	be.PutUint16(frame[12:], kind)
	return append(frame, p...)
}

// setting changes bytes of the IP packet in a frame.
func setting(frame []byte, at int, values ...byte) []byte {
	frame = slices.Clone(frame)
	copy(frame[packet.EthernetLen+at:], values)
	return frame
}

func ends(src, dst string) (netip.AddrPort, netip.AddrPort) {
	return netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
}

func TestAnswers(t *testing.T) {
	s := state(t)
	for _, tc := range []struct {
		name     string
		src, dst string // as in the packet
		o        pipeline.Oversize
		// mac and from are the receiver's of the answer and its source; quotedSrc and quotedDst
		// what the sender sent.
		mac                  intent.MAC
		from                 string
		quotedSrc, quotedDst string
	}{
		{"a pod", "10.244.1.2:4000", "10.244.2.3:80", pipeline.Oversize{InPort: 16}, intent.MAC{2, 16}, "10.244.1.1", "10.244.1.2:4000", "10.244.2.3:80"},
		{"a pod, IPv6", "[fd00:1::2]:4000", "[fd00:2::3]:80", pipeline.Oversize{InPort: 16}, intent.MAC{2, 16}, "fd00:1::1", "[fd00:1::2]:4000", "[fd00:2::3]:80"},
		{"a pod, by a Service", "10.244.1.2:4001", "10.244.2.3:8080", pipeline.Oversize{
			InPort: 16, Destination: netip.MustParseAddrPort("10.96.0.1:80"), SourcePort: 4000,
		}, intent.MAC{2, 16}, "10.244.1.1", "10.244.1.2:4000", "10.96.0.1:80"},
		{"a tenant", "10.60.0.9:4000", "10.60.0.20:80", pipeline.Oversize{InPort: 17}, intent.MAC{2, 17}, "10.60.0.1", "10.60.0.9:4000", "10.60.0.20:80"},
		{"a tenant, by its node address", "10.244.1.50:4000", "10.244.2.50:80", pipeline.Oversize{InPort: 17}, intent.MAC{2, 17}, "10.60.0.1", "10.60.0.9:4000", "10.244.2.50:80"},
		{"a tenant, IPv6, by a Service", "[fd00:1::50]:4000", "[fd00:2::3]:8080", pipeline.Oversize{
			InPort: 17, Destination: netip.MustParseAddrPort("[fd96::1]:80"),
		}, intent.MAC{2, 17}, "fd60::1", "[fd60::9]:4000", "[fd96::1]:80"},
		{"the node", "10.244.1.1:4000", "10.244.2.3:80", pipeline.Oversize{InPort: datapath.GatewayPort}, datapath.GatewayMAC, "10.244.2.1", "10.244.1.1:4000", "10.244.2.3:80"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, dst := ends(tc.src, tc.dst)
			quotedSrc, quotedDst := ends(tc.quotedSrc, tc.quotedDst)
			o := tc.o
			o.Frame, o.MTU, o.OutPort, o.TunnelDst, o.TunnelID = udp(src, dst, 1400), 1300, datapath.TunnelPort, remote, 1
			before := slices.Clone(o.Frame)
			out, outcome := Handle(s, o)
			if outcome != Answered || len(out) != 1 {
				t.Fatalf("%s, %d packets", outcome, len(out))
			}
			if !bytes.Equal(o.Frame, before) {
				t.Error("the packet has been changed")
			}
			if to := openflow.Output(tc.o.InPort); len(out[0].Actions) != 1 || out[0].Actions[0] != to {
				t.Errorf("actions %v", out[0].Actions)
			}
			frame := out[0].Packet
			if !bytes.Equal(frame[:6], tc.mac[:]) || !bytes.Equal(frame[6:12], datapath.RouterMAC[:]) {
				t.Errorf("from % x to % x", frame[6:12], frame[:6])
			}
			quoted := answerOf(t, frame, addr(tc.from), quotedSrc.Addr(), 1300)
			_, at, _ := quoted.Transport()
			gotSrc := netip.AddrPortFrom(quoted.Source(), be.Uint16(quoted[at:]))
			gotDst := netip.AddrPortFrom(quoted.Destination(), be.Uint16(quoted[at+2:]))
			if gotSrc != quotedSrc || gotDst != quotedDst {
				t.Errorf("quotes %s to %s", gotSrc, gotDst)
			}
		})
	}
}

// TestAnswersForPorts has packets too big for a Port of this node, wherever they come from.
func TestAnswersForPorts(t *testing.T) {
	s := state(t)
	asked := netip.MustParseAddrPort
	back := func(port uint32) []openflow.Action { return []openflow.Action{openflow.Output(port)} }
	for _, tc := range []struct {
		name     string
		src, dst string // as in the packet
		o        pipeline.Oversize
		mac      intent.MAC
		from     string
		// quotedSrc and quotedDst are what the sender sent.
		quotedSrc, quotedDst string
		way                  []openflow.Action
	}{
		{"from a pod here", "10.244.1.2:4000", "10.244.1.3:80", pipeline.Oversize{InPort: 16, OutPort: 18},
			intent.MAC{2, 16}, "10.244.1.1", "10.244.1.2:4000", "10.244.1.3:80", back(16)},
		{"from a tenant's pod here, by node addresses", "10.244.1.50:4000", "10.244.1.51:80", pipeline.Oversize{InPort: 17, OutPort: 18},
			intent.MAC{2, 17}, "10.60.0.1", "10.60.0.9:4000", "10.244.1.51:80", back(17)},
		{"from the node", "10.244.1.1:4000", "10.244.1.2:80", pipeline.Oversize{InPort: datapath.GatewayPort, OutPort: 16},
			datapath.GatewayMAC, "10.244.1.2", "10.244.1.1:4000", "10.244.1.2:80", back(datapath.GatewayPort)},
		{"from outside, by a Service", "[2001:db8::1]:4000", "[fd00:1::2]:8080", pipeline.Oversize{
			InPort: datapath.GatewayPort, OutPort: 16, Destination: asked("[fd96::1]:80"), SourcePort: 4000,
		}, datapath.GatewayMAC, "fd96::1", "[2001:db8::1]:4000", "[fd96::1]:80", back(datapath.GatewayPort)},
		{"from another node", "10.244.2.3:4000", "10.244.1.2:80", pipeline.Oversize{
			InPort: datapath.TunnelPort, OutPort: 16, TunnelSrc: remote, TunnelDst: addr("192.168.33.11"), TunnelID: 1,
		}, datapath.RouterMAC, "10.244.1.1", "10.244.2.3:4000", "10.244.1.2:80", throughTunnel(remote, 1)},
		{"from a tenant's pod on another node", "[fd60::8]:4000", "[fd60::9]:80", pipeline.Oversize{
			InPort: datapath.TunnelPort, OutPort: 17, TunnelSrc: remote, TunnelID: 20,
		}, datapath.RouterMAC, "fd60::1", "[fd60::8]:4000", "[fd60::9]:80", throughTunnel(remote, 20)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, dst := ends(tc.src, tc.dst)
			quotedSrc, quotedDst := ends(tc.quotedSrc, tc.quotedDst)
			o := tc.o
			o.Frame, o.MTU = udp(src, dst, 1400), 1300
			out, outcome := Handle(s, o)
			if outcome != Answered || len(out) != 1 || !slices.Equal(out[0].Actions, tc.way) {
				t.Fatalf("%s, %v", outcome, out)
			}
			frame := out[0].Packet
			if !bytes.Equal(frame[:6], tc.mac[:]) || !bytes.Equal(frame[6:12], datapath.RouterMAC[:]) {
				t.Errorf("from % x to % x", frame[6:12], frame[:6])
			}
			quoted := answerOf(t, frame, addr(tc.from), quotedSrc.Addr(), 1300)
			_, at, _ := quoted.Transport()
			gotSrc := netip.AddrPortFrom(quoted.Source(), be.Uint16(quoted[at:]))
			gotDst := netip.AddrPortFrom(quoted.Destination(), be.Uint16(quoted[at+2:]))
			if gotSrc != quotedSrc || gotDst != quotedDst {
				t.Errorf("quotes %s to %s", gotSrc, gotDst)
			}
		})
	}
	src, dst := ends("10.244.2.3:4000", "10.244.1.2:80")
	for name, o := range map[string]pipeline.Oversize{
		"an endpoint's answer, which a Service's address is the source of": {InPort: 16, OutPort: 17, Reply: true},
		"from a node that is not known":                                    {InPort: datapath.TunnelPort, OutPort: 16},
		"to a port that is not known":                                      {InPort: datapath.TunnelPort, OutPort: 99, TunnelSrc: remote},
	} {
		o.Frame, o.MTU = udp(src, dst, 1400), 1300
		if out, outcome := Handle(s, o); outcome != Dropped || len(out) > 0 {
			t.Errorf("%s: %s, %d packets", name, outcome, len(out))
		}
	}
	o := pipeline.Oversize{Frame: setting(udp(src, dst, 1400), 6, 0, 0), InPort: datapath.TunnelPort, OutPort: 17, MTU: 1300, TunnelSrc: remote}
	out, outcome := Handle(s, o)
	if outcome != Fragmented || len(out) != 2 || !slices.Equal(out[0].Actions, pipeline.Deliver(17)) {
		t.Errorf("a packet that may be cut: %s, %v", outcome, out)
	}
}

// answerOf checks an ICMP error as another implementation reads it, and returns what it quotes.
func answerOf(t *testing.T, frame []byte, from, to netip.Addr, mtu int) packet.IP {
	t.Helper()
	p, ok := parse(frame)
	if !ok || p.Source() != from || p.Destination() != to {
		t.Fatalf("%v % x", ok, frame)
	}
	if from.Is6() {
		h, err := ipv6.ParseHeader(p)
		if err != nil || h.NextHeader != 58 || len(p) > 1280 {
			t.Fatalf("%v %v, %d bytes", h, err, len(p))
		}
		// The sum over the pseudo header and the message with its checksum is 0.
		pseudo := icmp.IPv6PseudoHeader(net.IP(p[8:24]), net.IP(p[24:40]))
		be.PutUint32(pseudo[32:], uint32(len(p)-40))
		if got := packet.Checksum(0, append(pseudo, p[40:]...)); got != 0 {
			t.Errorf("the checksum is wrong by %#x", got)
		}
		m, err := icmp.ParseMessage(58, p[40:])
		if err != nil {
			t.Fatal(err)
		}
		body, ok := m.Body.(*icmp.PacketTooBig)
		if !ok || m.Type != ipv6.ICMPTypePacketTooBig || body.MTU != mtu {
			t.Fatalf("%+v %+v", m, m.Body)
		}
		return body.Data
	}
	h, err := ipv4.ParseHeader(p)
	if err != nil || h.Protocol != 1 || len(p) > 576 || packet.Checksum(0, p[:20]) != 0 || packet.Checksum(0, p[20:]) != 0 {
		t.Fatalf("%v %v, %d bytes", h, err, len(p))
	}
	m, err := icmp.ParseMessage(1, p[20:])
	if err != nil || m.Type != ipv4.ICMPTypeDestinationUnreachable || m.Code != 4 || int(be.Uint16(p[26:])) != mtu {
		t.Fatalf("%+v, %v", m, err)
	}
	quoted := p[28:]
	if packet.Checksum(0, quoted[:quoted.HeaderLen()]) != 0 {
		t.Error("the checksum of the quoted header is wrong")
	}
	return quoted
}

// TestNoAnswer sends packets that no router may answer, and packets of unknown senders.
func TestNoAnswer(t *testing.T) {
	s := state(t)
	src, dst := ends("10.244.1.2:4000", "10.244.2.3:80")
	src6, dst6 := ends("[fd00:1::2]:4000", "[fd00:2::3]:80")
	four, six := udp(src, dst, 1400), udp(src6, dst6, 1400)
	multicast, _ := ends("224.0.0.5:80", "10.244.2.3:80")
	for _, tc := range []struct {
		name  string
		frame []byte
		port  uint32
	}{
		{"a later fragment", setting(four, 6, 0x40, 0x10), 16},
		{"an ICMP error", setting(setting(four, 9, 1), 20, 3), 16},
		{"an ICMPv6 error", setting(setting(six, 6, 58), 40, 1), 16},
		{"to a group", udp(src, multicast, 1400), 16},
		{"from a group", udp(multicast, dst, 1400), 16},
		{"from no address", setting(four, 12, 0, 0, 0, 0), 16},
		{"from no port that is known", four, 99},
		{"no IP", setting(four, -2, 0x08, 0x06), 16},
		{"a packet that says that it is longer", setting(four, 2, 0xff), 16},
		{"a packet whose header is longer", setting(four, 0, 0x4f, 0, 0, 30), 16},
		{"IPv4 in a frame of IPv6", setting(four, -2, 0x86, 0xdd), 16},
		{"no packet", four[:14], 16},
		{"nothing", nil, 16},
	} {
		o := pipeline.Oversize{Frame: tc.frame, InPort: tc.port, MTU: 1300, OutPort: datapath.TunnelPort, TunnelDst: remote}
		if out, outcome := Handle(s, o); outcome != Dropped || len(out) > 0 {
			t.Errorf("%s: %s, %d packets", tc.name, outcome, len(out))
		}
	}
	for _, tc := range []struct {
		name  string
		frame []byte
	}{
		{"an echo request", setting(setting(four, 9, 1), 20, 8)},
		{"an echo request of IPv6", setting(setting(six, 6, 58), 40, 128)},
		{"a first fragment", setting(four, 6, 0x60, 0)},
	} {
		if _, outcome := Handle(s, pipeline.Oversize{Frame: tc.frame, InPort: 16, MTU: 1300, OutPort: datapath.TunnelPort, TunnelDst: remote}); outcome != Answered {
			t.Errorf("%s: %s", tc.name, outcome)
		}
	}
}

// TestFragments cuts packets, also such as are fragments or have options, and puts them together
// again.
func TestFragments(t *testing.T) {
	src, dst := ends("10.244.1.2:4000", "10.244.2.3:80")
	plain := setting(udp(src, dst, 4001), 6, 0, 0)
	options := slices.Concat(plain[:packet.EthernetLen+20], []byte{0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0}, plain[packet.EthernetLen+20:])
	options = setting(options, 0, 0x48)
	options = setting(options, 2, byte((4001+12)>>8), byte((4001+12)&0xff))
	for _, tc := range []struct {
		name  string
		frame []byte
		more  bool
		first int // offset
	}{
		{"a datagram", plain, false, 0},
		{"a first fragment", setting(udp(src, dst, 20+3200), 6, 0x20, 0), true, 0},
		{"a last fragment", setting(plain, 6, 0, 100), false, 800},
		{"options", options, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := pipeline.Oversize{Frame: tc.frame, InPort: 16, MTU: 1300, OutPort: datapath.TunnelPort, TunnelDst: remote, TunnelID: 7}
			out, outcome := Handle(state(t), o)
			if outcome != Fragmented {
				t.Fatal(outcome)
			}
			whole, _ := parse(tc.frame)
			var data []byte
			for i, po := range out {
				if !bytes.Equal(po.Packet[:packet.EthernetLen], tc.frame[:packet.EthernetLen]) || len(po.Actions) != 3 {
					t.Errorf("% x %v", po.Packet[:packet.EthernetLen], po.Actions)
				}
				p, ok := parse(po.Packet)
				if !ok || len(p) > 1300 || packet.Checksum(0, p[:p.HeaderLen()]) != 0 || p.Source() != src.Addr() || be.Uint16(p[4:]) != 0x1234 {
					t.Fatalf("fragment %d: %v, %d bytes", i, ok, len(p))
				}
				field := be.Uint16(p[6:])
				if at := int(field&offsetMask) * 8; at != tc.first+len(data) {
					t.Errorf("fragment %d begins at %d, want %d", i, at, tc.first+len(data))
				}
				if more := field&moreFragments != 0; more != (tc.more || i < len(out)-1) {
					t.Errorf("fragment %d: more %v", i, more)
				}
				if i > 0 && tc.name == "options" && !bytes.Equal(p[20:p.HeaderLen()], []byte{0x94, 4, 0, 0}) {
					t.Errorf("fragment %d has options % x", i, p[20:p.HeaderLen()])
				}
				data = append(data, p[p.HeaderLen():]...)
			}
			if !bytes.Equal(data, whole[whole.HeaderLen():]) {
				t.Error("the fragments hold something else than the packet")
			}
		})
	}
	far := setting(plain, 6, 0x1f, 0xff)
	if out, outcome := Handle(state(t), pipeline.Oversize{Frame: far, InPort: 16, MTU: 1300, OutPort: datapath.TunnelPort, TunnelDst: remote}); outcome != Dropped {
		t.Errorf("a fragment behind the end of all datagrams: %s, %d packets", outcome, len(out))
	}
}

// FuzzHandle expects that no packet does harm, and that what comes out is whole and fits.
func FuzzHandle(f *testing.F) {
	src, dst := ends("10.244.1.2:4000", "10.244.2.3:80")
	src6, dst6 := ends("[fd00:1::2]:4000", "[fd00:2::3]:80")
	f.Add(udp(src, dst, 1400))
	f.Add(setting(udp(src, dst, 1400), 6, 0))
	f.Add(udp(src6, dst6, 1400))
	f.Add(setting(udp(src6, dst6, 1400), 6, 44))
	s := state(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		out, _ := Handle(s, pipeline.Oversize{
			Frame: frame, InPort: 17, MTU: 1300, OutPort: datapath.TunnelPort, TunnelDst: remote, Destination: netip.MustParseAddrPort("10.96.0.1:80"), SourcePort: 9,
		})
		for _, o := range out {
			if p, ok := parse(o.Packet); !ok || len(p) > 1300 || len(p)+packet.EthernetLen != len(o.Packet) {
				t.Errorf("% x", o.Packet)
			}
		}
	})
}
