// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// nextHopFeature sends what leaves the cluster by an external Network to the MAC of the next hop:
// of a host on the Network, or of the gateway of the subnet that the source is of. The agent asks
// for the MACs; it is given the packets that go by one that it does not know, and what neighbors
// answer.
var nextHopFeature = &feature{
	number: 28,
	name:   "next-hop",
	tables: []Table{nextHop, nextHopMAC},
	needed: (*rules).answersOutside,
	local: func(r *rules) {
		for _, physical := range slices.Sorted(maps.Keys(r.numbers.uplinks)) {
			for of := range checkPackets + 1 {
				r.meter(uplinkMeter(r.numbers.Uplink(physical), of), uplinkRates[of])
			}
		}
	},
	network: func(r *rules, n intent.Network) {
		if !r.answering(n) {
			return
		}
		uplink := r.numbers.Uplink(n.Physical)
		if uplink == 0 {
			return // physicalFeature tells
		}
		r.on(output, 80, toPort(uplink), inNetwork(n), openflow.EthSrc(routerMAC)).goTo(toExternal)
		// What neighbors answer to the agent's questions, which have a floating IP as sender.
		r.on(fromExternal, 300, inNetwork(n), openflow.ARPOp(openflow.ARPReply)).do(neighbourHeard(uplink)).end()
		r.on(fromExternal, 300, inNetwork(n), openflow.ICMPv6Type(icmp6Advertise)).do(neighbourHeard(uplink)).end()
		r.quotes(n, uplink)
		r.on(floatingPort, 200, inNetwork(n), tooBig).
			do(openflow.Controller{Userdata: OversizeUserdata, Meter: uplinkMeter(uplink, icmpErrors)}).end()
		for _, s := range n.Subnets {
			r.on(nextHop, 100+uint16(s.Prefix.Bits()), inNetwork(n), openflow.IPDst(s.Prefix)).goTo(nextHopMAC)
			r.on(nextHop, 50, inNetwork(n), openflow.IPSrc(s.Prefix)).do(unresolved(uplink, s.Gateway)).end()
			r.announced(n, uplink, s.Gateway)
		}
		for _, t := range ipTypes {
			r.on(nextHopMAC, 50, inNetwork(n), openflow.EthType(t)).do(unresolved(uplink, netip.Addr{})).end()
		}
	},
	port: func(r *rules, p intent.Port) {
		n, _, ok := r.lookup(p.Network)
		if !ok || !r.answering(n) {
			return
		}
		next := output
		set := []openflow.FieldValue{openflow.EthDst(openflow.MAC(p.MAC)), toPort(r.number(p))}
		if r.policed() {
			next, set = policyState, append(set, uplinkZone)
		}
		for _, a := range p.Addresses {
			r.on(nextHop, 400, inNetwork(n), openflow.IPDst(a)).asFromWire().set(set...).
				do(openflow.Resubmit(next.ID)).end()
		}
	},
}

