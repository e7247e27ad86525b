// SPDX-License-Identifier: Apache-2.0

//go:build integration

package compile

import (
	"net/netip"
	"slices"

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
	case o.Port == intent.GatewayPort:
		return "host"
	case o.Port == intent.TunnelPort:
		return "tunnel"
	}
	return "port"
}

// oracle says, from the words of docs/datapath.md and not from flows, what should
// happen to any packet, where there is the default network alone.
type oracle struct{ *intent.State }

func (o oracle) expect(p packet) outcome {
	if p.vlan != 0 {
		return dropped
	}
	network, ok := o.source(p)
	if !ok || p.kind == "arp-reply" && p.inPort != intent.TunnelPort || p.kind == "advertise" && p.inPort != intent.TunnelPort {
		return dropped
	}
	if p.inPort != intent.TunnelPort && (p.kind == "arp-request" || p.kind == "solicit") {
		return o.question(p, network)
	}
	if p.inPort != intent.TunnelPort && p.src.IsUnspecified() {
		return dropped
	}
	return o.forward(p, network)
}

// source finds the network of a genuine packet.
func (o oracle) source(p packet) (network intent.Network, ok bool) {
	switch p.inPort {
	case intent.GatewayPort:
		return o.network("default")
	case intent.TunnelPort:
		for n := range o.Nodes().All() {
			if n.Name != o.Local().Node && slices.Contains(n.Addresses, p.tunSrc) && p.tunSrc.Is4() == o.Local().TunnelIP.Is4() {
				for network := range o.Networks().All() {
					if o.Local().Encapsulation.Tunnelled() && network.VNI == p.vni {
						return network, true
					}
				}
			}
		}
		return network, false
	}
	for port := range o.Ports().All() {
		if port.OFPort == p.inPort && port.Node == o.Local().Node {
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

// question answers who has an address.
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
	fromPod := p.inPort >= intent.FirstPodPort
	for port := range o.PortsOf(network.Name) {
		if port.Node != o.Local().Node {
			continue
		}
		linkLocal := asked == port.MAC.LinkLocal() && slices.ContainsFunc(port.Addresses, netip.Addr.Is6)
		if slices.Contains(port.Addresses, asked) || linkLocal {
			if asked.Is4() && port.OFPort == p.inPort {
				return dropped
			}
			return outcome{Answer: port.MAC}
		}
	}
	for n := range o.Nodes().All() {
		for _, s := range n.Subnets {
			own := n.Name == o.Local().Node
			if s.Gateway == asked && s.Network == network.Name &&
				(own && fromPod || !own && !fromPod && o.Local().Encapsulation.Tunnelled()) {
				return outcome{Answer: intent.RouterMAC}
			}
		}
	}
	if fromPod && network.Name == "default" && asked == intent.GatewayMAC.LinkLocal() {
		return outcome{Answer: intent.GatewayMAC}
	}
	return dropped
}

// forward finds the way of an ordinary packet.
func (o oracle) forward(p packet, network intent.Network) outcome {
	fromPod := p.inPort >= intent.FirstPodPort
	out := outcome{TTL: p.ttl, EthDst: p.ethDst}
	switch {
	case p.ethDst[0]&1 == 1 || p.kind == "arp-request" || p.kind == "arp-reply":
		return dropped
	case p.ethDst == intent.RouterMAC:
		var ok bool
		if out, ok = o.route(p, network); !ok {
			return dropped
		}
	case p.ethDst == intent.GatewayMAC && fromPod && network.Name == "default":
		out.Port = intent.GatewayPort
	default:
		for port := range o.PortsOf(network.Name) {
			if port.Node == o.Local().Node && port.MAC == p.ethDst {
				out.Port = port.OFPort
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
		} else if p.marked && p.inPort != intent.GatewayPort {
			out.Port, out.EthDst, out.TunDst = intent.GatewayPort, intent.GatewayMAC, netip.Addr{}
		}
	case out.Port == intent.GatewayPort:
	case p.inPort == intent.GatewayPort:
		out.Commits = []int{1}
	default:
		out.Lookups = []int{1}
		if p.reply && p.marked {
			out.Port, out.EthDst, out.TunDst = intent.GatewayPort, intent.GatewayMAC, netip.Addr{}
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
	viaHost := outcome{Port: intent.GatewayPort, EthDst: intent.GatewayMAC, TTL: p.ttl}
	if p.src.Is6() && (p.src.IsLinkLocalUnicast() || p.dst.IsLinkLocalUnicast()) {
		return out, false
	}
	for port := range o.Ports().All() {
		other, _ := o.network(port.Network)
		if port.Node == o.Local().Node && slices.Contains(port.Addresses, p.dst) && other.Router == network.Router && other.Router != "" {
			out.Port, out.EthDst = port.OFPort, port.MAC
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
			if !o.Local().Encapsulation.Tunnelled() || !remote.IsValid() {
				continue
			}
			out.Port, out.EthDst, out.TunDst = intent.TunnelPort, intent.RouterMAC, remote
			if p.inPort == intent.GatewayPort {
				return out, true
			}
			if p.ttl <= 1 {
				return viaHost, true
			}
			out.TTL--
			return out, true
		}
	}
	return viaHost, p.inPort >= intent.FirstPodPort && network.Router == "default"
}
