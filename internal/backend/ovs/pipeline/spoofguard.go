// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// ICMP types that the pipeline looks at.
const (
	icmpRedirect       = 5
	icmp6RouterSolicit = 133
	icmp6RouterAdv     = 134
	icmp6Solicit       = 135
	icmp6Advertise     = 136
	icmp6Redirect      = 137
	hopLimitND         = 255 // proves that the packet crossed no router (RFC 4861, 7.1)
	ndSolicitedFlag    = openflow.NDSolicited | openflow.NDOverride
)

// probed is why questions of a sender without an address are dropped.
const probed = "duplicate address detection needs no answer"

// spoofguardFeature lets a port send only as what it is: its MAC with its addresses, the link-local
// one among them, in IP, ARP and ND alike. The host, behind the gateway port, may send with any
// address, because it forwards.
var spoofguardFeature = &feature{
	number: 3,
	name:   "spoofguard",
	tables: []Table{spoofguard},
	local: func(r *rules) {
		for _, claim := range []struct {
			what   openflow.FieldValue
			reason string
		}{
			{openflow.ICMPv6Type(icmp6RouterAdv), "router advertisements are not allowed"},
			{openflow.ICMPv6Type(icmp6Advertise), "only Coelan answers neighbour solicitations"},
			{openflow.ICMPv6Type(icmp6Redirect), "redirects are not allowed"},
			{openflow.ICMPv4Type(icmpRedirect), "redirects are not allowed"},
			{openflow.ARPOp(openflow.ARPReply), "only Coelan answers ARP requests"},
		} {
			r.on(spoofguard, 300, claim.what).drop(claim.reason)
		}
		// Addresses are unique by allocation: a question whether one is taken is
		// best left unanswered, lest the asker finds itself.
		r.on(spoofguard, 300, openflow.ARPSPA(netip.IPv4Unspecified())).drop(probed)
		r.on(spoofguard, 300, openflow.ICMPv6Type(icmp6Solicit), openflow.IPSrc(netip.IPv6Unspecified())).drop(probed)
		// Every kernel sends such packets when an interface comes up; they are no attack.
		const unspecified = "a packet without a source address goes nowhere"
		r.on(spoofguard, 290, openflow.IPSrc(netip.IPv6Unspecified())).drop(unspecified)
		r.on(spoofguard, 290, openflow.IPSrc(netip.IPv4Unspecified())).drop(unspecified)

		r.on(spoofguard, 250, from(fromGateway), openflow.EthType(openflow.EthTypeARP)).goTo(neighbour)
		r.on(spoofguard, 250, from(fromGateway), openflow.ICMPv6Type(icmp6Solicit)).goTo(neighbour)
		r.on(spoofguard, 240, from(fromGateway)).forward()
	},
	port: func(r *rules, p intent.Port) {
		in, mac := openflow.InPort(r.number(p)), openflow.MAC(p.MAC)
		eth := openflow.EthSrc(mac)
		for _, a := range addresses(p) {
			r.on(spoofguard, 100, in, eth, openflow.IPSrc(a)).forward()
			if a.Is4() {
				r.on(spoofguard, 100, in, eth, openflow.ARPSHA(mac), openflow.ARPSPA(a)).goTo(neighbour)
				continue
			}
			ask := []openflow.FieldValue{in, eth, openflow.IPSrc(a), openflow.ICMPv6Type(icmp6Solicit)}
			r.on(spoofguard, 220, append(ask, openflow.NDSLL(mac))...).goTo(neighbour)
			// The option may be missing in a unicast question.
			r.on(spoofguard, 220, append(ask, openflow.NDSLL(openflow.MAC{}))...).goTo(neighbour)
		}
		const spoofed = "the source address is not the port's"
		r.on(spoofguard, 210, in, openflow.ICMPv6Type(icmp6Solicit)).drop(spoofed)
		r.on(spoofguard, 10, in).drop(spoofed)
	},
}

// addresses are all that a port may send from: its own, and the link-local one
// that its kernel makes from the MAC if the port has IPv6.
func addresses(p intent.Port) []netip.Addr {
	all := p.Addresses[:len(p.Addresses):len(p.Addresses)]
	for _, a := range p.Addresses {
		if a.Is6() {
			return append(all, p.MAC.LinkLocal())
		}
	}
	return all
}
