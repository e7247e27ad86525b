// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// Registers hold what is known of a packet on its way.
//
//	reg0[0..3]  where it came from (a source)
//	reg0[4]     its source address means something in its private Router only
//	reg0[5]     the host's kernel sends it for a port of a private Router, to a Service's endpoint
//	reg0[6..10] of Services: see registers there
//	reg0[12..14] mark of a connection that is committed, to bit 17 where policies are enforced
//	reg0[18..]  of policies: see registers there
//	reg1        id of its Network; 0 if another node has routed it
//	reg2        its Router (VRF); the low 16 bits are its conntrack zone, and in tables of policies also the space that its
//	            addresses mean something in
//	reg3        OpenFlow port to send it out of, or nowhere
//	xreg2       (reg4, reg5) MAC that answers a question
//	reg6        flags of a neighbour advertisement
//	reg7        scratch
//	reg8        number of a Service's port and list of endpoints
//	reg9        number of the endpoint among these; 0: none yet
//	reg10       the port that the packet was sent to
//	reg11       1: the Service is public
//	reg12       the IPv4 address that the packet was sent to
//	xxreg3      (reg12 to reg15) the IPv6 address that the packet was sent to
var (
	regZone   = openflow.Reg(2).Bits(0, 15)
	regOutput = openflow.Reg(3).All()
	regMAC    = openflow.XReg(2).Bits(0, 47)
	regFlags  = openflow.Reg(6).All()
	regSpare  = openflow.Reg(7).All()
)

// source is the kind of port on which a packet came in.
type source uint8

const (
	fromPod     source = 1
	fromGateway source = 2
	fromTunnel  source = 3
	fromUplink  source = 4
)

// from matches or sets the source.
func from(s source) openflow.FieldValue { return openflow.Reg(0).Masked(uint64(s), 0xf) }

// inNetwork matches or sets the network.
func inNetwork(n intent.Network) openflow.FieldValue { return openflow.Reg(1).Value(uint64(n.ID)) }

// inNoNetwork is where a packet is that has been routed.
var inNoNetwork = openflow.Reg(1).Value(0)

// tenantSource matches or sets what tells that the host's kernel could not answer.
var tenantSource = openflow.Reg(0).Masked(1<<4, 1<<4)

// ofPrivate matches or sets what tells that the kernel has translated the packet
// for a port of a private router; notOfPrivate takes it away.
var (
	ofPrivate    = openflow.Reg(0).Masked(1<<5, 1<<5)
	notOfPrivate = openflow.Reg(0).Masked(0, 1<<5)
)

// inRouter matches or sets the router and its conntrack zone. Shared routers have
// one space of addresses and hence one zone with the default router; their id is
// in the upper half.
func inRouter(r intent.Router) openflow.FieldValue {
	if r.Private() || r.Name == intent.DefaultRouterName {
		return openflow.Reg(2).Value(uint64(r.ID))
	}
	return openflow.Reg(2).Value(uint64(r.ID)<<16 | uint64(intent.DefaultRouter))
}

// zone is the conntrack zone of a router.
func zone(r intent.Router) intent.RouterID {
	if r.Private() {
		return r.ID
	}
	return intent.DefaultRouter
}

// inZone sets the conntrack zone alone.
func inZone(z intent.RouterID) openflow.FieldValue {
	return openflow.Reg(2).Masked(uint64(z), 0xffff)
}

// toPort matches or sets the output port.
func toPort(port uint32) openflow.FieldValue { return openflow.Reg(3).Value(uint64(port)) }

// nowhere is the output port of what only conntrack may still save.
const nowhere = 0xffff_ffff

// What tables of Services note of a packet, in reg0.
var (
	asked     = openflow.Reg(0).Masked(1<<6, 1<<6)   // conntrack knows it in the cluster's zone, or will be asked next
	notAsked  = openflow.Reg(0).Masked(0, 1<<6)      //
	ofService = openflow.Reg(0).Masked(1<<7, 1<<7)   // of a connection of a Service
	chosen    = openflow.Reg(0).Masked(1<<8, 1<<8)   // the first of its connection: an endpoint has been chosen
	hairpin   = openflow.Reg(0).Masked(1<<9, 1<<9)   // leaves by the port that it came in by
	external  = openflow.Reg(0).Masked(1<<10, 1<<10) // a client outside of the cluster keeps its address
)

// The mark that a connection will have, in reg0.
var (
	regMark         = openflow.Reg(0).Bits(12, 14)
	markFromGateway = openflow.Reg(0).Masked(1<<12, 1<<12)
	markService     = openflow.Reg(0).Masked(1<<13, 1<<13)
	markPublic      = openflow.Reg(0).Masked(1<<14, 1<<14)
)

