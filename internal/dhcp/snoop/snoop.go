// SPDX-License-Identifier: Apache-2.0

package snoop

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/dhcp"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

const (
	serverPort, clientPort = 67, 68
	// answerTime is how long after a question its answer passes.
	answerTime = 2 * time.Minute
	// maxQuestions bounds how many questions of a machine are remembered; older ones are given up.
	maxQuestions = 8
)

// Lease is what a machine has of a server. Its JSON is what an agent stores. The zero value: it has
// nothing.
type Lease struct {
	// Address carries the length of the subnet's prefix; that of one address if the server says no
	// mask.
	Address netip.Prefix `json:"address,omitzero"`
	Expires time.Time    `json:"expires,omitzero"`
	// HostName is what the machine calls itself; empty: nothing that is a name.
	HostName string `json:"hostName,omitempty"`
}

// Binding is what is known of one machine. It is not safe for concurrent use.
type Binding struct {
	MAC intent.MAC
	// Lease is what it has. The owner of the Binding changes it as Ask and Answer say.
	Lease Lease
	asked []question // oldest first
}

type question struct {
	id       dhcpv4.TransactionID
	kind     dhcpv4.MessageType
	at       time.Time
	hostName string
}

// Question reads a frame in which a machine asks: the address that it came from, and what it says.
func Question(frame []byte) (from netip.Addr, m *dhcpv4.DHCPv4, ok bool) {
	p, ok := packet.Parse(frame)
	if !ok || p.Is6() {
		return from, nil, false
	}
	source, destination, data, ok := p.Datagram()
	if !ok || source != clientPort || destination != serverPort {
		return from, nil, false
	}
	m, err := dhcpv4.FromBytes(data)
	return p.Source(), m, err == nil
}

// Ask judges what the machine asks: whether it passes, and whether the machine gives its address
// up by that.
func (b *Binding) Ask(now time.Time, from netip.Addr, m *dhcpv4.DHCPv4) (pass, givesUp bool) {
	if m.OpCode != dhcpv4.OpcodeBootRequest || !b.own(m) || !m.GatewayIPAddr.IsUnspecified() ||
		m.Options.Has(dhcpv4.OptionRelayAgentInformation) || !b.ownIdentifier(m) {
		return false, false
	}
	has := b.Lease.Address.Addr()
	client, _ := netip.AddrFromSlice(m.ClientIPAddr.To4())
	if !from.IsUnspecified() && from != has && from != client {
		return false, false
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		if !client.IsUnspecified() {
			return false, false
		}
	case dhcpv4.MessageTypeRequest:
		// It may ask for an address that is not known to be its own: the server knows.
	case dhcpv4.MessageTypeInform:
		if client != has {
			return false, false
		}
	case dhcpv4.MessageTypeRelease:
		return client == has, client == has
	case dhcpv4.MessageTypeDecline:
		declined, _ := netip.AddrFromSlice(m.RequestedIPAddress().To4())
		return declined == has, declined == has
	default:
		return false, false
	}
	b.remember(question{m.TransactionID, m.MessageType(), now, dhcp.MachineName(m.HostName())})
	return true, false
}

// own reports whether a message is about the machine.
func (b *Binding) own(m *dhcpv4.DHCPv4) bool {
	return m.HWType == iana.HWTypeEthernet && bytes.Equal(m.ClientHWAddr, b.MAC[:])
}

// ownIdentifier reports whether the client identifier, by which servers know a machine in the first
// place (RFC 2131, section 4.2), is not the MAC of another one.
func (b *Binding) ownIdentifier(m *dhcpv4.DHCPv4) bool {
	id := m.GetOneOption(dhcpv4.OptionClientIdentifier)
	if len(id) != 1+len(b.MAC) || id[0] != byte(iana.HWTypeEthernet) {
		return true
	}
	return bytes.Equal(id[1:], b.MAC[:])
}

func (b *Binding) remember(q question) {
	b.asked = slices.DeleteFunc(b.asked, func(o question) bool {
		return o.id == q.id && o.kind == q.kind || q.at.Sub(o.at) > answerTime
	})
	if len(b.asked) == maxQuestions {
		b.asked = slices.Delete(b.asked, 0, 1)
	}
	b.asked = append(b.asked, q)
}

// Answer judges what a server answers: whether it passes, and which lease the machine has by it;
// nil: the same as before.
func (b *Binding) Answer(now time.Time, m *dhcpv4.DHCPv4) (pass bool, lease *Lease) {
	if m.OpCode != dhcpv4.OpcodeBootReply || !b.own(m) {
		return false, nil
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeOffer:
		_, asked := b.question(now, m, dhcpv4.MessageTypeDiscover)
		return asked, nil
	case dhcpv4.MessageTypeNak:
		_, asked := b.question(now, m, dhcpv4.MessageTypeRequest)
		if !asked {
			return false, nil
		}
		return true, &Lease{}
	case dhcpv4.MessageTypeAck:
		if _, informed := b.question(now, m, dhcpv4.MessageTypeInform); informed {
			return true, nil
		}
		// A server may acknowledge a DISCOVER at once (RFC 4039).
		q, asked := b.question(now, m, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDiscover)
		l, ok := read(m)
		if !asked || !ok {
			return false, nil
		}
		l.Expires, l.HostName = q.at.Add(m.IPAddressLeaseTime(0)), q.hostName
		return true, &l
	}
	return false, nil
}

// question is the newest one of some kinds that a message answers.
func (b *Binding) question(now time.Time, m *dhcpv4.DHCPv4, kinds ...dhcpv4.MessageType) (question, bool) {
	for _, q := range slices.Backward(b.asked) {
		if q.id == m.TransactionID && slices.Contains(kinds, q.kind) {
			return q, now.Sub(q.at) <= answerTime
		}
	}
	return question{}, false
}

// read reads the address that a server acknowledges.
func read(m *dhcpv4.DHCPv4) (Lease, bool) {
	address, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
	if !address.IsGlobalUnicast() || m.IPAddressLeaseTime(0) <= 0 {
		return Lease{}, false
	}
	ones, bits := m.SubnetMask().Size()
	if bits != 8*net.IPv4len || ones == 0 {
		ones = address.BitLen()
	}
	return Lease{Address: netip.PrefixFrom(address, ones)}, true
}
