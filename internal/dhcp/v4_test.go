// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/packet"
)

// message4 is a message of the machine.
func message4(t testing.TB, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(machineMAC.HardwareAddr()), dhcpv4.WithMessageType(kind),
	}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask4(t testing.TB, l Lease, m *dhcpv4.DHCPv4) Answer {
	t.Helper()
	return Handle(udp("0.0.0.0:68", "255.255.255.255:67", m.ToBytes()), l)
}

func requested(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(a)))
}

func server(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(a)))
}

func TestDHCPv4(t *testing.T) {
	const discover, request = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	relayed := func(m *dhcpv4.DHCPv4) { m.GatewayIPAddr = net.IPv4(10, 70, 0, 9) }
	has := func(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }
	for _, tc := range []struct {
		name    string
		message *dhcpv4.DHCPv4
		want    Outcome
		kind    dhcpv4.MessageType // of the answer
		address string             // that the machine gets
		to      string             // where the answer goes
	}{
		{"first question", message4(t, discover), Answered, dhcpv4.MessageTypeOffer, "10.70.0.50", "10.70.0.50"},
		{"it cannot take unicast", message4(t, discover, dhcpv4.WithBroadcast(true)), Answered, dhcpv4.MessageTypeOffer, "10.70.0.50", "255.255.255.255"},
		{"it would like its other address", message4(t, discover, requested("10.71.0.50")), Answered, dhcpv4.MessageTypeOffer, "10.71.0.50", "10.71.0.50"},
		{"it would like another's", message4(t, discover, requested("10.70.0.51")), Answered, dhcpv4.MessageTypeOffer, "10.70.0.50", "10.70.0.50"},
		{"it takes the offer", message4(t, request, requested("10.70.0.50"), server("10.70.0.1")), Answered, dhcpv4.MessageTypeAck, "10.70.0.50", "10.70.0.50"},
		{"it has rebooted", message4(t, request, requested("10.70.0.50")), Answered, dhcpv4.MessageTypeAck, "10.70.0.50", "10.70.0.50"},
		{"it has rebooted elsewhere", message4(t, request, requested("192.168.1.7")), Refused, dhcpv4.MessageTypeNak, "0.0.0.0", "255.255.255.255"},
		{"it renews", message4(t, request, has("10.70.0.50")), Answered, dhcpv4.MessageTypeAck, "10.70.0.50", "10.70.0.50"},
		{"it renews another's", message4(t, request, has("10.70.0.51")), Refused, dhcpv4.MessageTypeNak, "0.0.0.0", "255.255.255.255"},
		{"it wants settings alone", message4(t, dhcpv4.MessageTypeInform, has("10.70.0.50")), Answered, dhcpv4.MessageTypeAck, "0.0.0.0", "10.70.0.50"},
		{"it goes", message4(t, dhcpv4.MessageTypeRelease, has("10.70.0.50"), server("10.70.0.1")), Released, 0, "", ""},
		{"its address is taken", message4(t, dhcpv4.MessageTypeDecline, requested("10.70.0.50"), server("10.70.0.1")), Declined, 0, "", ""},

		{"it has chosen another server", message4(t, request, requested("10.70.0.50"), server("10.70.0.9")), Ignored, 0, "", ""},
		{"a request of nothing", message4(t, request), Ignored, 0, "", ""},
		{"settings without an address", message4(t, dhcpv4.MessageTypeInform), Ignored, 0, "", ""},
		{"relayed", message4(t, discover, relayed), Ignored, 0, "", ""},
		{"for another machine", message4(t, discover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})), Ignored, 0, "", ""},
		{"a short hardware address", message4(t, discover, dhcpv4.WithHwAddr(net.HardwareAddr{2})), Ignored, 0, "", ""},
		{"of another kind of network", message4(t, discover, dhcpv4.WithHWType(iana.HWTypeInfiniband)), Ignored, 0, "", ""},
		{"an answer", message4(t, discover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), Ignored, 0, "", ""},
		{"an offer", message4(t, dhcpv4.MessageTypeOffer), Ignored, 0, "", ""},
		{"without a type", message4(t, discover, dhcpv4.WithoutOption(dhcpv4.OptionDHCPMessageType)), Ignored, 0, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := ask4(t, leaseOf(t, network(), "10.70.0.50", "10.71.0.50", "fd00:70::50"), tc.message)
			if a.Outcome != tc.want || a.Protocol != DHCPv4 || (a.Frame != nil) != (tc.kind != 0) {
				t.Fatalf("%s %s, %d bytes; want %s", a.Protocol, a.Outcome, len(a.Frame), tc.want)
			}
			if a.Frame == nil {
				return
			}
			mac, p, payload := opened(t, a.Frame)
			m, err := dhcpv4.FromBytes(payload)
			if err != nil || m.MessageType() != tc.kind || m.TransactionID != tc.message.TransactionID {
				t.Fatalf("%v: %v", err, m)
			}
			if got := m.YourIPAddr.String(); got != tc.address {
				t.Errorf("it gets %s, want %s", got, tc.address)
			}
			if source, port, _ := p.Ports(); source != 67 || port != 68 || p.Destination().String() != tc.to {
				t.Errorf("from port %d to %s port %d, want %s", source, p.Destination(), port, tc.to)
			}
			wantMAC := [6]byte(machineMAC)
			if tc.to == "255.255.255.255" {
				wantMAC = [6]byte(packet.Broadcast)
			}
			if mac != wantMAC || p.Source().String() != m.ServerIdentifier().String() {
				t.Errorf("to %x from %s, server %s", mac, p.Source(), m.ServerIdentifier())
			}
		})
	}
}

