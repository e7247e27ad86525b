// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policyFeature is the frame that policies are judged in. It comes when it is known where the
// packet goes, and its destination is the endpoint. It finds the packet's connection and lets pass
// what is not judged: replies, and what a port's own node sends. All packets of the other direction
// are judged, one by one, since nothing but the tables tells whether a connection is allowed; so a
// change of policies is one of connections that there are, too.
//
// What is allowed is committed, always: only so the direction of a connection is known when a
// policy comes. What is not allowed any more is marked, so that its replies end as well.
var policyFeature = &feature{
	number: 19,
	name:   "policy",
	tables: []Table{policyState, policyConnection, policyVerdict, policyDenied},
	needed: (*rules).policed,
	local: func(r *rules) {
		r.lookUp()
		r.unjudged()
		r.committed()
	},
	node: func(r *rules, n intent.Node) {
		if n.Name == r.local.Node {
			for _, a := range ownedBy(n) {
				r.ownNode(a)
			}
		}
	},
	port: func(r *rules, p intent.Port) {
		r.on(policyConnection, 846, toPort(r.number(p)), isInvalid, ctBegunBy(r.number(p))).goTo(policyVerdict)
		r.on(policyConnection, 840, openflow.InPort(r.number(p)), isInvalid, ctBegunBy(r.number(p))).goTo(egressSubject)
	},
	serviceRange: func(r *rules, s intent.ServiceRange) {
		if !r.native() {
			// The host's kernel chooses an endpoint. Then the packet comes back, and
			// its receiver is known.
			to := []openflow.FieldValue{from(fromPod), toPort(datapath.GatewayPort), openflow.IPDst(s.Prefix)}
			r.on(policyConnection, 450, to...).set(toService).goTo(egressSubject)
			r.on(policyConnection, 845, append(to, isInvalid)...).set(toService).goTo(egressSubject)
		}
	},
}

// Packets as conntrack has found them.
var (
	isReply   = openflow.CTState(openflow.CTTrk|openflow.CTRpl, openflow.CTInv)
	isRelated = openflow.CTState(openflow.CTTrk|openflow.CTRel, openflow.CTInv)
	isFirst   = openflow.CTState(openflow.CTTrk|openflow.CTNew, openflow.CTInv)
	isLater   = openflow.CTState(openflow.CTTrk, openflow.CTInv|openflow.CTNew)
	isValid   = openflow.CTState(openflow.CTTrk, openflow.CTInv)
	// isInvalid may be of a known connection all the same, on the userspace datapath. Then the mark
	// tells which end opened it.
	isInvalid = openflow.CTState(openflow.CTTrk|openflow.CTInv, 0)
	// isTranslatedBack is of a Service's connection whatever else: see invalidInKnown.
	isTranslatedBack = openflow.CTState(openflow.CTTrk|openflow.CTInv|openflow.CTSNAT, 0)
)

// judge ends the flow where the output port is chosen, and whether the packet leaves by the port
// that it came in by.
func (w flow) judge() {
	if w.rules.policed() {
		w.goTo(policyState)
		return
	}
	w.commit()
}

// commit ends the flow of a packet that nothing stops any more.
func (w flow) commit() {
	if w.rules.native() {
		w.goTo(serviceCommit)
		return
	}
	w.goTo(output)
}

// lookUp has the connection of every packet of IP be known.
func (r *rules) lookUp() {
	r.dependOn(unitKey{kind: kindPhysical})
	if anyPhysical(r.state) {
		r.notOfWire()
	}
	ask := openflow.CT{ZoneFrom: regZone, Table: openflow.Table(policyConnection.ID)}
	for _, t := range ipTypes {
		ip := openflow.EthType(t)
		w := r.on(policyState, 200, asked, ip).set(inZone(intent.DefaultRouter))
		if r.native() {
			w.goTo(policyConnection)
		} else {
			w.do(ask).end()
		}
		r.on(policyState, 100, ip).do(ask).end()
	}
	if r.native() {
		r.on(policyState, 0).commit()
	} else {
		r.on(policyState, 0).drop("not an IP packet")
	}
}

// notOfWire lets pass, on physical networks, what is not judged: what is not IP, groups,
// neighbors, and what gives hosts their addresses. Elsewhere there is none of it.
func (r *rules) notOfWire() {
	wire, group := regZone.Value(uint64(datapath.PhysicalZone)), openflow.MAC{0x01}
	r.on(policyState, 300, wire, openflow.EthDstMask(group, group)).goTo(output)
	for t := uint8(icmp6RouterSolicit); t <= icmp6Redirect; t++ {
		r.on(policyState, 300, wire, openflow.ICMPv6Type(t)).goTo(output)
	}
	for _, dhcp := range []struct {
		family         openflow.FieldValue
		client, server uint16
	}{{openflow.EthType(openflow.EthTypeIPv4), 68, 67}, {openflow.EthType(openflow.EthTypeIPv6), 546, 547}} {
		for _, way := range []struct {
			from     source
			src, dst uint16
		}{{fromPod, dhcp.client, dhcp.server}, {fromUplink, dhcp.server, dhcp.client}} {
			r.on(policyState, 300, wire, from(way.from), dhcp.family,
				openflow.L4Src(openflow.IPProtoUDP, way.src), openflow.L4Dst(openflow.IPProtoUDP, way.dst)).goTo(output)
		}
	}
	r.on(policyState, 50, wire).goTo(output)
}

