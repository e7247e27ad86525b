// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// What is known of a packet on its way, for all parts of the pipeline.
var (
	regSource = regBits(openflow.Reg(0), 0, 3, "",
		"source: 1 pod or virtual machine, 2 gateway (the node's kernel), 3 tunnel, 4 uplink")
	// tenantSource also means that the host's kernel could not answer.
	tenantSource = regFlag(openflow.Reg(0), 4, "", "the source address is valid in its private Router only")
	ofPrivate    = regFlag(openflow.Reg(0), 5, "",
		"the node's kernel has translated it for a port of a private Router: "+
			"it goes to an endpoint of one of kube-proxy's Services")
	notOfPrivate = unset(ofPrivate)
	regMarks     = regBits(openflow.Reg(0), 12, 17, "",
		"the mark that its connection will have: bits 0–5 of ct_mark, of which 3 is never set; "+
			"bits 0–2 where policies are not enforced")
	regNetwork = regField(openflow.Reg(1), "", "Network id; 0 if another node has routed the packet")
	regRouter  = regField(openflow.Reg(2), "",
		"Router (VRF). The low 16 bits are its conntrack zone, "+
			"and in tables of policies also the address space of the packet's addresses")
	regZone   = regRouter.Bits(0, 15)
	regOutput = regField(openflow.Reg(3), "", "OpenFlow port to send it out of, or nowhere (all ones)").All()
)