// A machine is told all that there is, of its own subnet and family.
func TestDHCPv4Options(t *testing.T) {
	id := []byte{1, 2, 3}
	a := ask4(t, leaseOf(t, network(), "10.70.0.50", "fd00:70::50"),
		message4(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithGeneric(dhcpv4.OptionClientIdentifier, id)))
	_, _, payload := opened(t, a.Frame)
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, r := range m.ClasslessStaticRoute() {
		routes = append(routes, r.Dest.String()+" "+r.Router.String())
	}
	for what, pair := range map[string][2]string{
		"mask":     {net.IP(m.SubnetMask()).String(), "255.255.255.0"},
		"router":   {m.Router()[0].String(), "10.70.0.1"},
		"routes":   {strings.Join(routes, ", "), "192.168.99.0/24 10.70.0.254, 0.0.0.0/0 10.70.0.1"},
		"dns":      {joined(m.DNS()), "192.0.2.53"},
		"domain":   {m.DomainName(), "red.example"},
		"search":   {strings.Join(m.DomainSearch().Labels, " "), "red.example example"},
		"host":     {m.HostName(), "db"},
		"ntp":      {joined(m.NTPServers()), "192.0.2.123"},
		"next":     {m.ServerIPAddr.String(), "192.0.2.69"},
		"tftp":     {m.TFTPServerName(), "192.0.2.69"},
		"file":     {m.BootFileName, "tftp://192.0.2.69/boot"},
		"bootfile": {m.BootFileNameOption(), "tftp://192.0.2.69/boot"},
		"lease":    {m.IPAddressLeaseTime(0).String(), time.Hour.String()},
		"renew":    {m.IPAddressRenewalTime(0).String(), (30 * time.Minute).String()},
		"rebind":   {m.IPAddressRebindingTime(0).String(), (52*time.Minute + 30*time.Second).String()},
		"mtu":      {string(m.GetOneOption(dhcpv4.OptionInterfaceMTU)), "\x05\x78"},
		"id":       {string(m.GetOneOption(dhcpv4.OptionClientIdentifier)), string(id)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
}

func joined(list []net.IP) string {
	var texts []string
	for _, ip := range list {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, " ")
}

// What a machine does not ask for it is not told; nor what does not fit into what it takes.
func TestDHCPv4OptionsThatAreAskedFor(t *testing.T) {
	n := network()
	for range 60 { // more than fits
		n.DNS.Searches = append(n.DNS.Searches, "a.long.domain.example")
	}
	l := leaseOf(t, n, "10.70.0.50")
	few := ask4(t, l, message4(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionRouter, dhcpv4.OptionNTPServers))))
	_, _, payload := opened(t, few.Frame)
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		t.Fatal(err)
	}
	if m.Router() == nil || m.NTPServers() == nil || m.SubnetMask() != nil || m.DNS() != nil || m.HostName() != "" {
		t.Errorf("options: %v", m.Options)
	}
	for _, size := range []uint16{0, 100, 576, 1000, 9000} {
		a := ask4(t, l, message4(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(size))))
		_, p, payload := opened(t, a.Frame)
		if m, err = dhcpv4.FromBytes(payload); err != nil {
			t.Fatal(err)
		}
		if most := min(max(int(size), 576), 1400); len(p) > most || m.Router() == nil || m.DNS() == nil {
			t.Errorf("%d bytes, the machine takes %d: %v", len(p), most, m.Options)
		}
	}
}

