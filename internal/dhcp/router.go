// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// Neighbor discovery's messages and options (RFC 4861, sections 4.1, 4.2 and 4.6; RFC 8106).
const (
	routerSolicitation  = 133
	routerAdvertisement = 134
	optionSourceLink    = 1
	optionPrefix        = 3
	optionMTU           = 5
	optionDNSServers    = 25
	optionDNSSearch     = 31

	managedFlag  = 1 << 7 // addresses are to be had by DHCPv6
	otherFlag    = 1 << 6 // other settings are
	onLinkFlag   = 1 << 7 // of a prefix
	selfMadeFlag = 1 << 6

	discoveryHopLimit = 255
	// routerLifetime is as long as can be said (RFC 8319, section 4): machines keep the default
	// route while their node's agent is away.
	routerLifetime = 65535 * time.Second
	infinite       = 0xffffffff // seconds
	// minMTU is what every link carries (RFC 8200, section 5).
	minMTU = 1280
)

// allNodes is the group of all nodes on a link (RFC 4291, section 2.7.1).
var allNodes = netip.MustParseAddr("ff02::1")

// solicited answers a router solicitation. The answer goes to the machine's Port alone.
func solicited(p packet.IP, l Lease) Answer {
	ignored := Answer{Protocol: Discovery, Outcome: Ignored}
	_, at, first := p.Transport()
	const hopLimitAt = 7
	if !first || len(p) < at+icmpv6Len || p[at] != routerSolicitation || p[at+1] != 0 ||
		p[hopLimitAt] != discoveryHopLimit {
		return ignored
	}
	to := p.Source()
	if to.IsUnspecified() {
		to = allNodes
	}
	frame := l.advertisement(to, routerLifetime)
	if frame == nil || !to.IsLinkLocalUnicast() && to != allNodes && !slices.Contains(l.Addresses, to) {
		return ignored
	}
	return Answer{Protocol: Discovery, Outcome: Answered, Frame: frame}
}

// Advertisement is the router advertisement that the machine of a Port is to have before it asks;
// nil: none. It differs from an earlier one if the machine is to be told of a change.
func Advertisement(l Lease) []byte { return l.advertisement(allNodes, routerLifetime) }

// Withdrawal is the router advertisement by which the machine gives up the default route of an
// earlier Advertisement (RFC 4861, section 6.2.5).
func Withdrawal(l Lease) []byte { return l.advertisement(allNodes, 0) }

// advertisement is a router advertisement to an address; nil if the machine is to have none.
func (l Lease) advertisement(to netip.Addr, lifetime time.Duration) []byte {
	if l.IPv6 == intent.NoIPv6 || len(of(l.Addresses, true)) == 0 {
		return nil
	}
	flags := uint32(otherFlag)
	if l.asked() {
		flags |= managedFlag
	}
	// The hop limit, flags and lifetime are what an ICMPv6 message has before its body.
	rest := uint32(hopLimit)<<24 | flags<<16 | uint32(lifetime/time.Second) //nolint:gosec // of 16 bits
	// It begins with the times of reachability and retransmission, which are unspecified.
	body := make([]byte, 8)
	body = append(body, optionSourceLink, 1)
	body = append(body, l.Router[:]...)
	body = binary.BigEndian.AppendUint32(append(body, optionMTU, 1, 0, 0), uint32(l.MTU)) //nolint:gosec // positive
	for _, s := range l.Subnets {
		if s.Prefix.Addr().Is6() {
			body = l.appendPrefix(body, s.Prefix)
		}
	}
	body = l.appendDNS(body)
	src := l.Router.LinkLocal()
	p := packet.Header{Source: src, Destination: to, Protocol: packet.ICMPv6, HopLimit: discoveryHopLimit}.Packet(
		packet.ICMPv6From(src, to, routerAdvertisement, 0, rest, body))
	return packet.Ethernet(l.MAC.HardwareAddr(), l.Router.HardwareAddr(), p.Type(), p)
}

func (l Lease) appendPrefix(body []byte, prefix netip.Prefix) []byte {
	flags := byte(onLinkFlag)
	if l.selfMade(prefix) {
		flags |= selfMadeFlag
	}
	body = append(body, optionPrefix, 4, byte(prefix.Bits()), flags)
	body = binary.BigEndian.AppendUint32(body, infinite) // valid
	body = binary.BigEndian.AppendUint32(body, infinite) // preferred
	body = append(body, 0, 0, 0, 0)
	return append(body, prefix.Addr().AsSlice()...)
}

// appendDNS adds the name servers and search domains, which not all machines ask for by DHCPv6.
func (l Lease) appendDNS(body []byte) []byte {
	const unit = 8 // of an option's length
	if servers := of(l.DNS.Servers, true); len(servers) > 0 {
		body = append(body, optionDNSServers, byte(1+2*len(servers)), 0, 0)
		body = binary.BigEndian.AppendUint32(body, infinite)
		for _, a := range servers {
			body = append(body, a.AsSlice()...)
		}
	}
	if search := domains(l.DNS.Searches); search != nil {
		names := search.ToBytes()
		for len(names)%unit != 0 {
			names = append(names, 0)
		}
		if packet.IPv6Len+icmpv6Len+len(body)+unit+len(names) > minMTU {
			return body
		}
		body = append(body, optionDNSSearch, byte(1+len(names)/unit), 0, 0)
		body = binary.BigEndian.AppendUint32(body, infinite)
		body = append(body, names...)
	}
	return body
}
