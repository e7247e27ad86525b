// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/bfd"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policyRouteFeature sends what leaves by an address of an Egress with next hops to one of these,
// with the Port's own address. conntrack, in the zone of the Egress's Router, remembers the next
// hop of each connection in ct_label, and knows the answers, which come to the MAC of the address.
// New connections are spread over the next hops that work: by bits of the client's port, or of its
// address where there is no port. Bit 0 of the port is not among them: Linux prefers even ones.
var policyRouteFeature = &feature{
	number: 32,
	name:   "policy-route",
	tables: []Table{policyRoute, policyHop}, // egressFeature fills them
}

// The slots that new connections are spread over.
const (
	hopSlotBits = 6
	hopSlots    = 1 << hopSlotBits
)

var regHopSlot = regBits(openflow.Reg(10), 17, 17+hopSlotBits-1, "policy routes",
	"slot of a new connection, each of which has a next hop")

// policyPath is what an Egress with next hops says of the way; false if it has none.
func (r *rules) policyPath(egress string) (intent.EgressPath, bool) {
	if egress == "" {
		return intent.EgressPath{}, false
	}
	r.dependOn(unitKey{kindPath, egress})
	path, ok := r.state.EgressPaths().Get(egress)
	return path, ok && len(path.NextHops) > 0
}

// byPolicy sends what leaves with the MAC of the address to next hops.
func (e externalAddress) byPolicy(rt intent.Router, path intent.EgressPath) {
	r := e.r
	leaving := []openflow.FieldValue{inNetwork(e.external), openflow.EthSrc(e.mac), familyOf(e.address)}
	hops := e.usable(path)
	if len(hops) == 0 {
		r.on(policyRoute, 50, leaving...).drop(e.noHop(path))
		return
	}
	for _, hop := range hops {
		when := append(leaving[:len(leaving):len(leaving)], isLater, ctHop(hop))
		e.toHop(r.on(policyRoute, 100, when...), hop)
	}
	r.on(policyRoute, 90, append(leaving[:len(leaving):len(leaving)], isInvalid)...).
		drop("conntrack cannot follow the connection")
	for i := range hopSlots {
		if len(hops) == 1 && i > 0 {
			break
		}
		when := leaving[:len(leaving):len(leaving)]
		if len(hops) > 1 {
			when = append(when, regHopSlot.Value(uint64(i)))
		}
		hop := hops[i%len(hops)]
		commit := openflow.CT{
			Commit: true, Zone: datapath.GatewayZone(rt.ID), Exec: []openflow.Action{openflow.SetField(ctHop(hop))},
		}
		e.toHop(r.on(policyHop, 100, when...).do(commit), hop)
	}
	address := openflow.FieldIPv4Src
	if e.address.Is6() {
		address = openflow.FieldIPv6Src
	}
	r.on(policyRoute, 50, leaving...).do(openflow.Move(address.Bits(0, hopSlotBits-1), regHopSlot)).goTo(policyHop)
	for _, p := range portProtocols {
		port := openflow.L4Src(p, 0).Field().Bits(1, hopSlotBits)
		r.on(policyRoute, 60, append(leaving[:len(leaving)-1:len(leaving)-1], protocolOf(e.address, p)...)...).
			do(openflow.Move(port, regHopSlot)).goTo(policyHop)
	}
}

// portProtocols are the IP protocols with ports: TCP, UDP and SCTP.
var portProtocols = []uint8{openflow.IPProtoTCP, openflow.IPProtoUDP, openflow.IPProtoSCTP}

// protocolOf matches packets of an IP protocol, of the family of an address.
func protocolOf(like netip.Addr, protocol uint8) []openflow.FieldValue {
	return []openflow.FieldValue{familyOf(like), openflow.IPProto(protocol)}
}

// toHop ends a flow of packets to a next hop, of which the agent finds the MAC if it is not known.
func (e externalAddress) toHop(w flow, hop netip.Addr) {
	key := NeighbourKey{e.external.Name, hop}
	e.r.dependOn(unitKey{kindNeighbour, key.text()})
	if mac, known := e.r.numbers.neighbour(key); known {
		w.toWire(e.external, openflow.MAC(mac))
		return
	}
	w.do(unresolved(e.uplink, hop)).end()
}

// usable are the next hops of the family of the address that work, as far as this node knows.
func (e externalAddress) usable(path intent.EgressPath) (list []netip.Addr) {
	for _, hop := range path.NextHops {
		if hop.Is4() == e.address.Is4() && !e.r.hopDown(NextHopKey{e.external.Name, e.address, hop}) {
			list = append(list, hop)
		}
	}
	return list
}

// noHop is why there is no next hop.
func (e externalAddress) noHop(path intent.EgressPath) string {
	var silent []string
	for _, hop := range path.NextHops {
		if hop.Is4() == e.address.Is4() {
			silent = append(silent, hop.String())
		}
	}
	if len(silent) == 0 {
		return fmt.Sprintf("Egress %s has no next hop of this family", path.Name)
	}
	return fmt.Sprintf("no next hop of Egress %s answers: %s", path.Name, strings.Join(silent, ", "))
}