// Machines without an address of the family, and frames that hold no message, get no answer.
func TestNoAnswer(t *testing.T) {
	whole := udp("0.0.0.0:68", "255.255.255.255:67", message4(t, dhcpv4.MessageTypeDiscover).ToBytes())
	changed := func(at int, b ...byte) []byte {
		f := slices.Clone(whole)
		copy(f[at:], b)
		return f
	}
	only6, all := leaseOf(t, network(), "fd00:70::50"), leaseOf(t, network(), "10.70.0.50")
	for name, tc := range map[string]struct {
		frame []byte
		lease Lease
	}{
		"no IPv4 address":       {whole, only6},
		"outside of all":        {whole, leaseOf(t, network(), "10.99.0.50")},
		"nothing":               {nil, all},
		"cut":                   {whole[:len(whole)-10], all},
		"a fragment":            {changed(packet.EthernetLen+6, 0x20), all},
		"a later fragment":      {changed(packet.EthernetLen+7, 3), all},
		"not UDP":               {changed(packet.EthernetLen+9, packet.TCP), all},
		"a length that is none": {changed(packet.EthernetLen+packet.IPv4Len+4, 0, 7), all},
		"a length beyond":       {changed(packet.EthernetLen+packet.IPv4Len+4, 9, 9), all},
		"no message":            {udp("0.0.0.0:68", "255.255.255.255:67", []byte("hello")), all},
	} {
		if a := Handle(tc.frame, tc.lease); a.Outcome != Ignored || a.Frame != nil {
			t.Errorf("%s: %s", name, a.Outcome)
		}
	}
}

// The checksum of a machine that leaves it to its network card is not one yet.
func TestUnfinishedChecksum(t *testing.T) {
	frame := udp("0.0.0.0:68", "255.255.255.255:67", message4(t, dhcpv4.MessageTypeDiscover).ToBytes())
	frame[packet.EthernetLen+packet.IPv4Len+6] ^= 0xff
	if a := Handle(frame, leaseOf(t, network(), "10.70.0.50")); a.Outcome != Answered {
		t.Error(a.Outcome)
	}
}

// plainName is what the API takes for a host name.
var plainName = regexp.MustCompile(`^[-.0-9A-Za-z]{1,253}$`)

// FuzzHandle expects that no frame does harm, that all answers are whole and go to the machine, and
// that nothing but the Port's addresses and a name of DNS is passed on.
func FuzzHandle(f *testing.F) {
	f.Add(udp("0.0.0.0:68", "255.255.255.255:67", message4(f, dhcpv4.MessageTypeDiscover).ToBytes()))
	f.Add(udp("0.0.0.0:68", "255.255.255.255:67", message4(f, dhcpv4.MessageTypeRequest, requested("10.70.0.9")).ToBytes()))
	f.Add(udp("0.0.0.0:68", "255.255.255.255:67", message4(f, dhcpv4.MessageTypeRequest, requested("10.70.0.50"), named("db.red.example.")).ToBytes()))
	f.Add(ask6(message6(f, dhcpv6.MessageTypeRebind, association("fd00:70::50"), fqdn("db.red.example"))))
	f.Add(ask6(message6(f, dhcpv6.MessageTypeRebind, association(), wireName(2, 'd', 'b', 0xc0, 1))))
	f.Add(ask6(solicit(f)))
	f.Add(ask6(message6(f, 11)))
	f.Add(solicitation(linkLocal))
	l := leaseOf(f, network(), "10.70.0.50", "fd00:70::50")
	f.Fuzz(func(t *testing.T, frame []byte) {
		a := Handle(frame, l)
		other := func(g netip.Addr) bool { return !slices.Contains(l.Addresses, g) }
		if a.HostName != "" && !plainName.MatchString(a.HostName) || slices.ContainsFunc(a.Given, other) {
			t.Errorf("given %v to %q", a.Given, a.HostName)
		}
		if a.Frame == nil {
			if len(a.Given) > 0 {
				t.Errorf("given %v without an answer", a.Given)
			}
			return
		}
		mac, p, _ := opened(t, a.Frame)
		own := mac == [6]byte(machineMAC) || mac == [6]byte(packet.Broadcast) && p.Destination() == netip.AddrFrom4([4]byte{255, 255, 255, 255})
		if !own || len(p) > 1400 || a.Outcome == Ignored {
			t.Errorf("%s: % x", a.Outcome, a.Frame)
		}
	})
}
