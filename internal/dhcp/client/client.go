// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/packet"
)

const (
	serverPort, clientPort = 67, 68
	// maxTries bounds the growth of the pause between messages without an answer, which doubles
	// from a second on: it is 64 s at most.
	maxTries = 6
	// leastPause is that between two requests for more time (RFC 2131, section 4.4.5).
	leastPause = time.Minute
)

var (
	broadcast    = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// state is one of RFC 2131, figure 5. There is no INIT: a Client asks from the start.
type state int

const (
	selecting state = iota
	requesting
	bound
	renewing
	rebinding
)

// Event says what a step has changed.
type Event int

// The events.
const (
	Nothing  Event = iota
	Acquired       // there is a lease, and there was none
	Renewed        // it is valid for longer
	Refused        // the server takes the address away: the lease is over
	Expired        // no server has answered in time: the lease is over
)

// Step is what is to be done after a message, or at a time.
type Step struct {
	Frame []byte // to send, without a VLAN tag; nil: nothing
	Event Event
}

// Config is what an interface says of itself.
type Config struct {
	// MAC is also the client identifier, as Ethernet hosts have it (RFC 2132, section 9.14).
	MAC      net.HardwareAddr
	HostName string // a label of DNS; empty: none
	// XID returns a random transaction id.
	XID func() dhcpv4.TransactionID
}

// Client asks for an address of one interface. It is not safe for concurrent use.
type Client struct {
	Config
	state state
	// lease is what the interface has, or had last: it asks for that address again. While
	// requesting, offer is what it has chosen.
	lease, offer Lease
	had          bool // there was a lease
	xid          dhcpv4.TransactionID
	tries        int
	asked        time.Time // when what is waited for was first asked for
	next         time.Time // of the next step
}

// New makes a Client without a lease. It begins with the first Tick.
func New(c Config) *Client { return &Client{Config: c, xid: c.XID()} }

// Restore makes a Client that goes on with a lease, also with one that has expired meanwhile.
func Restore(c Config, l Lease, now time.Time) *Client {
	r := New(c)
	r.lease, r.had = l, true
	if now.Before(l.Expires()) {
		r.state, r.next = bound, l.From.Add(l.Renew)
	}
	return r
}

// Lease is what the interface has; false if it has none.
func (c *Client) Lease() (Lease, bool) { return c.lease, c.state >= bound }

// Had is the lease that there was last; false if there never was one.
func (c *Client) Had() (Lease, bool) { return c.lease, c.had }

// Next is when Tick has something to do.
func (c *Client) Next() time.Time { return c.next }

// Tick does what is due.
func (c *Client) Tick(now time.Time) Step {
	if now.Before(c.next) {
		return Step{}
	}
	switch c.state {
	case bound, renewing, rebinding:
		return c.prolong(now)
	case requesting:
		if c.tries < 3 {
			return Step{Frame: c.request(now)}
		}
		c.restart() // the server that offered it does not answer any more
	case selecting:
	}
	return Step{Frame: c.discover(now)}
}

// restart asks all servers anew.
func (c *Client) restart() {
	c.state, c.tries, c.xid, c.next = selecting, 0, c.XID(), time.Time{}
}

// prolong asks for more time, or ends the lease.
func (c *Client) prolong(now time.Time) Step {
	rebind := c.lease.From.Add(c.lease.Rebind)
	switch {
	case !now.Before(c.lease.Expires()):
		c.restart()
		return Step{Frame: c.discover(now), Event: Expired}
	case !now.Before(rebind):
		c.await(rebinding, now, c.lease.Expires())
		return Step{Frame: c.send(c.renewal(), c.lease.Address.Addr(), broadcast, broadcastMAC)}
	}
	c.await(renewing, now, rebind)
	return Step{Frame: c.send(c.renewal(), c.lease.Address.Addr(), c.lease.Server, c.lease.ServerMAC)}
}

// await enters a state, and plans the next request for half of the time that is left of it.
func (c *Client) await(s state, now, until time.Time) {
	if c.state != s {
		c.state, c.xid = s, c.XID()
	}
	c.asked = now
	c.next = now.Add(max(until.Sub(now)/2, leastPause))
	if c.next.After(until) {
		c.next = until
	}
}

// pause plans the next try.
func (c *Client) pause(now time.Time) {
	c.next = now.Add(time.Second << min(c.tries, maxTries))
	c.tries++
}

func (c *Client) discover(now time.Time) []byte {
	c.asked = now
	c.pause(now)
	m := c.message(dhcpv4.MessageTypeDiscover)
	if c.had {
		m.UpdateOption(dhcpv4.OptRequestedIPAddress(c.lease.Address.Addr().AsSlice()))
	}
	return c.send(m, netip.IPv4Unspecified(), broadcast, broadcastMAC)
}

func (c *Client) request(now time.Time) []byte {
	c.asked = now
	c.pause(now)
	m := c.message(dhcpv4.MessageTypeRequest)
	m.UpdateOption(dhcpv4.OptServerIdentifier(c.offer.Server.AsSlice()))
	m.UpdateOption(dhcpv4.OptRequestedIPAddress(c.offer.Address.Addr().AsSlice()))
	return c.send(m, netip.IPv4Unspecified(), broadcast, broadcastMAC)
}

func (c *Client) renewal() *dhcpv4.DHCPv4 {
	m := c.message(dhcpv4.MessageTypeRequest)
	m.ClientIPAddr = c.lease.Address.Addr().AsSlice()
	return m
}

// Release is the frame that gives the lease back; nil if there is none.
func (c *Client) Release() []byte {
	if c.state < bound {
		return nil
	}
	c.xid = c.XID()
	m := c.message(dhcpv4.MessageTypeRelease)
	m.Options.Del(dhcpv4.OptionParameterRequestList)
	m.ClientIPAddr = c.lease.Address.Addr().AsSlice()
	m.UpdateOption(dhcpv4.OptServerIdentifier(c.lease.Server.AsSlice()))
	return c.send(m, c.lease.Address.Addr(), c.lease.Server, c.lease.ServerMAC)
}

func (c *Client) message(t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, TransactionID: c.xid, ClientHWAddr: c.MAC,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero,
		GatewayIPAddr: net.IPv4zero, Options: dhcpv4.Options{},
	}
	m.UpdateOption(dhcpv4.OptMessageType(t))
	m.UpdateOption(dhcpv4.OptClientIdentifier(append([]byte{byte(iana.HWTypeEthernet)}, c.MAC...)))
	m.UpdateOption(dhcpv4.OptParameterRequestList(
		dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter,
		dhcpv4.OptionDomainNameServer, dhcpv4.OptionDomainName, dhcpv4.OptionDNSDomainSearchList,
		dhcpv4.OptionInterfaceMTU, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
	))
	if c.HostName != "" {
		m.UpdateOption(dhcpv4.OptHostName(c.HostName))
	}
	return m
}

