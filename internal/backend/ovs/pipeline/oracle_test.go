// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

var dropped = outcome{Drop: true}

// end names the kind of outcome.
func (o outcome) end() string {
	switch {
	case o.Drop:
		return "dropped"
	case o.Answer != intent.MAC{}:
		return "answered"
	case o.Port == datapath.GatewayPort:
		return "host"
	case o.Port == datapath.TunnelPort:
		return "tunnel"
	}
	return "port"
}

// oracle says, from the words of docs/develop/datapath.md and not from flows, what should
// happen to any packet, where there is the default network alone.
type oracle struct{ *intent.State }

func (o oracle) expect(p packet) outcome {
	if p.vlan != 0 {
		return dropped
	}
	network, ok := o.source(p)
	if !ok || p.kind == "arp-reply" && p.inPort != datapath.TunnelPort || p.kind == "advertise" && p.inPort != datapath.TunnelPort {
		return dropped
	}
	if p.inPort != datapath.TunnelPort && (p.kind == "arp-request" || p.kind == "solicit") {
		return o.question(p, network)
	}
	if p.inPort != datapath.TunnelPort && p.src.IsUnspecified() {
		return dropped
	}
	return o.forward(p, network)
}

// source finds the network of a genuine packet.
func (o oracle) source(p packet) (network intent.Network, ok bool) {
	switch p.inPort {
	case datapath.GatewayPort:
		return o.network("default")
	case datapath.TunnelPort:
		for n := range o.Nodes().All() {
			if n.Name != o.Local().Node && slices.Contains(n.Addresses, p.tunSrc) && p.tunSrc.Is4() == o.Local().TunnelIP.Is4() {
				for network := range o.Networks().All() {
					if o.Local().Encapsulation.Tunneled() && network.VNI == p.vni {
						return network, true
					}
				}
			}
		}
		return network, false
	}
	for port := range o.Ports().All() {
		if ofPort(port.ID) == p.inPort && port.Node == o.Local().Node {
			network, ok = o.network(port.Network)
			return network, ok && genuine(port, p)
		}
	}
	return network, false
}

func (o oracle) network(name string) (intent.Network, bool) {
	n, ok := o.Networks().Get(name)
	return n, ok
}

// genuine says whether the packet's source is the port.
func genuine(port intent.Port, p packet) bool {
	own := slices.Contains(port.Addresses, p.src) ||
		p.src == port.MAC.LinkLocal() && slices.ContainsFunc(port.Addresses, netip.Addr.Is6)
	if !own || p.ethSrc != port.MAC {
		return false
	}
	switch p.kind {
	case "arp-request", "arp-reply":
		return p.link == port.MAC && p.src.Is4()
	case "solicit":
		return p.link == port.MAC || p.link == intent.MAC{}
	}
	return true
}

// question answers an ARP request or neighbor solicitation.
func (o oracle) question(p packet, network intent.Network) outcome {
	asked := p.dst
	if p.kind == "solicit" {
		asked = p.target
		if p.ttl != 255 || p.src.IsUnspecified() || p.link == (intent.MAC{}) && p.dst.IsMulticast() {
			return dropped
		}
	}
	if p.kind == "arp-request" && p.src.IsUnspecified() {
		return dropped
	}
	fromPod := p.inPort >= datapath.FirstPodPort
	for port := range o.PortsOf(network.Name) {
		if port.Node != o.Local().Node {
			continue
		}
		linkLocal := asked == port.MAC.LinkLocal() && slices.ContainsFunc(port.Addresses, netip.Addr.Is6)
		if slices.Contains(port.Addresses, asked) || linkLocal {
			if asked.Is4() && ofPort(port.ID) == p.inPort {
				return dropped
			}
			return outcome{Answer: port.MAC}
		}
	}
	for n := range o.Nodes().All() {
		for _, s := range n.Subnets {
			own := n.Name == o.Local().Node
			if s.Gateway == asked && s.Network == network.Name &&
				(own && fromPod || !own && !fromPod && o.Local().Encapsulation.Tunneled()) {
				return outcome{Answer: datapath.RouterMAC}
			}
		}
	}
	if fromPod && network.Name == "default" && asked == datapath.GatewayMAC.LinkLocal() {
		return outcome{Answer: datapath.GatewayMAC}
	}
	return dropped
}

// forward finds the way of an ordinary packet.
func (o oracle) forward(p packet, network intent.Network) outcome {
	fromPod := p.inPort >= datapath.FirstPodPort
	out := outcome{TTL: p.ttl, EthDst: p.ethDst}
	switch {
	case p.ethDst[0]&1 == 1 || p.kind == "arp-request" || p.kind == "arp-reply":
		return dropped
	case p.ethDst == datapath.RouterMAC:
		var ok bool
		if out, ok = o.route(p, network); !ok {
			return dropped
		}
	case p.ethDst == datapath.GatewayMAC && fromPod && network.Name == "default":
		out.Port = datapath.GatewayPort
	default:
		for port := range o.PortsOf(network.Name) {
			if port.Node == o.Local().Node && port.MAC == p.ethDst {
				out.Port = ofPort(port.ID)
			}
		}
	}
	switch policed := o.Local().PolicyMode == intent.EnforcedPolicies; {
	case out.Port == 0:
		return dropped
	case policed:
		out.Lookups = []int{1}
		if !p.reply {
			out.Commits = []int{1}
		} else if p.marked && p.inPort != datapath.GatewayPort {
			out.Port, out.EthDst, out.TunDst = datapath.GatewayPort, datapath.GatewayMAC, netip.Addr{}
		}
	case out.Port == datapath.GatewayPort:
	case p.inPort == datapath.GatewayPort:
		out.Commits = []int{1}
	default:
		out.Lookups = []int{1}
		if p.reply && p.marked {
			out.Port, out.EthDst, out.TunDst = datapath.GatewayPort, datapath.GatewayMAC, netip.Addr{}
		}
	}
	if out.Port == p.inPort {
		return outcome{Drop: true, Lookups: out.Lookups}
	}
	return out
}

// route is the way of a packet that is addressed to the virtual router.
func (o oracle) route(p packet, network intent.Network) (outcome, bool) {
	out := outcome{TTL: p.ttl}
	viaHost := outcome{Port: datapath.GatewayPort, EthDst: datapath.GatewayMAC, TTL: p.ttl}
	if p.src.Is6() && (p.src.IsLinkLocalUnicast() || p.dst.IsLinkLocalUnicast()) {
		return out, false
	}
	for port := range o.Ports().All() {
		other, _ := o.network(port.Network)
		if port.Node == o.Local().Node && slices.Contains(port.Addresses, p.dst) && other.Router == network.Router && other.Router != "" {
			out.Port, out.EthDst = ofPort(port.ID), port.MAC
			return out, true
		}
	}
	for n := range o.Nodes().All() {
		for _, s := range n.Subnets {
			of, _ := o.network(s.Network)
			if !s.Prefix.Contains(p.dst) || of.Router != network.Router {
				continue
			}
			if n.Name == o.Local().Node {
				return viaHost, true
			}
			remote := n.AddressIn(o.Local().TunnelIP)
			if !o.Local().Encapsulation.Tunneled() || !remote.IsValid() {
				continue
			}
			out.Port, out.EthDst, out.TunDst = datapath.TunnelPort, datapath.RouterMAC, remote
			if p.inPort == datapath.GatewayPort {
				return out, true
			}
			if p.ttl <= 1 {
				return viaHost, true
			}
			out.TTL--
			return out, true
		}
	}
	return viaHost, p.inPort >= datapath.FirstPodPort && network.Router == "default"
}
