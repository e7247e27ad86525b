// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/internal/packet"
)

var (
	mac    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	node   = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	server = netip.MustParseAddr("198.51.100.7")
	given  = netip.MustParseAddr("192.168.70.101")
	office = Origin{
		Relay: netip.MustParseAddr("192.0.2.11"), Subnet: netip.MustParsePrefix("192.168.70.0/24"),
		Interface: "office/shop/vm", Node: "worker1",
	}
)

// question is what a client asks, with changes.
func question(t interface{ Fatal(...any) }, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(mac), dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), dhcpv4.WithOption(dhcpv4.OptHostName("db")),
	}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// framed is a message as a client sends it.
func framed(m *dhcpv4.DHCPv4, from, to uint16) []byte {
	src, dst := netip.AddrPortFrom(netip.IPv4Unspecified(), from), netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), to)
	p := packet.Header{Source: src.Addr(), Destination: dst.Addr(), Protocol: packet.UDP, HopLimit: 64}.Packet(packet.UDPFrom(src, dst, m.ToBytes()))
	return packet.Ethernet(packet.Broadcast, mac, p.Type(), p)
}

// What servers are asked is what the client asks, with where that comes from: option 82 is the last
// one, and byte for byte as RFC 3046 and RFC 3527 have it.
func TestRelayed(t *testing.T) {
	m, err := Question(framed(question(t, dhcpv4.WithBroadcast(true)), 68, 67))
	if err != nil {
		t.Fatal(err)
	}
	m.NumSeconds = 7
	data, err := office.Relayed(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := dhcpv4.FromBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.HopCount != 1 || !got.GatewayIPAddr.Equal(office.Relay.AsSlice()) || got.NumSeconds != 7 || !got.IsBroadcast() ||
		got.TransactionID != m.TransactionID || !bytes.Equal(got.ClientHWAddr, mac) || got.HostName() != "db" ||
		got.MessageType() != dhcpv4.MessageTypeDiscover {
		t.Errorf("servers are asked %s", got.Summary())
	}
	want := append([]byte("\x52\x1f\x01\x0eoffice/shop/vm\x02\x07worker1\x05\x04"), 192, 168, 70, 0, 0xff)
	if !bytes.Contains(data, want) {
		t.Errorf("option 82 is not at the end: % x", data)
	}
	if m.Options.Has(dhcpv4.OptionRelayAgentInformation) || m.HopCount != 0 {
		t.Error("the client's own message is changed")
	}
}

func TestNotRelayed(t *testing.T) {
	for name, change := range map[string]dhcpv4.Modifier{
		"relayed already": dhcpv4.WithGatewayIP(net.IP{192, 0, 2, 50}),
		"an option 82":    dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 1, 1}),
		"too many relays": func(m *dhcpv4.DHCPv4) { m.HopCount = 16 },
		"all relays":      func(m *dhcpv4.DHCPv4) { m.HopCount = 255 },
	} {
		if data, err := office.Relayed(question(t, change)); err == nil {
			t.Errorf("%s: servers are asked % x", name, data)
		}
	}
}

func TestNoQuestion(t *testing.T) {
	for name, frame := range map[string][]byte{
		"nothing":        nil,
		"a server's":     framed(question(t), 67, 68),
		"an answer":      framed(question(t, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), 68, 67),
		"not a message":  framed(question(t), 68, 67)[:60],
		"other hardware": framed(question(t, func(m *dhcpv4.DHCPv4) { m.HWType = 6 }), 68, 67),
	} {
		if m, err := Question(frame); err == nil {
			t.Errorf("%s: it is %s", name, m.Summary())
		}
	}
}

// Long names are shortened, stay different from each other, and leave room for all.
func TestLongNames(t *testing.T) {
	long := office
	long.Interface, long.Node = "office/"+strings.Repeat("a", 300), strings.Repeat("n", 253)
	other := long
	other.Interface += "b"
	a, b := long.Option(), other.Option()
	if len(a) > 255 || len(b) > 255 || bytes.Equal(a, b) || !bytes.Equal(a, long.Option()) || !strings.HasPrefix(string(a[2:]), "office/aaa") {
		t.Errorf("% x\n% x", a, b)
	}
}

// reply is what a server answers a relayed question, with changes.
func reply(t interface{ Fatal(...any) }, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	data, err := office.Relayed(question(t))
	if err != nil {
		t.Fatal(err)
	}
	q, err := dhcpv4.FromBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dhcpv4.NewReplyFromRequest(q, append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer), dhcpv4.WithYourIP(given.AsSlice()), dhcpv4.WithGatewayIP(office.Relay.AsSlice()),
		dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, q.GetOneOption(dhcpv4.OptionRelayAgentInformation)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())),
	}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A client receives the answer without what is between the relay and the server.