// unjudged leads packets after the lookup of their connection: to the policies of the sender, of
// the receiver, or past both.
func (r *rules) unjudged() {
	const stopped = "the connection is not allowed any more"
	for _, back := range []openflow.FieldValue{isReply, isRelated, isTranslatedBack} {
		r.on(policyConnection, 900, back, ctDenied).drop(stopped)
		r.on(policyConnection, 800, back).goTo(policyVerdict)
	}
	// It did not begin.
	r.on(policyConnection, 830, from(fromPod), isInvalid, ctJudgedOnly).goTo(policyVerdict)
	// The first one of these is judged; where conntrack has to hear of the packet yet, the datapath
	// holds the others back until it is there. Those that conntrack takes for invalid come alone:
	// these are judged as packets without ports.
	r.on(policyConnection, 650, openflow.EthType(openflow.EthTypeIPv4), laterFragment, isValid).goTo(policyVerdict)
	r.on(policyConnection, 650, openflow.EthType(openflow.EthTypeIPv6), laterFragment, isValid).goTo(policyVerdict)
	r.on(policyConnection, 100, from(fromPod)).goTo(egressSubject)
	r.on(policyConnection, 0).goTo(ingressSubject)
	if r.native() {
		r.on(policyConnection, 1000, hairpin).goTo(policyVerdict)
		r.on(policyConnection, 780, refused).commit()
		return
	}
	r.on(policyConnection, 860, from(fromGateway), isReply).goTo(policyVerdict)
	r.on(policyConnection, 850, isReply, ctFromGateway).set(viaGateway()...).goTo(policyVerdict)
	r.on(policyConnection, 750, toPort(nowhere)).goTo(output)
	// What a port has sent to a Service, on its way to the endpoint.
	r.on(policyConnection, 100, from(fromGateway)).goTo(egressSubject)
}

// laterFragment matches fragments that are not the first.
var laterFragment = openflow.IPFrag(openflow.IPFragAny|openflow.IPFragLater, openflow.IPFragAny|openflow.IPFragLater)

// ownedBy are the addresses that the node's own processes send from, and that ports reach them at.
func ownedBy(n intent.Node) []netip.Addr {
	list := append([]netip.Addr{datapath.GatewayMAC.LinkLocal()}, n.Addresses...)
	for _, s := range n.Subnets {
		list = append(list, s.Gateway)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// ownNode has an address be the node's own. Clients from outside of a Service may be masqueraded
// with it; so of what the node sends to Services, only what it sends to a ClusterIP is its own, and
// that only if the host's kernel has not marked it as another's: clients of an external address
// without a node port are led to the ClusterIP.
func (r *rules) ownNode(a netip.Addr) {
	to := []openflow.FieldValue{from(fromPod), toPort(datapath.GatewayPort), openflow.IPDst(a)}
	r.on(policyConnection, 500, to...).set(toOwnNode).goTo(egressSubject)
	r.on(policyConnection, 845, append(to, isInvalid)...).set(toOwnNode).goTo(egressSubject)
	own := []openflow.FieldValue{from(fromGateway), openflow.IPSrc(a)}
	if !r.native() {
		r.on(policyConnection, 700, own...).set(markHost).goTo(policyVerdict)
		return
	}
	r.on(policyConnection, 700, append(own, notOfService)...).set(markHost).goTo(policyVerdict)
	r.on(policyConnection, 715,
		append(own, chosen, byClusterIP, openflow.IPDSCP(datapath.ForwardedDSCP))...).goTo(ingressSubject)
	r.on(policyConnection, 710, append(own, chosen, byClusterIP)...).set(markHost).goTo(policyVerdict)
	r.on(policyConnection, 720, append(own, ctHost)...).goTo(policyVerdict)
}

// committed commits what is allowed, and marks what was.
func (r *rules) committed() {
	marked := func(exec ...openflow.Action) openflow.CT {
		return openflow.CT{Commit: true, ZoneFrom: regZone, Exec: exec}
	}
	allowed, denied := marked(openflow.SetField(ctNotDenied)), marked(openflow.SetField(ctDenied))
	for _, t := range ipTypes {
		ip := openflow.EthType(t)
		if r.native() {
			// With its endpoint, in serviceEndpoint.
			r.on(policyVerdict, 300, chosen, ip).set(markJudged).commit()
			// The host refuses a connection. There is none, whatever conntrack thinks.
			r.on(policyVerdict, 250, from(fromGateway), isFirst, ip, openflow.IPProto(openflow.IPProtoTCP),
				openflow.TCPFlags(tcpRST, tcpRST)).commit()
		}
		r.on(policyVerdict, 200, isFirst, ip, ctNotJudged).set(markJudged).do(marked(r.markOf()...)).commit()
		r.on(policyVerdict, 150, isFirst, ip, ctDenied).do(allowed).commit()
		r.on(policyVerdict, 150, isLater, ip, ctDenied).do(allowed).commit()
		r.on(policyDenied, 200, isLater, ip, ctNotDenied).do(denied).end()
		// It is new as long as there was no answer.
		r.on(policyDenied, 200, isFirst, ip, ctJudgedOnly).do(denied).end()
	}
	r.on(policyVerdict, 0).commit()
	r.on(policyDenied, 0).end()
}

// deny adds the flow, which drops; cookie says why. If the packet's connection is known, it is
// marked, so that replies are dropped as well. The agent may be told.
func (w flow) deny(cookie uint64) {
	w.f.Cookie = cookie
	w = w.set(regDenied.Value(cookie))
	w.f.Actions = append(w.f.Actions, openflow.Resubmit(policyAudit.ID), openflow.Resubmit(policyDenied.ID))
	w.rules.flows = append(w.rules.flows, w.f)
}
