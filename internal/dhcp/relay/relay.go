// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/packet"
)

// ServerPort is that of servers and of relays, which ask from it.
const ServerPort = 67

const clientPort = 68

const (
	// maxHops is how many relays a question may pass (RFC 1542, section 4.1.1).
	maxHops = 16
	// maxID bounds both texts of option 82, which has 255 bytes for all.
	maxID = 120
	// hopLimit is that of packets to machines, which are next to the relay.
	hopLimit = 64
)

// The parts of option 82 (RFC 3046, 3527).
const (
	circuitID     = 1
	remoteID      = 2
	linkSelection = 5
)

// Origin is what servers are told of an interface that asks.
type Origin struct {
	// Relay is the address that they answer to (giaddr).
	Relay netip.Addr
	// Subnet is the one that they choose an address of.
	Subnet netip.Prefix
	// Interface and Node are the circuit and the remote identifier: texts, which are shortened if
	// they are too long.
	Interface, Node string
}

// Option is the value of option 82. It is the same for all that the interface asks.
func (o Origin) Option() []byte {
	var b []byte
	for _, part := range []struct {
		code  byte
		value []byte
	}{
		{circuitID, []byte(short(o.Interface))}, {remoteID, []byte(short(o.Node))},
		{linkSelection, o.Subnet.Masked().Addr().AsSlice()},
	} {
		b = append(append(b, part.code, byte(len(part.value))), part.value...) //nolint:gosec // at most maxID
	}
	return b
}

// short is a text of at most maxID bytes. A longer one ends with its hash, so that it is different
// from others that begin like it.
func short(text string) string {
	if len(text) <= maxID {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	end := "~" + hex.EncodeToString(sum[:8])
	return text[:maxID-len(end)] + end
}

// Question reads a frame in which a client asks.
func Question(frame []byte) (*dhcpv4.DHCPv4, error) {
	p, ok := packet.Parse(frame)
	if !ok || p.Is6() {
		return nil, errors.New("it is no IPv4 packet")
	}
	source, destination, data, ok := p.Datagram()
	if !ok || source != clientPort || destination != ServerPort {
		return nil, errors.New("it is no message of a DHCP client")
	}
	m, err := dhcpv4.FromBytes(data)
	if err != nil {
		return nil, err
	}
	if m.OpCode != dhcpv4.OpcodeBootRequest || m.HWType != iana.HWTypeEthernet {
		return nil, errors.New("it is no question of an Ethernet interface")
	}
	return m, nil
}

// Relayed is what servers are asked in place of what a client asks. What was relayed before, or
// brings an option 82 of its own, is refused: the client is next to the relay.
func (o Origin) Relayed(m *dhcpv4.DHCPv4) ([]byte, error) {
	switch {
	case !m.GatewayIPAddr.IsUnspecified() || m.Options.Has(dhcpv4.OptionRelayAgentInformation):
		return nil, errors.New("it names another relay")
	case m.HopCount >= maxHops:
		return nil, errors.New("it has passed too many relays")
	}
	r := *m
	r.Options = maps.Clone(m.Options)
	r.HopCount++
	r.GatewayIPAddr = o.Relay.AsSlice()
	r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, o.Option()))
	return r.ToBytes(), nil
}

// Answer reads what a server answers a relay: the message without option 82, and that.
func Answer(data []byte) (m *dhcpv4.DHCPv4, option []byte, err error) {
	m, err = dhcpv4.FromBytes(data)
	if err != nil {
		return nil, nil, err
	}
	if m.OpCode != dhcpv4.OpcodeBootReply || m.HWType != iana.HWTypeEthernet {
		return nil, nil, errors.New("it is no answer to an Ethernet interface")
	}
	option = m.GetOneOption(dhcpv4.OptionRelayAgentInformation)
	if len(option) == 0 {
		return nil, nil, errors.New("it does not return option 82 (RFC 3046)")
	}
	m.Options.Del(dhcpv4.OptionRelayAgentInformation)
	m.GatewayIPAddr = net.IPv4zero
	return m, option, nil
}

// CheckSubnet is an error if a message gives an address that is not of the subnet.
func CheckSubnet(m *dhcpv4.DHCPv4, subnet netip.Prefix) error {
	given, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
	if given.IsUnspecified() || subnet.Contains(given) {
		return nil
	}
	return fmt.Errorf("it gives %s, which is not of subnet %s: does it have a pool for that, and follow the link "+
		"selection of RFC 3527?", given, subnet)
}

// Frame is an answer as the client receives it, of a server's address and a MAC: broadcast if the
// client asks for that or has no address, else to its address (RFC 1542, section 4.1.2).
func Frame(m *dhcpv4.DHCPv4, server netip.Addr, source net.HardwareAddr) []byte {
	mac, to := packet.Broadcast, netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if !m.IsBroadcast() {
		for _, ip := range []net.IP{m.ClientIPAddr, m.YourIPAddr} {
			if a, ok := netip.AddrFromSlice(ip.To4()); ok && !a.IsUnspecified() {
				mac, to = m.ClientHWAddr, a
				break
			}
		}
	}
	datagram := packet.UDPFrom(netip.AddrPortFrom(server, ServerPort), netip.AddrPortFrom(to, clientPort), m.ToBytes())
	p := packet.Header{Source: server, Destination: to, Protocol: packet.UDP, HopLimit: hopLimit}.Packet(datagram)
	return packet.Ethernet(mac, source, p.Type(), p)
}
