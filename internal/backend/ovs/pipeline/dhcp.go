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
//
// Where DHCP servers of a physical network give the addresses, the agent asks them for pods: it is
// given what they answer, and pods neither ask nor answer by themselves. Machines ask by
// themselves, and the agent is given what they ask, too: it passes questions and answers on. Where
// it asks servers elsewhere, as a relay, what answers by the wire is none of them, and is dropped.
var dhcpFeature = &feature{
	number: 33,
	name:   DHCPFeature,
	network: func(r *rules, n intent.Network) {
		if uplink := r.numbers.Uplink(n.Physical); n.Leased && uplink != 0 {
			r.replies(n, uplink)
		}
		if n.DHCP.Enabled && n.DHCP.IPv6 != intent.NoIPv6 && r.attached(n.Name) {
			// Advertisements come from it, so it is machines' next hop.
			r.knows(datapath.RouterMAC.LinkLocal(), datapath.RouterMAC, openflow.NDRouter, inNetwork(n))
		}
	},
	port: func(r *rules, p intent.Port) {
		n, _, ok := r.network(p.Network)
		switch {
		case n.Leased && p.IsMachine():
			r.passedOn(p)
		case n.Leased:
			r.unasked(p)
		}
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

// LeaseUserdata is what answers of DHCP servers of a physical network bring along.
const LeaseUserdata = "coelan/lease"

// DHCPUserdata is what messages of machines that ask about their addresses bring along.
const DHCPUserdata = "coelan/dhcp"

const (
	// dhcpMeter and the number of a Port are that of the meter of its requests. Lower ones are
	// uplinkMeter's.
	dhcpMeter = firstUplinkMeter + 1<<12
	// dhcpRate is how many requests of a Port the agent is given in a second. A machine that starts
	// sends a handful.
	dhcpRate = 20
	// firstLeaseMeter is that of the answers of DHCP servers to the first uplink, untagged: above
	// the requests of all Ports.
	firstLeaseMeter = dhcpMeter + 1<<16
	// leaseRate is how many such answers the agent is given in a second by a Network: some of them
	// may be broadcast, and for hosts elsewhere.
	leaseRate = 500

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

// leaseMeter is the number of the meter of what DHCP servers of a Network answer: one Network has a
// VLAN of an uplink.
func leaseMeter(n intent.Network, uplink uint32) uint32 {
	return firstLeaseMeter + (uplink-datapath.FirstUplinkPort)<<12 + uint32(n.VLAN)
}

// replies gives the agent what DHCP servers of a physical network answer.
func (r *rules) replies(n intent.Network, uplink uint32) {
	tag := openflow.NoVLAN()
	if n.VLAN != 0 {
		tag = openflow.VLANVID(n.VLAN)
	}
	reply := r.on(classify, 235, openflow.InPort(uplink), tag, openflow.EthType(openflow.EthTypeIPv4),
		openflow.L4Dst(openflow.IPProtoUDP, dhcpClient))
	if n.Relay.Enabled {
		reply.drop("the node asks other DHCP servers, as a relay")
		return
	}
	reply = reply.set(inNetwork(n))
	r.meter(leaseMeter(n, uplink), leaseRate)
	if n.VLAN != 0 {
		reply = reply.do(openflow.PopVLAN())
	}
	reply.do(openflow.Controller{Userdata: LeaseUserdata, Meter: leaseMeter(n, uplink)}).end()
}

// unasked drops what a Port says to DHCP clients and servers: its address is leased for it, and it
// could give back those of others.
func (r *rules) unasked(p intent.Port) {
	for _, to := range []uint16{dhcpServer, dhcpClient} {
		r.on(spoofguard, 305, openflow.InPort(r.number(p)), openflow.EthType(openflow.EthTypeIPv4),
			openflow.L4Dst(openflow.IPProtoUDP, to)).drop("the node asks for the port's address")
	}
}

// passedOn gives the agent what the machine of a Port asks servers that are not its node's. What
// it says to clients as a server is dropped: it would teach others, or the agent, addresses.
func (r *rules) passedOn(p intent.Port) {
	in := openflow.InPort(r.number(p))
	r.on(spoofguard, 310, in, openflow.EthSrc(openflow.MAC(p.MAC)), openflow.EthType(openflow.EthTypeIPv4),
		openflow.L4Dst(openflow.IPProtoUDP, dhcpServer)).
		do(openflow.Controller{Userdata: DHCPUserdata, Meter: r.dhcpMeter(r.number(p))}).end()
	r.on(spoofguard, 305, in, openflow.EthType(openflow.EthTypeIPv4), openflow.L4Dst(openflow.IPProtoUDP, dhcpClient)).
		drop("a machine is no DHCP server here")
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