// What goes into an answer to an ARP or ND question.
var (
	regMAC   = regBits(openflow.XReg(2), 0, 47, inAnswers, "MAC that answers the question")
	regFlags = regField(openflow.Reg(6), inAnswers, "flags of a neighbour advertisement").All()
	regSpare = regField(openflow.Reg(7), inAnswers, "scratch").All()
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
func from(s source) openflow.FieldValue { return regSource.Value(uint64(s)) }

// inNetwork matches or sets the network.
func inNetwork(n intent.Network) openflow.FieldValue { return regNetwork.Value(uint64(n.ID)) }

// inNoNetwork is where a packet is that has been routed.
var inNoNetwork = regNetwork.Value(0)

// inRouter matches or sets the router and its conntrack zone. Shared routers have
// one space of addresses and hence one zone with the default router; their id is
// in the upper half.
func inRouter(r intent.Router) openflow.FieldValue {
	if r.Private() || r.Name == intent.DefaultRouterName {
		return regRouter.Value(uint64(r.ID))
	}
	return regRouter.Value(uint64(r.ID)<<16 | uint64(intent.DefaultRouter))
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
	return regZone.Value(uint64(z))
}

// toPort matches or sets the output port.
func toPort(port uint32) openflow.FieldValue { return regOutput.Field.Value(uint64(port)) }

// nowhere is the output port of what only conntrack may still save.
const nowhere = 0xffff_ffff

// What tables of Services note of a packet.
var (
	asked     = regFlag(openflow.Reg(0), 6, ofServices, "conntrack knows it in zone 1, or is asked next")
	notAsked  = unset(asked)
	ofService = regFlag(openflow.Reg(0), 7, ofServices, "of a connection of a Service")
	chosen    = regFlag(openflow.Reg(0), 8, ofServices, "the first of its connection: an endpoint has been chosen")
	hairpin   = regFlag(openflow.Reg(0), 9, ofServices, "leaves by the port that it came in by")
	external  = regFlag(openflow.Reg(0), 10, ofServices,
		"from a client outside of the cluster, which keeps its address")

	regServed   = regField(openflow.Reg(8), ofServices, "number of a Service's port and list of endpoints")
	regEndpoint = regField(openflow.Reg(9), ofServices, "number of the endpoint in that list; 0: none yet")
	regPort     = regBits(openflow.Reg(10), 0, 15, ofServices, "the port that it was sent to")
	regPublic   = regField(openflow.Reg(11), ofServices, "1 if the Service is for all Routers")
	regAddress4 = regField(openflow.Reg(12), ofServices+", IPv4", "the address that it was sent to")
	regAddress6 = regField(openflow.XXReg(3), ofServices+", IPv6", "the address that it was sent to")

	publicServed = regPublic.Value(1)
)

// marked matches or sets bits of the mark that a connection will have.
func marked(mark uint32) openflow.FieldValue {
	at := uint64(mark) << regMarks.Ofs
	return regMarks.Field.Masked(at, at)
}

// What it says; see ct_mark.
var (
	regMark         = openflow.Reg(0).Bits(12, 14)
	markFromGateway = marked(bitFromGateway)
	markService     = marked(bitService)
	markPublic      = marked(bitPublic)
	markHost        = marked(MarkHost)
	markJudged      = marked(MarkJudged)
)

// Conntrack zones of the cluster's address space: that of all Services, and one for the
// source of those packets alone that leave by the port that they came in by. No router
// has the latter's number.
const (
	clusterZone = uint16(intent.DefaultRouter)
	sourceZone  = uint16(datapath.HairpinZone)
)

// Bits of ct_mark.
const (
	bitFromGateway = 1 << iota
	bitService
	bitPublic
)

// What ct_mark says of a connection.
var (
	ctFromGateway = regFlag(openflow.FieldCTMark, 0, "", "its first packet came in by the gateway port")
	ctService     = regFlag(openflow.FieldCTMark, 1, ofServices, "it is a Service's")
	_             = regFlag(openflow.FieldCTMark, 2, ofServices, "the Service is for all Routers")
	ctPublic      = openflow.CTMark(bitService|bitPublic, bitService|bitPublic)
	ctMark        = openflow.FieldCTMark.Bits(0, 2)
)

var (
	routerMAC  = openflow.MAC(datapath.RouterMAC)
	gatewayMAC = openflow.MAC(datapath.GatewayMAC)
)

// What policies know of a packet.
var (
	// regSpace is the conntrack zone of the router that the packet's addresses are valid in:
	// clusterZone where they are the cluster's, datapath.PhysicalZone on physical networks.
	regSpace = regZone

	toOwnNode = regFlag(openflow.Reg(0), 18, ofPolicies, "a port sends it to its own node")
	refused   = regFlag(openflow.Reg(0), 19, ofPolicies,
		"the node's kernel tells the sender that a Service has no endpoint")
	toService  = regFlag(openflow.Reg(0), 20, ofPolicies, "a port sends it to a Service that kube-proxy balances")
	notToOwner = regFlag(openflow.Reg(0), 21, ofPolicies,
		"it goes to a port that does not have its destination address")

	regSubject = regField(openflow.Reg(6), ofPolicies,
		"the Port that is judged (bits 0–15); it has rules in security-group, admin, admin-later, policy (16–19); "+
			"it is isolated (20); always 0 (21–31)")
	regClass    = regField(openflow.XReg(2), ofPolicies, "class of the other end: the groups that it has; 0: none")
	regDenied   = regField(openflow.XReg(2), ofPolicies+", when denied", "cookie of the flow that denies it")
	byClusterIP = regFlag(openflow.Reg(10), 16, ofPolicies, "it was sent to a ClusterIP")

	notToOwnNode = unset(toOwnNode)
	notOfService = unset(ofService)
)

// The bits of ct_mark that policies set.
const (
	MarkDenied uint32 = 1 << 3
	MarkHost   uint32 = 1 << 4
	MarkJudged uint32 = 1 << 5
)

// What policies know of a connection, in ct_mark.
var (
	ctDenied = regFlag(openflow.FieldCTMark, 3, ofPolicies, "it is not allowed any more: its replies are dropped")
	ctHost   = regFlag(openflow.FieldCTMark, 4, ofPolicies,
		"a process of the node began it, which may reach every port of the node")
	ctJudged = regFlag(openflow.FieldCTMark, 5, ofPolicies, "it was committed where policies are enforced")
	ctInPort = regBits(openflow.FieldCTMark, 16, 31, ofPolicies, "the port by which its first packet came in")

	ctNotDenied  = unset(ctDenied)
	ctNotJudged  = unset(ctJudged)
	ctJudgedOnly = openflow.CTMark(MarkJudged, MarkJudged|MarkDenied)
)

// markOf gives a connection the mark that reg0 holds, and for policies the port that it
// came in by first.
func (r *rules) markOf() []openflow.Action {
	if r.policed() {
		return []openflow.Action{
			openflow.Move(regMarks, openflow.FieldCTMark.Bits(0, 5)),
			openflow.Move(openflow.FieldInPort16.All(), ctInPort),
		}
	}
	return []openflow.Action{openflow.Move(regMark, ctMark)}
}

// ctBegunBy matches allowed connections of which the first packet came in by a port.
func ctBegunBy(port uint32) openflow.FieldValue {
	return openflow.CTMark(port<<16|MarkJudged, 0xffff<<16|MarkJudged|MarkDenied)
}
