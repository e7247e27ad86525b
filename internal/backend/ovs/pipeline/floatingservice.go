// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// floatingServiceFeature joins addresses of external Networks that stand for Services to the wire,
// on the node that has been chosen to answer for them. The node's kernel takes what comes for them,
// as it takes what comes for a load balancer's address: it gives clients an address that answers
// come back to, unless the Service wants to see theirs, and sends packets to the Service tables.
// What it makes of the answers comes back here, from the floating IP, and leaves by the wire.
//
// In the cluster the addresses are external ones of the Service on all nodes: see nodeview.
var floatingServiceFeature = &feature{
	number: 31,
	name:   "floating-service",
	tables: []Table{externalReply},
	needed: (*rules).answersForServices,
	node: func(r *rules, n intent.Node) {
		for _, s := range n.Subnets {
			r.replyInside(s.Prefix)
		}
	},
	network: func(r *rules, n intent.Network) {
		if r.inCluster(n) {
			for _, s := range n.Subnets {
				r.replyInside(s.Prefix)
			}
		}
	},
	floatingIP: func(r *rules, f intent.FloatingIP) {
		e, ok := r.chosen(f)
		if !ok {
			return
		}
		e.answered()
		e.measured(r.local.MTU)
		r.on(floatingPort, 100, e.sent()...).set(viaGateway()...).goTo(output)

		from := []openflow.FieldValue{from(fromGateway), openflow.IPSrc(e.address)}
		r.on(service, 190, from...).goTo(externalReply)
		r.on(externalReply, 50, from...).set(e.byUplink()...).goTo(output)
		r.on(externalSource, 100, append(from, inNetwork(e.external))...).set(openflow.EthSrc(e.mac)).goTo(nextHop)
		for _, icmp := range icmpErrorsOf(e.address) { // the kernel translates what they quote
			r.on(fromExternal, 250, append(e.sent(), icmp)...).goTo(floatingIP)
			r.on(toExternal, 250, inNetwork(e.external), openflow.IPSrc(e.address), icmp).goTo(externalSource)
		}
	},
}

// replyInside keeps what the kernel answers to clients in the cluster from the wire: Ports of other
// Routers than a private one are led to its Services by the kernel, too.
func (r *rules) replyInside(prefix netip.Prefix) {
	r.on(externalReply, 100, openflow.IPDst(prefix)).do(translated(clusterZone, serviceState)).end()
}

// chosen finds out what the floating IP of a Service comes to; false if this node does not answer
// for it, or nothing can be made of it.
func (r *rules) chosen(f intent.FloatingIP) (externalAddress, bool) {
	if f.Service == "" || !r.native() {
		return externalAddress{}, false
	}
	r.dependOn(unitKey{kindChosen, f.Address.String()})
	if _, ok := r.state.ChosenAddresses().Get(f.Address.String()); !ok {
		return externalAddress{}, false
	}
	return r.externalAddress(f.Network, f.Address)
}

// answersForServices reports whether this node answers for any floating IP of a Service.
func (r *rules) answersForServices() bool {
	r.dependOn(unitKey{kind: kindServing})
	return r.native() && anyChosen(r.state)
}

func anyChosen(s *snapshot) bool {
	for range s.ChosenFloatingIPs() {
		return true
	}
	return false
}