// Of the Service's frontend.
var (
	regServed    = openflow.Reg(8)
	regEndpoint  = openflow.Reg(9)
	regPort      = openflow.Reg(10)
	publicServed = openflow.Reg(11).Value(1)
	regAddress4  = openflow.Reg(12)
	regAddress6  = openflow.XXReg(3)
)

// Conntrack zones of the cluster's address space: that of all Services, and one for the source of those packets alone that
// leave by the port that they came in by. No router has the latter's number.
const (
	clusterZone = uint16(intent.DefaultRouter)
	sourceZone  = 0xffff
)

// Bits of ct_mark.
const (
	bitFromGateway = 1
	bitService     = 2
)

// ctFromGateway is the bit of ct_mark that says that the connection's first
// packet came from the gateway port.
var ctFromGateway = openflow.CTMark(bitFromGateway, bitFromGateway)

// The other bits of ct_mark: the connection is a Service's, and the Service is public.
var (
	ctService = openflow.CTMark(bitService, bitService)
	ctPublic  = openflow.CTMark(6, 6)
	ctMark    = openflow.FieldCTMark.Bits(0, 2)
)

var (
	routerMAC  = openflow.MAC(intent.RouterMAC)
	gatewayMAC = openflow.MAC(intent.GatewayMAC)
)

// What policies know of a packet, in reg0 if not said otherwise.
var (
	// regSpace is the conntrack zone of the router that the packet's addresses mean something in, in tables of policies:
	// clusterZone where they are the cluster's, intent.PhysicalZone on physical networks.
	regSpace = regZone
	// regSubject is the Port that is judged: its number, and which tables have rules for it.
	regSubject = openflow.Reg(6)
	regClass   = openflow.XReg(2)                     // who the other end is: the groups that it has
	regDenied  = openflow.XReg(2)                     // the cookie of the flow that denies the packet
	toOwnNode  = openflow.Reg(0).Masked(1<<18, 1<<18) // a port sends it to its own node
	toService  = openflow.Reg(0).Masked(1<<20, 1<<20) // a port sends it to a Service that kube-proxy balances
	notToOwner = openflow.Reg(0).Masked(1<<21, 1<<21) // it goes to a port that does not have the address that it is for
	refused    = openflow.Reg(0).Masked(1<<19, 1<<19) // the host's kernel tells the sender that a Service has no endpoint

	notToOwnNode = openflow.Reg(0).Masked(0, 1<<18)
	notOfService = openflow.Reg(0).Masked(0, 1<<7)
	// byClusterIP is in the register of the port that was asked.
	byClusterIP = openflow.Reg(10).Masked(1<<16, 1<<16)
)

// The bits of ct_mark that policies set.
const (
	MarkDenied uint32 = 1 << 3 // the connection is not allowed any more: its replies are dropped
	MarkHost   uint32 = 1 << 4 // a process of the node began it, which may reach every port of the node
	MarkJudged uint32 = 1 << 5 // it was committed where policies are enforced
)

// What they are in matches and actions, and in the mark that reg0 holds of a connection that is committed: there, denied
// is never set.
var (
	markHost     = openflow.Reg(0).Masked(1<<16, 1<<16)
	markJudged   = openflow.Reg(0).Masked(1<<17, 1<<17)
	ctDenied     = openflow.CTMark(MarkDenied, MarkDenied)
	ctNotDenied  = openflow.CTMark(0, MarkDenied)
	ctHost       = openflow.CTMark(MarkHost, MarkHost)
	ctNotJudged  = openflow.CTMark(0, MarkJudged)
	ctJudgedOnly = openflow.CTMark(MarkJudged, MarkJudged|MarkDenied)
)

// markOf gives a connection the mark that reg0 holds, and for policies the port that it came in by first.
func (r *rules) markOf() []openflow.Action {
	if r.policed() {
		return []openflow.Action{
			openflow.Move(openflow.Reg(0).Bits(12, 17), openflow.FieldCTMark.Bits(0, 5)),
			openflow.Move(openflow.FieldInPort16.All(), openflow.FieldCTMark.Bits(16, 31)),
		}
	}
	return []openflow.Action{openflow.Move(regMark, ctMark)}
}

// ctBegunBy matches connections that are allowed and whose first packet came in by a port.
func ctBegunBy(port uint32) openflow.FieldValue {
	return openflow.CTMark(port<<16|MarkJudged, 0xffff<<16|MarkJudged|MarkDenied)
}
