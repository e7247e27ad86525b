// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/binary"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// serviceFeature balances Services. All packets of the cluster's address space are
// looked up in one conntrack zone, which translates those of connections that are
// known. The first packet to a frontend has an endpoint chosen by a group; what
// follows sees the endpoint as destination, until the tables behind the output port
// put the Service's address back and commit the translation, so that Open vSwitch
// has the datapath translate once and without a further recirculation.
//
// Packets of private routers' ports, which have no address of the cluster, come here when they have
// been given one (clusterSource).
var serviceFeature = &feature{
	number:       15,
	name:         "service",
	tables:       []Table{service, serviceState, serviceFrontend, nodePort, serviceSource, serviceRoute},
	needed:       (*rules).native,
	local:        serviceTables,
	node:         ownAddresses,
	service:      frontends,
	serviceRange: clusterIPs,
}

// Flags of TCP.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
)

// ipTypes are the Ethernet types of IP.
var ipTypes = []uint16{openflow.EthTypeIPv4, openflow.EthTypeIPv6}

// translated looks a packet up in a zone, translates it as its connection is, and
// goes on in table t.
func translated(zone uint16, t Table) openflow.CT {
	return openflow.CT{Zone: zone, Table: openflow.Table(t.ID), NAT: &openflow.NAT{}}
}

func serviceTables(r *rules) {
	group := openflow.MAC{0x01}
	r.on(service, 300, openflow.EthDstMask(group, group)).goTo(l2)
	for _, a := range []netip.Addr{datapath.ServiceSourceIPv4, datapath.ServiceSourceIPv6} {
		r.on(service, 200, asked, openflow.IPDst(a)).do(translated(sourceZone, serviceSource)).end()
		r.on(serviceState, 300, openflow.IPDst(a)).drop("no connection waits for the answer")
	}
	for _, t := range ipTypes {
		ip := openflow.EthType(t)
		r.on(service, 100, asked, ip).do(translated(clusterZone, serviceState)).end()
		r.on(serviceSource, 100, ip).do(translated(clusterZone, serviceState)).end()
		r.knownConnections(ip)
		r.invalidInKnown(ip)
		// Of a new connection, such a packet would not be invalid. Its receiver would not know the
		// address that it comes from.
		r.on(serviceState, 250, ip, openflow.IPProto(openflow.IPProtoTCP),
			openflow.CTState(openflow.CTTrk|openflow.CTInv, 0),
			openflow.TCPFlags(0, tcpFIN|tcpSYN|tcpRST)).
			drop("the packet does not fit its connection")
	}
	r.invalidElsewhere()
	r.on(service, 0).goTo(l2)
	r.on(serviceState, 10, from(fromGateway)).set(external).goTo(serviceFrontend)
	r.on(serviceState, 0).goTo(serviceFrontend)
	for _, t := range []Table{serviceFrontend, nodePort} {
		// Translated, though conntrack has not seen an answer yet.
		r.on(t, 5, ofService).goTo(l3)
		r.on(t, 0).goTo(l2)
	}
	r.toNodePort(datapath.NodePortIPv4, from(fromGateway))
	r.toNodePort(datapath.NodePortIPv6, from(fromGateway))

	if whole, ok := r.defaultRouter(); ok {
		r.on(serviceRoute, 100, publicServed).set(ofService, chosen, markService, markPublic, inRouter(whole)).goTo(l3)
	}
	r.on(serviceRoute, 0).set(ofService, chosen, markService).goTo(l3)
}

// knownConnections are the flows for packets of connections that have been committed.
func (r *rules) knownConnections(ip openflow.FieldValue) {
	reply, request := openflow.CTState(openflow.CTTrk|openflow.CTRpl, 0),
		openflow.CTState(openflow.CTTrk, openflow.CTRpl)
	// The kernel may have translated the request's address, too.
	r.on(serviceState, 200, ip, reply, ctFromGateway).set(viaGateway()...).set(ofService).deliver()
	r.on(serviceState, 130, ip, reply, ctService).set(ofService).goTo(l2)

	// Before the first answer, a datapath calls a second packet new as well; the userspace one has
	// translated it, the kernel's has not.
	again := openflow.CTState(openflow.CTTrk|openflow.CTNew, openflow.CTRpl)
	if whole, ok := r.defaultRouter(); ok {
		r.on(serviceState, 160, ip, again, ctPublic).set(ofService, inRouter(whole)).goTo(serviceFrontend)
		r.on(serviceState, 150, ip, request, ctPublic).set(ofService, inRouter(whole)).goTo(l3)
	}
	r.on(serviceState, 145, ip, again, ctService).set(ofService).goTo(serviceFrontend)
	r.on(serviceState, 140, ip, request, ctService).set(ofService).goTo(l3)
}

