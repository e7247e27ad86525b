// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/packet"
)

var (
	mac       = net.HardwareAddr{0x0a, 0xce, 0, 0, 0, 1}
	serverMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	server    = netip.MustParseAddr("192.0.2.1")
	given     = netip.MustParsePrefix("192.0.2.50/24")
	noon      = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// newClient makes a Client with transaction ids that count up.
func newClient() *Client { return New(settings()) }

func settings() Config {
	n := byte(0)
	return Config{MAC: mac, HostName: "web", XID: func() dhcpv4.TransactionID { n++; return dhcpv4.TransactionID{n} }}
}

// sent is the message in a frame, and its addresses.
func sent(t interface{ Fatalf(string, ...any) }, frame []byte) (m *dhcpv4.DHCPv4, from, to netip.Addr, dst net.HardwareAddr) {
	p, ok := packet.Parse(frame)
	if !ok {
		t.Fatalf("no packet in %x", frame)
	}
	source, destination, data, ok := p.Datagram()
	m, err := dhcpv4.FromBytes(data)
	if !ok || source != 68 || destination != 67 || err != nil {
		t.Fatalf("not a message to a server: %d to %d, %v", source, destination, err)
	}
	return m, p.Source(), p.Destination(), net.HardwareAddr(frame[:6])
}

// reply is a server's answer to the last message of a Client.
func reply(c *Client, t dhcpv4.MessageType, change ...func(*dhcpv4.DHCPv4)) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: 1, TransactionID: c.xid, ClientHWAddr: mac,
		YourIPAddr: given.Addr().AsSlice(), Options: dhcpv4.Options{},
	}
	m.UpdateOption(dhcpv4.OptMessageType(t))
	m.UpdateOption(dhcpv4.OptServerIdentifier(server.AsSlice()))
	m.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(24, 32)))
	m.UpdateOption(dhcpv4.OptIPAddressLeaseTime(time.Hour))
	for _, f := range change {
		f(m)
	}
	return m
}

// acquired is a Client with a lease of an hour from noon.
func acquired(t interface{ Fatalf(string, ...any) }) *Client {
	c := newClient()
	c.Tick(noon)
	c.Handle(noon, serverMAC, reply(c, dhcpv4.MessageTypeOffer))
	if s := c.Handle(noon, serverMAC, reply(c, dhcpv4.MessageTypeAck)); s.Event != Acquired {
		t.Fatalf("after the acknowledgement: %v", s.Event)
	}
	return c
}

func TestObtain(t *testing.T) {
	c := newClient()
	m, from, to, dst := sent(t, c.Tick(noon).Frame)
	if m.MessageType() != dhcpv4.MessageTypeDiscover || from.String() != "0.0.0.0" || to != broadcast || dst.String() != "ff:ff:ff:ff:ff:ff" ||
		m.HostName() != "web" {
		t.Errorf("it begins with %v from %v to %v at %v", m, from, to, dst)
	}
	m, _, _, _ = sent(t, c.Handle(noon, serverMAC, reply(c, dhcpv4.MessageTypeOffer)).Frame)
	if m.MessageType() != dhcpv4.MessageTypeRequest || !m.ServerIdentifier().Equal(server.AsSlice()) ||
		!m.RequestedIPAddress().Equal(given.Addr().AsSlice()) {
		t.Errorf("after an offer: %v", m)
	}
	if _, ok := c.Lease(); ok {
		t.Error("there is a lease before the acknowledgement")
	}
	s := c.Handle(noon, serverMAC, reply(c, dhcpv4.MessageTypeAck, func(m *dhcpv4.DHCPv4) {
		m.UpdateOption(dhcpv4.OptRouter(net.IP{192, 0, 2, 254}))
		m.UpdateOption(dhcpv4.OptDNS(net.IP{192, 0, 2, 53}))
		m.UpdateOption(dhcpv4.OptDomainName("example"))
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{5, 0}))
	}))
	l, ok := c.Lease()
	want := Lease{
		Address: given, Gateway: netip.MustParseAddr("192.0.2.254"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Domains: []string{"example"}, MTU: 1280, Server: server, ServerMAC: serverMAC, From: noon, Renew: 30 * time.Minute,
		Rebind: time.Hour / 8 * 7, Expire: time.Hour,
	}
	if diff := cmp.Diff(want, l, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); !ok || s.Event != Acquired || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", ok, s.Event, diff)
	}
}

