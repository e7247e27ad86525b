// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// physicalFeature joins the ports of a network to a physical one, by the uplink:
// what no port here is meant by goes there, with the network's VLAN tag; what
// comes from there goes to ports of this node only. Tags stay on packets from the
// uplink until they reach a port, so that answers have them.
var physicalFeature = &feature{
	number: 13,
	name:   "physical",
	network: func(r *rules, n intent.Network) {
		if n.Physical == "" || !r.attached(n.Name) && !r.answering(n) {
			return
		}
		uplink := r.numbers.Uplink(n.Physical)
		if uplink == 0 {
			r.problem("no OpenFlow port leads to physical network %q", n.Physical)
			return
		}
		in, tag := openflow.InPort(uplink), openflow.NoVLAN()
		if n.VLAN != 0 {
			tag = openflow.VLANVID(n.VLAN)
		}
		known := []openflow.FieldValue{from(fromUplink), inNetwork(n)}
		// The wire is not ours to guard, but questions that we answer must not be forwarded.
		r.on(classify, 240, in, tag, openflow.ICMPv6Type(icmp6Solicit),
			openflow.IPSrc(netip.IPv6Unspecified())).drop(probed)
		r.on(classify, 230, in, tag, openflow.ARPOp(openflow.ARPRequest)).set(known...).goTo(neighbour)
		r.on(classify, 230, in, tag, openflow.ICMPv6Type(icmp6Solicit)).set(known...).goTo(neighbour)
		r.on(classify, 210, in, tag).set(known...).goTo(l2)

		r.on(neighbour, 10, from(fromPod), inNetwork(n)).goTo(l2)
		toWire := r.on(l2, 220, from(fromPod), inNetwork(n))
		if r.policed() {
			toWire.set(toPort(uplink)).judgeOnWire()
			toWire = r.on(output, 70, toPort(uplink), inNetwork(n))
		}
		toWire = toWire.do(tagged(n)...)
		if r.policed() {
			toWire.do(openflow.OutputField(regOutput)).end()
			return
		}
		toWire.set(toPort(uplink)).goTo(output)
	},
	port: func(r *rules, p intent.Port) {
		n, _, ok := r.lookup(p.Network)
		if !ok || n.Physical == "" || len(p.Addresses) == 0 && !p.IsMachine() {
			return // the lease of a pod is over, and it can answer nothing
		}
		mac := openflow.EthDst(openflow.MAC(p.MAC))
		r.on(l2, 230, from(fromPod), inNetwork(n), mac).set(toPort(r.number(p))).judgeOnWire()
		fromWire := r.on(l2, 230, from(fromUplink), inNetwork(n), mac)
		if n.VLAN != 0 {
			fromWire = r.on(l2, 230, from(fromUplink), inNetwork(n), mac, openflow.AnyVLAN()).do(openflow.PopVLAN())
		}
		fromWire.set(toPort(r.number(p))).judgeOnWire()
		// Switches on the way learn from it where the address is now.
		for _, a := range p.Addresses {
			if a.Is4() {
				r.on(neighbour, 200, openflow.InPort(r.number(p)), openflow.ARPTPA(a)).goTo(l2)
			}
		}
	},
}

// judgeOnWire ends the flow where the output port is chosen in a physical network. The owners of
// its addresses are not known here.
func (w flow) judgeOnWire() {
	if w.rules.policed() {
		w.set(inZone(datapath.PhysicalZone)).goTo(policyState)
		return
	}
	w.goTo(output)
}

// toOwnNode keeps from the wire what a port answers its own node: it comes from
// node address a, which stands for own.
func (r *rules) toOwnNode(p intent.Port, own, a netip.Addr) {
	whole, ok := r.defaultRouter()
	if !ok {
		return
	}
	for _, s := range r.localSubnets() {
		if s.Gateway.Is4() == a.Is4() {
			w := r.on(l2, 240, openflow.InPort(r.number(p)), openflow.IPSrc(own), openflow.IPDst(s.Gateway)).
				set(openflow.IPSrc(a), inRouter(whole))
			if r.native() { // it may be an endpoint's answer
				w.set(inNoNetwork, openflow.EthDst(routerMAC), asked).do(openflow.Resubmit(service.ID)).end()
				continue
			}
			w.set(viaGateway()...).deliver()
		}
	}
}
