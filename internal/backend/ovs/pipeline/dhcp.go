// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// dhcpFeature gives the agent what machines ask about their addresses, on Networks where it
// answers: messages to DHCP servers, to DHCPv6 servers and to routers. It does so before addresses
// are checked, since a machine that asks may have none; the agent answers the Port, whatever the
// address. What Ports send to machines as a DHCP server or router would is dropped, but from
// trusted Ports.
var dhcpFeature = &feature{
	number: 33,
	name:   DHCPFeature,
	network: func(r *rules, n intent.Network) {
		if n.DHCP.Enabled && n.DHCP.IPv6 != intent.NoIPv6 && r.attached(n.Name) {
			// Advertisements come from it, so it is machines' next hop.
			r.knows(datapath.RouterMAC.LinkLocal(), datapath.RouterMAC, openflow.NDRouter, inNetwork(n))
		}
	},
	port: func(r *rules, p intent.Port) {
		n, _, ok := r.network(p.Network)
		if !ok || !n.DHCP.Enabled {
			return
		}
		for _, v6 := range []bool{false, true} {
			if hasFamily(p, v6) && !(v6 && n.DHCP.IPv6 == intent.NoIPv6) {
				r.requests(n, p, v6)
			}
			r.rogue(p, v6)
		}
	},
}

// DHCPFeature is the name of the feature in traces.
const DHCPFeature = "dhcp"

// DHCPUserdata is what messages of machines that ask about their addresses bring along.
const DHCPUserdata = "coelan/dhcp"

const (
	// dhcpMeter and the number of a Port are that of the meter of its requests. Lower ones are
	// uplinkMeter's.
	dhcpMeter = firstUplinkMeter + 1<<12
	// dhcpRate is how many requests of a Port the agent is given in a second. A machine that starts
	// sends a handful.
	dhcpRate = 20

	dhcpServer, dhcpClient     = 67, 68
	dhcpv6Server, dhcpv6Client = 547, 546
)

var (
	allBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	// allAgents is the group of DHCPv6's servers and relays (RFC 8415, section 7.1).
	allAgents = netip.MustParseAddr("ff02::1:2")
)

// requests gives the agent what the machine of a Port asks in one family.
func (r *rules) requests(n intent.Network, p intent.Port, v6 bool) {
	known := []openflow.FieldValue{openflow.InPort(r.number(p)), openflow.EthSrc(openflow.MAC(p.MAC))}
	give := func(fields ...openflow.FieldValue) {
		r.on(spoofguard, 310, append(fields, known...)...).
			do(openflow.Controller{Userdata: DHCPUserdata, Meter: r.dhcpMeter(r.number(p))}).end()
	}
	if v6 {
		give(openflow.IPDst(allAgents), openflow.L4Dst(openflow.IPProtoUDP, dhcpv6Server))
		give(openflow.ICMPv6Type(icmp6RouterSolicit), openflow.IPTTL(hopLimitND))
		return
	}
	server := openflow.L4Dst(openflow.IPProtoUDP, dhcpServer)
	give(openflow.IPDst(allBroadcast), server)
	for _, s := range n.Subnets {
		if s.Gateway.Is4() { // a machine that has its address asks the server alone
			give(openflow.IPDst(s.Gateway), server)
		}
	}
}

// dhcpMeter has a meter bound how many requests of a port the agent gets in a second.
func (r *rules) dhcpMeter(port uint32) uint32 {
	id := dhcpMeter + port
	for _, m := range r.meters {
		if m.ID == id {
			return id
		}
	}
	r.meter(id, dhcpRate)
	return id
}

// rogue drops what a Port sends to machines as their server would, unless it is trusted.
func (r *rules) rogue(p intent.Port, v6 bool) {
	family, client := openflow.EthType(openflow.EthTypeIPv4), uint16(dhcpClient)
	if v6 {
		family, client = openflow.EthType(openflow.EthTypeIPv6), dhcpv6Client
	}
	in := openflow.InPort(r.number(p))
	if !p.Trusted {
		r.on(spoofguard, 305, in, family, openflow.L4Dst(openflow.IPProtoUDP, client)).
			drop("only trusted ports may send as a DHCP server")
		return
	}
	if v6 && hasFamily(p, true) {
		r.on(spoofguard, 305, in, openflow.EthSrc(openflow.MAC(p.MAC)), openflow.IPSrc(p.MAC.LinkLocal()),
			openflow.ICMPv6Type(icmp6RouterAdv)).forward()
	}
}

func hasFamily(p intent.Port, v6 bool) bool {
	for _, a := range p.Addresses {
		if a.Is6() == v6 {
			return true
		}
	}
	return false
}
