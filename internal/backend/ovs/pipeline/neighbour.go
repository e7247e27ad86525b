// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// neighbourFeature answers ARP requests and neighbor solicitations, so that
// nothing has to be flooded. One flow per address knows the MAC; the tables
// after it make any question into its answer.
var neighbourFeature = &feature{
	number: 4,
	name:   "neighbour",
	tables: []Table{neighbour, answer, advertisement},
	local:  answers,
	network: func(r *rules, n intent.Network) {
		_, rt, ok := r.lookup(n.Name)
		if !ok || n.Name == intent.DefaultNetworkName || n.Physical != "" {
			return
		}
		if whole, _, ok := r.lookup(intent.DefaultNetworkName); ok && !rt.Private() {
			for _, s := range n.Subnets {
				r.knowsAll(s.Prefix, inNetwork(whole), from(fromGateway))
			}
		}
		if !r.attached(n.Name) {
			return
		}
		// What is on link for an interface is not all in the network: other networks and other
		// nodes are behind the router.
		for _, s := range n.Subnets {
			r.knows(s.Gateway, datapath.RouterMAC, openflow.NDRouter, inNetwork(n))
			r.knowsAll(s.Prefix, inNetwork(n))
		}
		if n.FromNodes() {
			for _, s := range r.localSubnets() {
				r.knows(s.Gateway, datapath.RouterMAC, openflow.NDRouter, inNetwork(n))
				r.knowsAll(s.Prefix, inNetwork(n))
			}
		}
	},
	node: func(r *rules, n intent.Node) {
		// Pods ask for their node's gateway, which the virtual router is. The host
		// asks for those of other nodes, its next hops to their pods.
		asker := fromGateway
		if n.Name == r.local.Node {
			asker = fromPod
		} else if !r.tunneled() {
			return
		}
		for _, s := range n.Subnets {
			if network, _, ok := r.network(s.Network); ok {
				r.knows(s.Gateway, datapath.RouterMAC, openflow.NDRouter, inNetwork(network), from(asker))
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		network, _, ok := r.network(p.Network)
		if !ok {
			return
		}
		for _, a := range addresses(p) {
			r.knows(a, p.MAC, 0, inNetwork(network))
			if a.Is4() && network.Physical == "" {
				r.on(neighbour, 200, openflow.InPort(r.number(p)), openflow.ARPTPA(a)).
					drop("a port that announces its own address needs no answer")
			}
		}
		// The default network has the node's subnets on link, and the host too.
		for _, a := range foreign(network, p) {
			if whole, _, ok := r.network(intent.DefaultNetworkName); ok {
				r.knows(a, datapath.RouterMAC, 0, inNetwork(whole))
			}
		}
	},
	remote: func(r *rules, p intent.Port) {
		if network, _, ok := r.l2Endpoint(p); ok {
			for _, a := range addresses(p) {
				r.knows(a, p.MAC, 0, inNetwork(network))
			}
		}
	},
}

// foreign are the addresses of the node's subnets that a port of another network
// than the default one has.
func foreign(n intent.Network, p intent.Port) []netip.Addr {
	if n.FromNodes() && n.Name != intent.DefaultNetworkName {
		return p.Addresses
	}
	return p.NodeAddresses
}

// knows makes mac the answer to ARP requests and neighbor solicitations for address,
// under the given conditions.
func (r *rules) knows(address netip.Addr, mac intent.MAC, flags uint64, when ...openflow.FieldValue) {
	r.known(100, host(address), mac, flags, when)
}

// knowsAll makes the virtual router the answer for what in a prefix is not known
// better.
func (r *rules) knowsAll(prefix netip.Prefix, when ...openflow.FieldValue) {
	r.known(50, prefix, datapath.RouterMAC, 0, when)
}

func (r *rules) known(priority uint16, who netip.Prefix, mac intent.MAC, flags uint64, when []openflow.FieldValue) {
	number := uint64(0)
	for _, b := range mac {
		number = number<<8 | uint64(b)
	}
	set := []openflow.FieldValue{regMAC.Field.Value(number)}
	if who.Addr().Is4() {
		when = append(when, openflow.ARPOp(openflow.ARPRequest), openflow.ARPTPA(who))
	} else {
		when = append(when, openflow.NDTarget(who), openflow.ICMPv6Type(icmp6Solicit), openflow.IPTTL(hopLimitND))
		set = append(set, regFlags.Field.Value(flags|ndSolicitedFlag))
	}
	r.on(neighbour, priority, when...).set(set...).goTo(answer)
}

// answers emits the tables that make a question into its answer, with the MAC and
// flags that the registers hold.
func answers(r *rules) {
	if n, _, ok := r.network(intent.DefaultNetworkName); ok {
		r.knows(datapath.GatewayMAC.LinkLocal(), datapath.GatewayMAC, openflow.NDRouter, inNetwork(n), from(fromPod))
	}
	back := []openflow.Action{
		openflow.Move(openflow.FieldEthSrc.All(), openflow.FieldEthDst.All()),
		openflow.Move(regMAC, openflow.FieldEthSrc.All()),
	}
	r.on(answer, 100, openflow.ARPOp(openflow.ARPRequest)).
		do(back...).
		set(openflow.ARPOp(openflow.ARPReply)).
		do(
			openflow.Move(openflow.FieldARPSHA.All(), openflow.FieldARPTHA.All()),
			openflow.Move(openflow.FieldARPSPA.All(), regSpare),
			openflow.Move(openflow.FieldARPTPA.All(), openflow.FieldARPSPA.All()),
			openflow.Move(regSpare, openflow.FieldARPTPA.All()),
			openflow.Move(regMAC, openflow.FieldARPSHA.All()),
			openflow.OutputInPort(),
		).end()

	back = append(back,
		openflow.Move(openflow.FieldIPv6Src.All(), openflow.FieldIPv6Dst.All()),
		openflow.Move(openflow.FieldNDTarget.All(), openflow.FieldIPv6Src.All()),
		openflow.SetField(openflow.ICMPv6Type(icmp6Advertise)),
		openflow.Move(regFlags, openflow.FieldNDReserved.All()),
	)
	solicit, code := openflow.ICMPv6Type(icmp6Solicit), openflow.ICMPv6Code(0)
	noSLL := openflow.NDSLL(openflow.MAC{})
	r.on(answer, 120, solicit, noSLL, openflow.IPDst(netip.MustParsePrefix("ff00::/8"))).
		drop("a multicast neighbour solicitation must tell the asker's MAC")
	// Without an option in the question there is none to write the MAC into. A
	// unicast answer may lack it (RFC 4861, 7.2.4), since the asker knew the MAC.
	r.on(answer, 110, solicit, noSLL).do(back...).do(openflow.OutputInPort()).end()
	r.on(answer, 100, solicit, code).do(back...).goTo(advertisement)
	// A table of its own, because nd_tll may be set only where the match says that
	// the packet is an advertisement. The type of the option, and above the flags,
	// are moved from registers because Open vSwitch refuses to set these two fields
	// on the kernel datapath, which cannot change them; moved, it changes them in
	// the slow path, as it does with most of ARP and ND on both datapaths.
	const targetLinkLayerAddress = 2
	r.on(advertisement, 100, openflow.ICMPv6Type(icmp6Advertise), code).
		set(regSpare.Field.Value(targetLinkLayerAddress)).
		do(
			openflow.Move(regSpare.Field.Bits(0, 7), openflow.FieldNDOptionsType.All()),
			openflow.Move(regMAC, openflow.FieldNDTLL.All()),
			openflow.OutputInPort(),
		).end()
}