// invalidInKnown are the flows for packets that conntrack takes for invalid and has translated all
// the same, as the userspace datapath does: their receivers know the addresses, and judge for
// themselves. All of a connection are such if a client uses a port again that the endpoint has in
// TIME_WAIT: conntrack takes the ACK that then answers the SYN for the endpoint's first one.
func (r *rules) invalidInKnown(ip openflow.FieldValue) {
	reply, request := openflow.CTState(openflow.CTTrk|openflow.CTInv|openflow.CTSNAT, 0),
		openflow.CTState(openflow.CTTrk|openflow.CTInv|openflow.CTDNAT, 0)
	r.on(serviceState, 280, ip, reply, ctFromGateway).set(viaGateway()...).set(ofService).deliver()
	r.on(serviceState, 270, ip, reply, ctService).set(ofService).goTo(l2)
	if whole, ok := r.defaultRouter(); ok {
		r.on(serviceState, 270, ip, request, ctPublic).set(ofService, inRouter(whole)).goTo(l3)
	}
	r.on(serviceState, 260, ip, request, ctService).set(ofService).goTo(l3)
}

// invalidElsewhere is for such packets of connections that are not a Service's. conntrack knows
// those from the gateway, and all where policies are enforced.
func (r *rules) invalidElsewhere() {
	known := uint32(bitFromGateway)
	if r.policed() {
		known = MarkJudged
	}
	for _, s := range []source{fromPod, fromTunnel} {
		r.on(serviceState, 256, from(s), isInvalid,
			openflow.CTMark(known|bitFromGateway, known|bitFromGateway|bitService)).set(viaGateway()...).deliver()
	}
	r.on(serviceState, 255, isInvalid, openflow.CTMark(known, known|bitService)).goTo(l2)
}

// ownAddresses are for what comes from the node's own processes, or is masked as if
// it did, and for ports of the node.
func ownAddresses(r *rules, n intent.Node) {
	if n.Name != r.local.Node {
		return
	}
	for _, s := range n.Subnets {
		r.on(serviceState, 20, from(fromGateway), openflow.IPSrc(s.Gateway)).goTo(serviceFrontend)
	}
	for _, a := range n.Addresses {
		r.toNodePort(a, from(fromPod))
	}
}

// toNodePort looks up packets to an address by their port alone.
func (r *rules) toNodePort(a netip.Addr, when openflow.FieldValue) {
	r.on(serviceFrontend, 50, when, openflow.IPDst(a)).set(addressed(a)).goTo(nodePort)
}

// addressed holds the address that a packet was sent to.
func addressed(a netip.Addr) openflow.FieldValue {
	if a.Is4() {
		b := a.As4()
		return regAddress4.Value(uint64(binary.BigEndian.Uint32(b[:])))
	}
	b := a.As16()
	return regAddress6.Value128(binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]))
}

// clusterIPs ends the way of packets to addresses that no Service has.
func clusterIPs(r *rules, s intent.ServiceRange) {
	r.on(serviceState, 240, openflow.CTState(openflow.CTTrk|openflow.CTInv, 0), openflow.IPDst(s.Prefix)).
		drop("the packet does not fit its connection")
	r.on(serviceFrontend, 10, openflow.IPDst(s.Prefix)).drop("no Service has the address and port")
	r.answersOfHost(openflow.IPSrc(s.Prefix))
}

// answersOfHost keeps conntrack from what the host sends from the address of a Service. A packet
// that the host is given to refuse, it may send back as its own, if its rules have heard of the
// endpoint before the bridge. The answer passes; but as a connection of the host it would lead all
// that the client sends from this port to the host.
func (r *rules) answersOfHost(fromService ...openflow.FieldValue) {
	when := append(fromService, from(fromGateway))
	if r.policed() {
		r.as(policyFeature, func() { r.on(policyVerdict, 220, append(when, isFirst)...).commit() })
		return
	}
	r.as(serviceCommitFeature, func() { r.on(serviceCommit, 110, when...).goTo(output) })
}

// ask tells that the packets of a network are known by the cluster's addresses, and so
// conntrack is asked right away, where the bridge balances Services.
func (r *rules) ask(n intent.Network, rt intent.Router) []openflow.FieldValue {
	if (r.native() || r.policed()) && (!rt.Private() || n.FromNodes()) {
		return []openflow.FieldValue{asked}
	}
	return nil
}