// hopLimit is that of messages, which may have to pass routers.
const hopLimit = 64

func (c *Client) send(m *dhcpv4.DHCPv4, from, to netip.Addr, mac net.HardwareAddr) []byte {
	datagram := packet.UDPFrom(netip.AddrPortFrom(from, clientPort), netip.AddrPortFrom(to, serverPort), m.ToBytes())
	p := packet.Header{Source: from, Destination: to, Protocol: packet.UDP, HopLimit: hopLimit}.Packet(datagram)
	return packet.Ethernet(mac, c.MAC, p.Type(), p)
}

// Reply reads a frame that may be a server's answer: where it came from, and what it says.
func Reply(frame []byte) (from net.HardwareAddr, m *dhcpv4.DHCPv4, ok bool) {
	p, ok := packet.Parse(frame)
	if !ok || p.Is6() {
		return nil, nil, false
	}
	source, destination, data, ok := p.Datagram()
	if !ok || source != serverPort || destination != clientPort {
		return nil, nil, false
	}
	m, err := dhcpv4.FromBytes(data)
	if err != nil || m.OpCode != dhcpv4.OpcodeBootReply || m.HWType != iana.HWTypeEthernet {
		return nil, nil, false
	}
	return net.HardwareAddr(bytes.Clone(frame[6:12])), m, true
}

// Handle takes an answer. One that the client does not wait for, or cannot use, changes nothing.
func (c *Client) Handle(now time.Time, from net.HardwareAddr, m *dhcpv4.DHCPv4) Step {
	if c.state == bound || m.TransactionID != c.xid || !bytes.Equal(m.ClientHWAddr, c.MAC) {
		return Step{}
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeOffer:
		return c.offered(now, from, m)
	case dhcpv4.MessageTypeAck:
		return c.acknowledged(now, from, m)
	case dhcpv4.MessageTypeNak:
		return c.refused(now, m)
	}
	return Step{}
}

func (c *Client) offered(now time.Time, from net.HardwareAddr, m *dhcpv4.DHCPv4) Step {
	l, err := readLease(m, from, c.asked)
	if c.state != selecting || err != nil || c.had && l.Address != c.lease.Address {
		return Step{}
	}
	c.state, c.offer, c.tries = requesting, l, 0
	return Step{Frame: c.request(now)}
}

func (c *Client) acknowledged(now time.Time, from net.HardwareAddr, m *dhcpv4.DHCPv4) Step {
	l, err := readLease(m, from, c.asked)
	had := c.lease.Address
	if c.state == requesting {
		had = c.offer.Address
	}
	if c.state == selecting || err != nil || l.Address != had || !now.Before(l.Expires()) {
		return Step{}
	}
	event := Renewed
	if c.state == requesting {
		event = Acquired
	}
	c.state, c.lease, c.had, c.tries = bound, l, true, 0
	c.next = l.From.Add(l.Renew)
	return Step{Event: event}
}

// refused asks anew if the server that the client asks refuses it.
func (c *Client) refused(now time.Time, m *dhcpv4.DHCPv4) Step {
	server, _ := netip.AddrFromSlice(m.ServerIdentifier().To4())
	event := Refused
	switch c.state {
	case requesting:
		if server != c.offer.Server {
			return Step{}
		}
		event = Nothing
	case renewing, rebinding:
		if server != c.lease.Server && c.state == renewing {
			return Step{}
		}
	case selecting, bound:
		return Step{}
	}
	tries := c.tries
	c.restart()
	if event == Nothing {
		// A server that refuses what it offers is not asked without a pause.
		c.tries = tries
		c.pause(now)
		return Step{}
	}
	return Step{Frame: c.discover(now), Event: event}
}