func TestAnswer(t *testing.T) {
	broadcast := netip.MustParseAddr("255.255.255.255")
	for _, tc := range []struct {
		name   string
		change dhcpv4.Modifier
		to     netip.Addr
		mac    net.HardwareAddr
	}{
		{"to a new address", func(*dhcpv4.DHCPv4) {}, given, mac},
		{"to all", dhcpv4.WithBroadcast(true), broadcast, packet.Broadcast},
		{"renewed", dhcpv4.WithClientIP(given.AsSlice()), given, mac},
		{"refused", dhcpv4.WithYourIP(net.IPv4zero), broadcast, packet.Broadcast},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, option, err := Answer(reply(t, tc.change).ToBytes())
			if err != nil || !bytes.Equal(option, office.Option()) {
				t.Fatalf("option 82 % x, %v", option, err)
			}
			frame := Frame(m, server, node)
			p, ok := packet.Parse(frame)
			if !ok || p.Source() != server || p.Destination() != tc.to || !bytes.Equal(frame[:6], tc.mac) || !bytes.Equal(frame[6:12], node) {
				t.Errorf("from %v to %v, frame % x", p.Source(), p.Destination(), frame[:14])
			}
			from, to, data, _ := p.Datagram()
			got, err := dhcpv4.FromBytes(data)
			if err != nil || from != 67 || to != 68 {
				t.Fatalf("from %d to %d: %v", from, to, err)
			}
			if got.Options.Has(dhcpv4.OptionRelayAgentInformation) || !got.GatewayIPAddr.IsUnspecified() ||
				!got.ServerIdentifier().Equal(server.AsSlice()) || got.MessageType() != dhcpv4.MessageTypeOffer {
				t.Errorf("the client receives %s", got.Summary())
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":           nil,
		"a question":        question(t).ToBytes(),
		"without option 82": reply(t, func(m *dhcpv4.DHCPv4) { m.Options.Del(dhcpv4.OptionRelayAgentInformation) }).ToBytes(),
		"other hardware":    reply(t, func(m *dhcpv4.DHCPv4) { m.HWType = 6 }).ToBytes(),
	} {
		if m, _, err := Answer(data); err == nil {
			t.Errorf("%s: it is %s", name, m.Summary())
		}
	}
}

func TestCheckSubnet(t *testing.T) {
	for address, want := range map[string]bool{"192.168.70.255": false, "0.0.0.0": false, "192.168.71.1": true, "192.0.2.11": true} {
		m := reply(t, dhcpv4.WithYourIP(net.ParseIP(address)))
		if err := CheckSubnet(m, office.Subnet); (err != nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Whatever a client asks is either refused, or asked with the relay's option 82 and no other.
func FuzzQuestion(f *testing.F) {
	f.Add(framed(question(f), 68, 67))
	f.Add(framed(question(f, dhcpv4.WithGatewayIP(net.IP{1, 2, 3, 4})), 68, 67))
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, err := Question(frame)
		if err != nil {
			return
		}
		data, err := office.Relayed(m)
		if err != nil {
			return
		}
		got, err := dhcpv4.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.GetOneOption(dhcpv4.OptionRelayAgentInformation), office.Option()) || !got.GatewayIPAddr.Equal(office.Relay.AsSlice()) ||
			got.HopCount != m.HopCount+1 || got.TransactionID != m.TransactionID || got.OpCode != dhcpv4.OpcodeBootRequest {
			t.Errorf("servers are asked %s", got.Summary())
		}
	})
}

// Whatever servers answer, a client receives no option 82, and what it receives can be read.
func FuzzAnswer(f *testing.F) {
	f.Add(reply(f).ToBytes())
	f.Add(reply(f, dhcpv4.WithBroadcast(true), dhcpv4.WithYourIP(net.IPv4zero)).ToBytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, option, err := Answer(data)
		if err != nil {
			return
		}
		_ = CheckSubnet(m, office.Subnet)
		p, ok := packet.Parse(Frame(m, server, node))
		if !ok || len(option) == 0 {
			t.Fatal("it is no packet")
		}
		_, _, text, ok := p.Datagram()
		got, err := dhcpv4.FromBytes(text)
		if !ok || err != nil || got.Options.Has(dhcpv4.OptionRelayAgentInformation) || !got.GatewayIPAddr.IsUnspecified() {
			t.Errorf("the client receives %v, %v", got, err)
		}
	})
}