// Without an answer the pauses grow to a minute, and the transaction stays the same.
func TestPauses(t *testing.T) {
	c := newClient()
	now, pauses := noon, []time.Duration(nil)
	for range 8 {
		if c.Tick(now).Frame == nil {
			t.Fatal("it asks nothing")
		}
		pauses = append(pauses, c.Next().Sub(now))
		now = c.Next()
	}
	s := time.Second
	if diff := cmp.Diff([]time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 64 * s}, pauses); diff != "" {
		t.Error(diff)
	}
}

func TestRenewal(t *testing.T) {
	c := acquired(t)
	if s := c.Tick(noon.Add(30*time.Minute - 1)); s.Frame != nil {
		t.Error("it asks before T1")
	}
	m, from, to, dst := sent(t, c.Tick(noon.Add(30*time.Minute)).Frame)
	if from != given.Addr() || to != server || dst.String() != serverMAC.String() || !m.ClientIPAddr.Equal(given.Addr().AsSlice()) ||
		m.ServerIdentifier() != nil || m.RequestedIPAddress() != nil {
		t.Errorf("at T1: %v from %v to %v at %v", m, from, to, dst)
	}
	_, _, to, _ = sent(t, c.Tick(noon.Add(time.Hour/8*7)).Frame)
	if to != broadcast {
		t.Errorf("at T2 it asks %v", to)
	}
	at := noon.Add(55 * time.Minute)
	if s := c.Handle(at, serverMAC, reply(c, dhcpv4.MessageTypeAck)); s.Event != Renewed {
		t.Errorf("after the acknowledgement: %v", s.Event)
	}
	if l, _ := c.Lease(); l.Expires() != noon.Add(time.Hour/8*7).Add(time.Hour) {
		t.Errorf("it counts from %v, and not from when it was asked for", l.From)
	}
}

// What takes the lease away has the client ask for the same address, and for no other.
func TestLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(*Client) (time.Time, Step)
		want Event
	}{
		{"expired", func(c *Client) (time.Time, Step) {
			at := noon.Add(time.Hour)
			return at, c.Tick(at)
		}, Expired},
		{"refused", func(c *Client) (time.Time, Step) {
			at := noon.Add(30 * time.Minute)
			c.Tick(at)
			return at, c.Handle(at, serverMAC, reply(c, dhcpv4.MessageTypeNak))
		}, Refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := acquired(t)
			at, s := tc.lose(c)
			if s.Event != tc.want {
				t.Errorf("the event is %v", s.Event)
			}
			m, _, _, _ := sent(t, s.Frame)
			if m.MessageType() != dhcpv4.MessageTypeDiscover || !m.RequestedIPAddress().Equal(given.Addr().AsSlice()) {
				t.Errorf("it asks %v", m)
			}
			if _, ok := c.Lease(); ok || c.Release() != nil {
				t.Error("there is a lease")
			}
			other := func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IP{192, 0, 2, 51} }
			if s := c.Handle(at, serverMAC, reply(c, dhcpv4.MessageTypeOffer, other)); s.Frame != nil {
				t.Error("it takes another address")
			}
			c.Handle(at, serverMAC, reply(c, dhcpv4.MessageTypeOffer))
			if s := c.Handle(at, serverMAC, reply(c, dhcpv4.MessageTypeAck)); s.Event != Acquired {
				t.Errorf("the same address again: %v", s.Event)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	l, _ := acquired(t).Lease()
	c := Restore(settings(), l, noon.Add(40*time.Minute))
	if _, ok := c.Lease(); !ok {
		t.Error("a lease that is valid is lost")
	}
	if m, _, to, _ := sent(t, c.Tick(noon.Add(40*time.Minute)).Frame); to != server || m.MessageType() != dhcpv4.MessageTypeRequest {
		t.Errorf("what is due is not asked for: %v to %v", m, to)
	}
	c = Restore(settings(), l, noon.Add(time.Hour))
	if _, ok := c.Lease(); ok {
		t.Error("a lease that has expired is valid")
	}
}

func TestRelease(t *testing.T) {
	m, from, to, dst := sent(t, acquired(t).Release())
	if m.MessageType() != dhcpv4.MessageTypeRelease || from != given.Addr() || to != server || dst.String() != serverMAC.String() ||
		!m.ServerIdentifier().Equal(server.AsSlice()) || !m.ClientIPAddr.Equal(given.Addr().AsSlice()) {
		t.Errorf("%v from %v to %v at %v", m, from, to, dst)
	}
}

// What is not an answer to what the client asks changes nothing.
func TestOtherAnswers(t *testing.T) {
	for name, change := range map[string]func(*dhcpv4.DHCPv4){
		"another transaction": func(m *dhcpv4.DHCPv4) { m.TransactionID = dhcpv4.TransactionID{9, 9} },
		"another interface":   func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = serverMAC },
		"no mask":             func(m *dhcpv4.DHCPv4) { m.Options.Del(dhcpv4.OptionSubnetMask) },
		"no server":           func(m *dhcpv4.DHCPv4) { m.Options.Del(dhcpv4.OptionServerIdentifier) },
		"no time":             func(m *dhcpv4.DHCPv4) { m.Options.Del(dhcpv4.OptionIPAddressLeaseTime) },
		"a group":             func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IP{224, 0, 0, 1} },
	} {
		c := newClient()
		c.Tick(noon)
		if s := c.Handle(noon, serverMAC, reply(c, dhcpv4.MessageTypeOffer, change)); s.Frame != nil || c.state != selecting {
			t.Errorf("%s: it takes the offer", name)
		}
	}
	c := acquired(t)
	c.Tick(noon.Add(30 * time.Minute))
	c.Handle(noon.Add(30*time.Minute), serverMAC, reply(c, dhcpv4.MessageTypeNak, func(m *dhcpv4.DHCPv4) {
		m.UpdateOption(dhcpv4.OptServerIdentifier(net.IP{192, 0, 2, 9}))
	}))
	if _, ok := c.Lease(); !ok {
		t.Error("a server that is not asked has taken the address away")
	}
}