// hopDown reports whether a next hop does not work.
func (r *rules) hopDown(key NextHopKey) bool {
	r.dependOn(unitKey{kindHop, key.text()})
	return r.numbers.hopDown(key)
}

// ctHop matches or sets the next hop of a connection.
func ctHop(hop netip.Addr) openflow.FieldValue {
	b := hop.As16()
	return openflow.CTLabel([2]uint64{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])},
		[2]uint64{1<<64 - 1, 1<<64 - 1})
}

// track looks up the connection that leaves by a next hop.
func (e externalAddress) track(rt intent.Router) openflow.Action {
	return openflow.CT{Zone: datapath.GatewayZone(rt.ID), Table: openflow.Table(policyRoute.ID)}
}

// answersByPolicy takes from the wire what is sent to the MAC of the address, and leads what
// conntrack knows for an answer to its Port. What tells whether next hops work is the agent's.
func (e externalAddress) answersByPolicy(rt intent.Router, path intent.EgressPath) {
	r := e.r
	to := append(e.toMAC(), familyOf(e.address))
	r.on(floatingIP, 80, to...).measured(r.mtuIn(rt))
	r.on(floatingPort, 80, to...).set(inNoNetwork, inRouter(rt)).do(openflow.DecTTL(), openflow.CT{
		Zone: datapath.GatewayZone(rt.ID), Table: openflow.Table(gatewayReply.ID),
	}).end()
	for _, icmp := range icmpErrorsOf(e.address) { // what they quote is as it was sent
		r.on(fromExternal, 250, append(e.toMAC(), icmp)...).goTo(floatingIP)
	}
	for _, hop := range path.NextHops {
		if answer := e.checked(path.Check.Protocol, hop); answer != nil {
			r.on(fromExternal, 300, append(e.sent(), answer...)...).
				do(openflow.Controller{Userdata: NextHopUserdata, Meter: uplinkMeter(e.uplink, checkPackets)}).end()
		}
	}
}

// checked matches what a next hop answers to checks of that protocol; nil: there are none of it.
func (e externalAddress) checked(protocol intent.NextHopProtocol, hop netip.Addr) []openflow.FieldValue {
	if hop.Is4() != e.address.Is4() {
		return nil
	}
	switch protocol {
	case intent.CheckICMP:
		if hop.Is6() {
			return []openflow.FieldValue{openflow.IPSrc(hop), openflow.ICMPv6Type(icmp6EchoReply)}
		}
		return []openflow.FieldValue{openflow.IPSrc(hop), openflow.ICMPv4Type(icmpEchoReply)}
	case intent.CheckBFD:
		return []openflow.FieldValue{openflow.IPSrc(hop), openflow.L4Dst(openflow.IPProtoUDP, bfd.Port)}
	}
	return nil
}

// NextHopUserdata is what answers of next hops bring along that tell whether they work.
const NextHopUserdata = "coelan/next-hop"

const (
	icmpEchoReply  = 0
	icmp6EchoReply = 129
)

// NextHopTarget is a next hop of an EgressAddress that this node is active for, and how
// that is checked.
type NextHopTarget struct {
	NextHopKey
	SourceMAC intent.MAC
	Check     intent.NextHopCheck
}

// NextHopTargets are the next hops of all addresses that this node is active for.
func NextHopTargets(in Input) (list []NextHopTarget) {
	for a := range in.State.EgressAddressesAt(in.State.Local().Node) {
		r := askFor(in)
		path, ok := r.policyPath(a.Egress)
		if !ok || r.egressState(a).Active != in.State.Local().Node {
			continue
		}
		e, _, ok := r.egressHere(a)
		if !ok {
			continue
		}
		for _, hop := range path.NextHops {
			if hop.Is4() == a.Address.Is4() {
				list = append(list, NextHopTarget{NextHopKey{a.Network, a.Address, hop}, intent.MAC(e.mac), path.Check})
			}
		}
	}
	return list
}

// ByPolicy reports whether flows of a table send to the next hops of an Egress.
func ByPolicy(table int) bool { return table == int(policyRoute.ID) || table == int(policyHop.ID) }

// PolicyHop is the next hop that the actions of a flow for an address send to; not valid if they
// send to none.
func PolicyHop(in Input, a intent.EgressAddress, actions []string) Hop {
	path, _ := in.State.EgressPaths().Get(a.Egress)
	all := strings.Join(actions, " ")
	for _, hop := range path.NextHops {
		if hop.Is4() != a.Address.Is4() {
			continue // of the same station, with the same MAC
		}
		mac, known := in.Numbers.neighbour(NeighbourKey{a.Network, hop})
		if known && strings.Contains(all, openflow.SetField(openflow.EthDst(openflow.MAC(mac))).String()) ||
			strings.Contains(all, openflow.SetField(ctHop(hop)).String()) {
			return Hop{Address: hop, MAC: mac}
		}
	}
	return Hop{}
}
