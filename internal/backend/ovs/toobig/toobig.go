// SPDX-License-Identifier: Apache-2.0

// Package toobig decides what becomes of packets that are too big for their way to another node, or
// for a Port, as a router would: the sender is told by ICMP how much fits, or, if it allows
// fragments, the packet goes on in these (RFC 1191, RFC 4443). It sends nothing itself.
package toobig

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/openflow"
)

// Outcome is what becomes of a packet.
type Outcome string

// The outcomes.
const (
	Answered   Outcome = "answered"   // its sender is told what fits
	Fragmented Outcome = "fragmented" // it goes on in fragments
	Dropped    Outcome = "dropped"    // no answer is due, or the sender is not known any more
)

// Handle returns what the switch has to send because of a packet.
func Handle(in pipeline.Input, o pipeline.Oversize) ([]*openflow.PacketOut, Outcome) {
	p, ok := parse(o.Frame)
	if !ok {
		return nil, Dropped
	}
	if mayFragment(p) {
		return sendOn(o, fragments(p, o.MTU))
	}
	to, ok := senderOf(in, o, p)
	if !ok {
		return nil, Dropped
	}
	p = asSent(p, to.own, o.Destination, o.SourcePort)
	if !to.router.IsValid() {
		to.router = p.Destination()
	}
	text, ok := tooBig(p, to.router, o.MTU)
	if !ok {
		return nil, Dropped
	}
	frame := slices.Concat(to.mac[:], datapath.RouterMAC[:], o.Frame[12:packet.EthernetLen], text)
	return []*openflow.PacketOut{{InPort: openflow.PortController, Packet: frame, Actions: to.way}}, Answered
}

// FromOutside returns the frames because of a packet from outside of the cluster that is too big
// for the Port of its floating IP: those that go to its sender if it is answered, and those that go
// on in its place if it is fragmented.
func FromOutside(frame []byte, mtu int) ([][]byte, Outcome) {
	p, ok := parse(frame)
	if !ok {
		return nil, Dropped
	}
	if mayFragment(p) {
		var frames [][]byte
		for _, f := range fragments(p, mtu) {
			frames = append(frames, slices.Concat(frame[:packet.EthernetLen], f))
		}
		return frames, Fragmented
	}
	text, ok := tooBig(p, p.Destination(), mtu)
	if !ok {
		return nil, Dropped
	}
	return [][]byte{slices.Concat(frame[6:12], frame[:6], frame[12:packet.EthernetLen], text)}, Answered
}

// sendOn sends fragments to where the packet would have gone.
func sendOn(o pipeline.Oversize, packets [][]byte) (out []*openflow.PacketOut, outcome Outcome) {
	if len(packets) == 0 {
		return nil, Dropped
	}
	way := pipeline.Deliver(o.OutPort)
	if o.OutPort == datapath.TunnelPort {
		way = throughTunnel(o.TunnelDst, o.TunnelID)
	}
	for _, p := range packets {
		out = append(out, &openflow.PacketOut{
			InPort: openflow.PortController, Packet: slices.Concat(o.Frame[:packet.EthernetLen], p), Actions: way,
		})
	}
	return out, Fragmented
}

func throughTunnel(remote netip.Addr, key uint64) []openflow.Action {
	return []openflow.Action{
		openflow.SetField(openflow.TunDst(remote)), openflow.SetField(openflow.TunnelID(key)),
		openflow.Output(datapath.TunnelPort),
	}
}

// sender is where an answer goes.
type sender struct {
	mac intent.MAC
	// own is the address that the sender has sent from, router that of the router that answers; the
	// zero Addr: whatever the packet was sent to answers.
	own, router netip.Addr
	way         []openflow.Action
}

// senderOf finds the sender of a packet. The source may have been rewritten by now.
func senderOf(in pipeline.Input, o pipeline.Oversize, p packet.IP) (sender, bool) {
	s, source := in.State, p.Source()
	toOther := o.OutPort == datapath.TunnelPort
	switch {
	case !toOther && o.Reply:
		return sender{}, false // which port the endpoint has sent from is not known any more
	case o.InPort == datapath.TunnelPort:
		receiver, ok := portNumbered(in, o.OutPort)
		if !ok || !o.TunnelSrc.IsValid() {
			return sender{}, false
		}
		// The other node routes the answer to the sender: the virtual router's MAC has it do
		// so in every Network.
		a, ok := routerOf(s, receiver, source)
		return sender{datapath.RouterMAC, source, a, throughTunnel(o.TunnelSrc, o.TunnelID)}, ok
	}
	back := []openflow.Action{openflow.Output(o.InPort)}
	if o.InPort == datapath.GatewayPort {
		if !toOther {
			// The node's kernel takes no packet from an address of its own, as
			// the virtual router's is.
			return sender{datapath.GatewayMAC, source, netip.Addr{}, back}, true
		}
		// For it, the other node is the next hop.
		for n := range s.Nodes().All() {
			if slices.Contains(n.Addresses, o.TunnelDst) {
				a, ok := gatewayOf(n.Subnets, source)
				return sender{datapath.GatewayMAC, source, a, back}, ok
			}
		}
		return sender{}, false
	}
	port, ok := portNumbered(in, o.InPort)
	if !ok {
		return sender{}, false
	}
	own := source
	if slices.Contains(port.NodeAddresses, source) {
		own = firstOf(port.Addresses, source)
	}
	a, ok := routerOf(s, port, own)
	return sender{port.MAC, own, a, back}, ok
}

// portNumbered finds a Port of this node.
func portNumbered(in pipeline.Input, number uint32) (intent.Port, bool) {
	id, _ := in.Numbers.PortAt(number)
	return in.State.Ports().Get(id)
}

// routerOf is the address of the virtual router on a Port's Network.
func routerOf(s *intent.State, p intent.Port, like netip.Addr) (netip.Addr, bool) {
	n, ok := s.Networks().Get(p.Network)
	if !ok {
		return netip.Addr{}, false
	}
	for _, sn := range n.Subnets {
		if sn.Gateway.IsValid() && sn.Gateway.Is4() == like.Is4() {
			return sn.Gateway, true
		}
	}
	local, _ := s.LocalNode()
	return gatewayOf(local.Subnets, like)
}

func gatewayOf(subnets []intent.Subnet, like netip.Addr) (netip.Addr, bool) {
	for _, sn := range subnets {
		if sn.Gateway.Is4() == like.Is4() {
			return sn.Gateway, true
		}
	}
	return netip.Addr{}, false
}

func firstOf(addresses []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range addresses {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return like
}
