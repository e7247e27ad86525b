// SPDX-License-Identifier: Apache-2.0

package snoop

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

var (
	mac   = intent.MAC{2, 0, 0, 0, 0, 1}
	other = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	own   = netip.MustParseAddr("192.0.2.50")
	began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	xid   = dhcpv4.TransactionID{1, 2, 3, 4}
)

func message(t *testing.T, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(mac.HardwareAddr()), dhcpv4.WithTransactionID(xid), dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptHostName("db")),
	}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reply is a server's answer, for an hour if it gives an address.
func reply(t *testing.T, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m := message(t, kind, append([]dhcpv4.Modifier{
		dhcpv4.WithYourIP(own.AsSlice()), dhcpv4.WithLeaseTime(3600), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
	}, change...)...)
	m.OpCode = dhcpv4.OpcodeBootReply
	return m
}

func withClient(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }

// bound is a machine with an address.
func bound() *Binding {
	return &Binding{MAC: mac, Lease: Lease{Address: netip.PrefixFrom(own, 24), Expires: began.Add(time.Hour)}}
}

func TestAsk(t *testing.T) {
	identifier := func(b ...byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionClientIdentifier, b))
	}
	for name, tc := range map[string]struct {
		from         string
		kind         dhcpv4.MessageType
		change       []dhcpv4.Modifier
		pass, gaveUp bool
	}{
		"discover":                       {kind: dhcpv4.MessageTypeDiscover, pass: true},
		"request":                        {kind: dhcpv4.MessageTypeRequest, pass: true},
		"renewal":                        {from: "192.0.2.50", kind: dhcpv4.MessageTypeRequest, change: []dhcpv4.Modifier{withClient("192.0.2.50")}, pass: true},
		"renewal of what is not known":   {from: "192.0.2.9", kind: dhcpv4.MessageTypeRequest, change: []dhcpv4.Modifier{withClient("192.0.2.9")}, pass: true},
		"from another address":           {from: "192.0.2.9", kind: dhcpv4.MessageTypeRequest},
		"discover for another's address": {from: "192.0.2.9", kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{withClient("192.0.2.9")}},
		"in another's name":              {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{dhcpv4.WithHwAddr(other)}},
		"by another's identifier":        {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{identifier(append([]byte{1}, other...)...)}},
		"by its own identifier":          {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{identifier(append([]byte{1}, mac[:]...)...)}, pass: true},
		"by a DUID":                      {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{identifier(255, 0, 0, 0, 1, 0, 3)}, pass: true},
		"as a relay":                     {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{dhcpv4.WithGatewayIP(net.IP{192, 0, 2, 50})}},
		"with an option 82 of its own":   {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 1, 1})}},
		"inform":                         {from: "192.0.2.50", kind: dhcpv4.MessageTypeInform, change: []dhcpv4.Modifier{withClient("192.0.2.50")}, pass: true},
		"inform for another":             {from: "192.0.2.9", kind: dhcpv4.MessageTypeInform, change: []dhcpv4.Modifier{withClient("192.0.2.9")}},
		"release":                        {from: "192.0.2.50", kind: dhcpv4.MessageTypeRelease, change: []dhcpv4.Modifier{withClient("192.0.2.50")}, pass: true, gaveUp: true},
		"release of another's":           {from: "192.0.2.9", kind: dhcpv4.MessageTypeRelease, change: []dhcpv4.Modifier{withClient("192.0.2.9")}},
		"decline":                        {kind: dhcpv4.MessageTypeDecline, change: []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(own.AsSlice()))}, pass: true, gaveUp: true},
		"decline of another's":           {kind: dhcpv4.MessageTypeDecline, change: []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IP{192, 0, 2, 9}))}},
		"a server's":                     {kind: dhcpv4.MessageTypeAck},
		"an answer": {kind: dhcpv4.MessageTypeDiscover, change: []dhcpv4.Modifier{func(m *dhcpv4.DHCPv4) {
			m.OpCode = dhcpv4.OpcodeBootReply
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			from := netip.IPv4Unspecified()
			if tc.from != "" {
				from = netip.MustParseAddr(tc.from)
			}
			pass, gaveUp := bound().Ask(began, from, message(t, tc.kind, tc.change...))
			if pass != tc.pass || gaveUp != tc.gaveUp {
				t.Errorf("passes: %t, gives up: %t; want %t, %t", pass, gaveUp, tc.pass, tc.gaveUp)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	lease := &Lease{Address: netip.PrefixFrom(own, 24), Expires: began.Add(time.Hour), HostName: "db"}
	for name, tc := range map[string]struct {
		asked  dhcpv4.MessageType // none: nothing
		after  time.Duration
		kind   dhcpv4.MessageType
		change []dhcpv4.Modifier
		pass   bool
		want   *Lease
	}{
		"offer":                   {asked: dhcpv4.MessageTypeDiscover, kind: dhcpv4.MessageTypeOffer, pass: true},
		"offer to a request":      {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeOffer},
		"acknowledged":            {asked: dhcpv4.MessageTypeRequest, after: time.Second, kind: dhcpv4.MessageTypeAck, pass: true, want: lease},
		"acknowledged at once":    {asked: dhcpv4.MessageTypeDiscover, kind: dhcpv4.MessageTypeAck, pass: true, want: lease},
		"acknowledged unasked":    {kind: dhcpv4.MessageTypeAck},
		"acknowledged too late":   {asked: dhcpv4.MessageTypeRequest, after: time.Hour, kind: dhcpv4.MessageTypeAck},
		"another question's":      {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeAck, change: []dhcpv4.Modifier{dhcpv4.WithTransactionID(dhcpv4.TransactionID{9})}},
		"another machine's":       {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeAck, change: []dhcpv4.Modifier{dhcpv4.WithHwAddr(other)}},
		"without a mask":          {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeAck, change: []dhcpv4.Modifier{dhcpv4.WithoutOption(dhcpv4.OptionSubnetMask)}, pass: true, want: &Lease{netip.PrefixFrom(own, 32), began.Add(time.Hour), "db"}},
		"without a time":          {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeAck, change: []dhcpv4.Modifier{dhcpv4.WithoutOption(dhcpv4.OptionIPAddressLeaseTime)}},
		"a group's address":       {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeAck, change: []dhcpv4.Modifier{dhcpv4.WithYourIP(net.IP{224, 0, 0, 1})}},
		"settings":                {asked: dhcpv4.MessageTypeInform, kind: dhcpv4.MessageTypeAck, pass: true},
		"refused":                 {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeNak, pass: true, want: &Lease{}},
		"refused unasked":         {kind: dhcpv4.MessageTypeNak},
		"a question as an answer": {asked: dhcpv4.MessageTypeRequest, kind: dhcpv4.MessageTypeRequest},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Binding{MAC: mac}
			if tc.asked == dhcpv4.MessageTypeInform {
				b = bound()
			}
			if tc.asked != 0 {
				var change []dhcpv4.Modifier
				if tc.asked == dhcpv4.MessageTypeInform {
					change = append(change, withClient(own.String()))
				}
				if pass, _ := b.Ask(began, netip.IPv4Unspecified(), message(t, tc.asked, change...)); !pass {
					t.Fatal("the question does not pass")
				}
			}
			pass, got := b.Answer(began.Add(tc.after), reply(t, tc.kind, tc.change...))
			if pass != tc.pass || (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("passes: %t, lease %v; want %t, %v", pass, got, tc.pass, tc.want)
			}
		})
	}
}

// A machine that asks without end is remembered by its newest questions only.
func TestManyQuestions(t *testing.T) {
	b := &Binding{MAC: mac}
	for i := range 1000 {
		q := message(t, dhcpv4.MessageTypeRequest, dhcpv4.WithTransactionID(dhcpv4.TransactionID{byte(i >> 8), byte(i)}))
		b.Ask(began, netip.IPv4Unspecified(), q)
	}
	if len(b.asked) != maxQuestions {
		t.Errorf("%d questions are remembered", len(b.asked))
	}
	newest := reply(t, dhcpv4.MessageTypeAck, dhcpv4.WithTransactionID(dhcpv4.TransactionID{999 >> 8, 999 & 0xff}))
	if pass, _ := b.Answer(began, newest); !pass {
		t.Error("the newest question is forgotten")
	}
}

func TestQuestion(t *testing.T) {
	frame := func(from, to uint16, payload []byte) []byte {
		src, dst := netip.AddrPortFrom(netip.IPv4Unspecified(), from), netip.AddrPortFrom(own, to)
		p := packet.Header{Source: src.Addr(), Destination: dst.Addr(), Protocol: packet.UDP, HopLimit: 64}.Packet(
			packet.UDPFrom(src, dst, payload))
		return packet.Ethernet(packet.Broadcast, mac.HardwareAddr(), p.Type(), p)
	}
	m := message(t, dhcpv4.MessageTypeDiscover).ToBytes()
	for name, tc := range map[string]struct {
		frame []byte
		want  bool
	}{
		"a question":          {frame(68, 67, m), true},
		"of another port":     {frame(1068, 67, m), false},
		"to another port":     {frame(68, 1067, m), false},
		"not DHCP":            {frame(68, 67, []byte("hello")), false},
		"not IP":              {[]byte("hello"), false},
		"nothing":             {nil, false},
		"an answer's message": {frame(67, 68, m), false},
	} {
		if _, _, ok := Question(tc.frame); ok != tc.want {
			t.Errorf("%s: %t", name, ok)
		}
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte("hello"))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		if from, m, ok := Question(frame); ok {
			(&Binding{MAC: mac}).Ask(began, from, m)
			(&Binding{MAC: mac}).Answer(began, m)
		}
	})
}
