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
		"kube-proxy's rules in the node's kernel have translated it, a packet of a private Router's port: "+
			"its destination is an endpoint of a Service")
	notOfPrivate = unset(ofPrivate)
	quoted       = regFlag(openflow.Reg(0), 23, "", "an ICMP error: the packet that it quotes has been translated")
	notQuoted    = unset(quoted)
	routedIn     = regFlag(openflow.Reg(0), 11, "", "a routed gateway has taken it from the wire as it is")
	regMarks     = regBits(openflow.Reg(0), 12, 17, "",
		"the mark that its connection will get: bits 0–5 of ct_mark (bit 3 is never set); "+
			"without enforced policies bits 0–2 only")
	regNetwork = regField(openflow.Reg(1), "", "Network id; 0 if another node has routed the packet")
	regRouter  = regField(openflow.Reg(2), "",
		"Router (VRF). The low 16 bits are its conntrack zone, "+
			"which in policy tables also identifies the VRF that the packet's addresses belong to")
	regZone   = regRouter.Bits(0, 15)
	regOutput = regField(openflow.Reg(3), "", "output port (OpenFlow); all ones: none").All()
)

// What goes into an answer to an ARP or ND question.
var (
	regMAC   = regBits(openflow.XReg(2), 0, 47, inAnswers, "MAC of the reply")
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
	asked     = regFlag(openflow.Reg(0), 6, ofServices, "it was looked up in conntrack zone 1, or is next")
	notAsked  = unset(asked)
	ofService = regFlag(openflow.Reg(0), 7, ofServices, "belongs to a connection of a Service")
	chosen    = regFlag(openflow.Reg(0), 8, ofServices, "first packet of its connection: an endpoint has been chosen")
	hairpin   = regFlag(openflow.Reg(0), 9, ofServices, "its output port is its input port")
	external  = regFlag(openflow.Reg(0), 10, ofServices,
		"its client is outside of the cluster and keeps its address")

	regServed   = regField(openflow.Reg(8), ofServices, "number of the Service port's list of endpoints")
	regEndpoint = regField(openflow.Reg(9), ofServices, "number of the endpoint in that list; 0: none yet")
	regPort     = regBits(openflow.Reg(10), 0, 15, ofServices, "its original destination port")
	regPublic   = regField(openflow.Reg(11), ofServices, "1 if the Service is available to all Routers")
	regAddress4 = regField(openflow.Reg(12), ofServices+", IPv4", "its original destination address")
	regAddress6 = regField(openflow.XXReg(3), ofServices+", IPv6", "its original destination address")

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
	ctFromGateway = regFlag(openflow.FieldCTMark, 0, "", "its first packet entered by the gateway port")
	ctService     = regFlag(openflow.FieldCTMark, 1, ofServices, "it belongs to a Service")
	_             = regFlag(openflow.FieldCTMark, 2, ofServices, "the Service is available to all Routers")
	ctPublic      = openflow.CTMark(bitService|bitPublic, bitService|bitPublic)
	ctMark        = openflow.FieldCTMark.Bits(0, 2)
)

var (
	routerMAC  = openflow.MAC(datapath.RouterMAC)
	gatewayMAC = openflow.MAC(datapath.GatewayMAC)
	relayMAC   = openflow.MAC(datapath.RelayMAC)
)

// What policies know of a packet.
var (
	// regSpace is the conntrack zone of the router that the packet's addresses are valid in:
	// clusterZone where they are the cluster's, datapath.PhysicalZone on physical networks.
	regSpace = regZone

	toOwnNode = regFlag(openflow.Reg(0), 18, ofPolicies, "sent by a port to its own node")
	refused   = regFlag(openflow.Reg(0), 19, ofPolicies,
		"refusal by the node's kernel: a Service has no endpoint")
	toService  = regFlag(openflow.Reg(0), 20, ofPolicies, "sent by a port to a Service that kube-proxy balances")
	notToOwner = regFlag(openflow.Reg(0), 21, ofPolicies,
		"its output port does not have its destination address")

	regSubject = regField(openflow.Reg(6), ofPolicies,
		"the Port whose policies are evaluated (bits 0–15); whether it has rules in "+
			"security-group, admin, admin-later, policy (16–19), and is isolated (20); always 0 (21–31)")
	regClass    = regField(openflow.XReg(2), ofPolicies, "class (set of groups) of the peer; 0: none")
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
	ctDenied = regFlag(openflow.FieldCTMark, 3, ofPolicies, "denied by now: its replies are dropped")
	ctHost   = regFlag(openflow.FieldCTMark, 4, ofPolicies,
		"begun by a process of the node, which may reach every port of the node")
	ctJudged = regFlag(openflow.FieldCTMark, 5, ofPolicies, "it was committed where policies are enforced")
	ctInPort = regBits(openflow.FieldCTMark, 16, 31, ofPolicies, "input port of its first packet")

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