// Classless routes take the place of the router (RFC 3442).
func TestRoutes(t *testing.T) {
	route := func(to string, hop ...byte) *dhcpv4.Route {
		_, n, _ := net.ParseCIDR(to)
		return &dhcpv4.Route{Dest: n, Router: net.IP(hop)}
	}
	c := newClient()
	l, err := readLease(reply(c, dhcpv4.MessageTypeAck, func(m *dhcpv4.DHCPv4) {
		m.UpdateOption(dhcpv4.OptRouter(net.IP{192, 0, 2, 1}))
		m.UpdateOption(dhcpv4.OptClasslessStaticRoute(route("0.0.0.0/0", 192, 0, 2, 254), route("198.51.100.0/24", 192, 0, 2, 253),
			route("203.0.113.0/24", 0, 0, 0, 0), route("10.0.0.0/8", 10, 0, 0, 1)))
	}), serverMAC, noon)
	want := []Route{
		{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("192.0.2.253")}, {Destination: netip.MustParsePrefix("203.0.113.0/24")},
	}
	diff := cmp.Diff(want, l.Routes, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
	if err != nil || l.Gateway.String() != "192.0.2.254" || diff != "" {
		t.Errorf("gateway %v, %v (-want +got):\n%s", l.Gateway, err, diff)
	}
}

// Whatever servers say and however time passes, an address is used only within its lease, and the
// client always has a next step.
func TestNeverWithoutALease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, now := newClient(), noon
		var until time.Time // the end of the newest lease that was acknowledged
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "seconds")) * time.Second)
			c.Tick(now)
			kind := rapid.SampledFrom([]dhcpv4.MessageType{
				dhcpv4.MessageTypeNone, dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak,
			}).Draw(t, "answer")
			if kind != dhcpv4.MessageTypeNone {
				asked := c.asked
				if s := c.Handle(now, serverMAC, reply(c, kind)); s.Event == Acquired || s.Event == Renewed {
					until = asked.Add(time.Hour)
				}
			}
			if _, ok := c.Lease(); ok && now.After(until) {
				t.Fatalf("at %v it uses an address of which the lease has ended at %v", now, until)
			}
			if _, ok := c.Lease(); ok && c.Next().After(until) {
				t.Fatalf("the next step is at %v, after the end of the lease at %v", c.Next(), until)
			}
		}
	})
}

func FuzzReply(f *testing.F) {
	c := newClient()
	frame := c.Tick(noon).Frame
	f.Add(frame)
	m := reply(c, dhcpv4.MessageTypeOffer)
	datagram := packet.UDPFrom(netip.AddrPortFrom(server, 67), netip.AddrPortFrom(broadcast, 68), m.ToBytes())
	f.Add(packet.Ethernet(mac, serverMAC, 0x0800, packet.Header{Source: server, Destination: broadcast, Protocol: packet.UDP, HopLimit: 64}.Packet(datagram)))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		from, m, ok := Reply(frame)
		if ok {
			c := newClient()
			c.Tick(noon)
			c.xid, c.MAC = m.TransactionID, m.ClientHWAddr
			c.Handle(noon, from, m)
		}
	})
}