// announced gives the agent what a gateway tells all: that its MAC is another one.
func (r *rules) announced(n intent.Network, uplink uint32, gateway netip.Addr) {
	in, tag := openflow.InPort(uplink), openflow.NoVLAN()
	if n.VLAN != 0 {
		tag = openflow.VLANVID(n.VLAN)
	}
	tell := func(w flow) flow {
		if n.VLAN != 0 {
			w = w.do(openflow.PopVLAN())
		}
		return w.set(inNetwork(n)).do(neighbourHeard(uplink))
	}
	if !gateway.Is4() {
		tell(r.on(classify, 235, in, tag, openflow.ICMPv6Type(icmp6Advertise), openflow.NDTarget(gateway),
			openflow.EthDst(allNodes))).end()
		return
	}
	sender := openflow.ARPSPA(gateway)
	broadcast := openflow.EthDst(openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	tell(r.on(classify, 235, in, tag, openflow.ARPOp(openflow.ARPReply), sender, broadcast)).end()
	// Such a request asks for the gateway's own address.
	tell(r.on(classify, 235, in, tag, openflow.ARPOp(openflow.ARPRequest), sender, openflow.ARPTPA(gateway))).end()
}

// allNodes is the MAC of the group of all nodes (RFC 2464, section 7).
var allNodes = openflow.MAC{0x33, 0x33, 0, 0, 0, 1}

// What the agent is given for the sake of next hops.
const (
	// UnresolvedUserdata is what packets bring along that go by a next hop with an unknown MAC.
	UnresolvedUserdata = "coelan/unresolved"
	// NeighbourUserdata is what ARP packets and neighbor advertisements from the wire bring along.
	NeighbourUserdata = "coelan/neighbour"
	// OversizeUserdata is what packets from the wire bring along that are too big for the Port of
	// their floating IP.
	OversizeUserdata = "coelan/oversize"
)

// unresolved gives the agent a packet that goes by gateway, or to a host on the Network itself.
func unresolved(uplink uint32, gateway netip.Addr) openflow.Action {
	userdata := UnresolvedUserdata
	if gateway.IsValid() {
		userdata += detailMark + gateway.String()
	}
	return openflow.Controller{Userdata: userdata, Meter: uplinkMeter(uplink, unresolvedPackets)}
}

// neighbourHeard gives the agent what a neighbor on the wire tells.
func neighbourHeard(uplink uint32) openflow.Action {
	return openflow.Controller{Userdata: NeighbourUserdata, Meter: uplinkMeter(uplink, neighbourPackets)}
}

// compileNeighbour emits the flows to a next hop with a known MAC.
func (r *rules) compileNeighbour(key string) (owner string, ok bool) {
	k, valid := parseNeighbour(key)
	mac, known := r.numbers.neighbour(k)
	if !valid || !known {
		return "", false
	}
	r.owner = "neighbour/" + key
	r.begin(nextHopFeature)
	n, _, ok := r.lookup(k.Network)
	if !ok || !r.answering(n) {
		return r.owner, true
	}
	for _, s := range n.Subnets {
		if s.Gateway == k.Address {
			r.on(nextHop, 60, inNetwork(n), openflow.IPSrc(s.Prefix)).toWire(n, openflow.MAC(mac))
		}
	}
	r.on(nextHopMAC, 100, inNetwork(n), openflow.IPDst(k.Address)).toWire(n, openflow.MAC(mac))
	return r.owner, true
}

// toWire ends a flow of packets that go to a MAC on the wire of an external Network.
func (w flow) toWire(n intent.Network, to openflow.MAC) {
	w.set(openflow.EthDst(to)).do(tagged(n)...).do(openflow.OutputField(regOutput)).end()
}

// uplinkPackets are what the agent is given of an uplink, each with a meter of its own.
type uplinkPackets uint32

const (
	neighbourPackets uplinkPackets = iota
	unresolvedPackets
	icmpErrors
	checkPackets
)

// uplinkRates are how many of them the agent is given in a second.
var uplinkRates = map[uplinkPackets]uint32{
	neighbourPackets: 500, unresolvedPackets: 200, icmpErrors: 200, checkPackets: 1000,
}

// firstUplinkMeter is above the meters of all Ports.
const firstUplinkMeter = 1 << 17

// uplinkMeter is the number of a meter.
func uplinkMeter(uplink uint32, of uplinkPackets) uint32 {
	return firstUplinkMeter + uplink<<2 + uint32(of)
}

// LocalAddress is an address of an external Network that this node answers for.
type LocalAddress struct {
	Network string
	Address netip.Addr
	MAC     intent.MAC
	// Zone has the connections that are translated to the address; 0: none are.
	Zone uint16
	// Silent says that the node still lets out by the address, but does not answer for it: another
	// node is about to.
	Silent bool
}

// LocalAddresses are all that this node answers for, or lets out by, sorted by Network and address.
func LocalAddresses(in Input) []LocalAddress {
	var list []LocalAddress
	for f := range localFloatingIPs(in.State) {
		if t, ok := askFor(in).translation(f); ok {
			list = append(list, LocalAddress{Network: f.Network, Address: f.Address, MAC: intent.MAC(t.mac)})
		}
	}
	for f := range in.State.ChosenFloatingIPs() {
		if e, ok := askFor(in).chosen(f); ok {
			list = append(list, LocalAddress{Network: f.Network, Address: f.Address, MAC: intent.MAC(e.mac)})
		}
	}
	for g := range in.State.GatewayAddressesAt(in.State.Local().Node) {
		if e, rt, ok := askFor(in).gateway(g); ok {
			a := LocalAddress{Network: g.Network, Address: g.Address, MAC: intent.MAC(e.mac)}
			if !g.Routed {
				a.Zone = datapath.GatewayZone(rt.ID)
			}
			list = append(list, a)
		}
	}
	for a := range in.State.EgressAddressesAt(in.State.Local().Node) {
		state := in.Numbers.egressState(ExternalKey{a.Network, a.Address})
		if e, rt, ok := askFor(in).egressHere(a); ok && state.Active == in.State.Local().Node {
			list = append(list, LocalAddress{
				Network: a.Network, Address: a.Address, MAC: intent.MAC(e.mac), Zone: datapath.GatewayZone(rt.ID),
				Silent: state.Silent,
			})
		}
	}
	slices.SortFunc(list, func(a, b LocalAddress) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Address.Compare(b.Address))
	})
	return slices.Compact(list) // of several Ports of one name
}

// NetworkOf is the name of the external Network that the agent was given a packet of; false if it
// is gone.
func NetworkOf(s *intent.State, p *openflow.PacketIn2) (name string, ok bool) {
	id, _ := p.Metadata.Get(regNetwork.All())
	for n := range s.NetworksOf("") { // physical ones have no router
		if uint64(n.ID) == id && (n.External || n.Leased) {
			return n.Name, true
		}
	}
	return "", false
}

// ToWire puts a packet without a tag onto the wire of a physical Network.
func ToWire(in Input, network string) ([]openflow.Action, error) {
	n, uplink, err := externalUplink(in, network)
	if err != nil {
		return nil, err
	}
	return append(tagged(n), openflow.Output(uplink)), nil
}

// FromWire has a packet without a tag come in as one from the wire of an external Network, by the
// OpenFlow port inPort.
func FromWire(in Input, network string) (actions []openflow.Action, inPort uint32, err error) {
	n, inPort, err := externalUplink(in, network)
	if err != nil {
		return nil, 0, err
	}
	return append(tagged(n), openflow.Resubmit(classify.ID)), inPort, nil
}

// externalUplink is a physical Network with the OpenFlow port that leads to it.
func externalUplink(in Input, network string) (n intent.Network, uplink uint32, err error) {
	n, _ = in.State.Networks().Get(network)
	if uplink = in.Numbers.Uplink(n.Physical); uplink == 0 {
		err = fmt.Errorf("network %s: it does not exist, or this node is not connected to it", network)
	}
	return n, uplink, err
}

// OversizeOf is how much of a packet fits the Port of its floating IP, in bytes.
func OversizeOf(p *openflow.PacketIn2) (mtu int) {
	return int(number(p.Metadata, regPathMTU)) //nolint:gosec // of 16 bits
}

// tagged gives a packet the tag of a physical Network.
func tagged(n intent.Network) []openflow.Action {
	if n.VLAN == 0 {
		return nil
	}
	return []openflow.Action{openflow.PushVLAN(openflow.EthTypeVLAN), openflow.SetField(openflow.VLANVID(n.VLAN))}
}
