// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// nodeAddressFeature gives the ports of private routers and physical networks
// their addresses in the cluster. A node address stands for the port's first
// address of its family: one is written over the other where packets leave the
// router and where they reach the port, without any state.
var nodeAddressFeature = &feature{
	number: 12,
	name:   "node-address",
	port: func(r *rules, p intent.Port) {
		n, rt, ok := r.lookup(p.Network)
		if !ok || n.Physical == "" && !rt.Private() {
			return
		}
		in := openflow.InPort(r.number(p))
		for _, a := range p.NodeAddresses {
			own, ok := firstOf(p.Addresses, a)
			if !ok {
				r.problem("node address %s stands for no address of its family", a)
				continue
			}
			r.fromCluster(a, p)
			r.asOwn(output, 50, own, toPort(r.number(p)), openflow.IPDst(a))
			if r.native() {
				// The destination was put back before the connection was committed.
				r.asOwn(output, 60, own, toPort(r.number(p)), chosen, familyOf(a))
			}
			if n.Physical == "" && narrowPort(r.local, p) {
				r.asOwn(pathMTU, 20, own, toPort(r.number(p)), openflow.IPDst(a))
				if r.native() {
					r.asOwn(pathMTU, 30, own, toPort(r.number(p)), chosen, familyOf(a))
				}
			}
			if n.Physical != "" {
				r.toOwnNode(p, own, a)
				continue
			}
			r.fromService(a, rt)
			r.toClusterAs(p, own, a)
			for _, reader := range r.readers(rt) {
				r.deliver(cluster, reader, rt, host(a), p)
			}
		}
		if !n.FromNodes() {
			return
		}
		for _, a := range p.Addresses {
			r.fromCluster(a, p)
			r.fromService(a, rt)
			r.on(clusterSource, 100, in, openflow.IPSrc(a)).toCluster()
		}
	},
}

// asOwn delivers packets to a port's own address.
func (r *rules) asOwn(t Table, priority uint16, own netip.Addr, when ...openflow.FieldValue) {
	r.on(t, priority, when...).set(openflow.IPDst(own)).do(openflow.OutputField(regOutput)).end()
}

// fromCluster routes an address to a port for hosts, which alone may reach it.
func (r *rules) fromCluster(a netip.Addr, p intent.Port) {
	if whole, ok := r.defaultRouter(); ok {
		r.route(whole, host(a)).set(r.toLocal(p)...).goTo(hostAccess)
	}
}

// fromService takes what the host's kernel sends as the port for packets of the
// port itself, to a Service: they are in the port's router.
func (r *rules) fromService(a netip.Addr, rt intent.Router) {
	if r.native() {
		return
	}
	r.on(spoofguard, 245, from(fromGateway), openflow.IPSrc(a)).set(inRouter(rt), ofPrivate).forward()
}

// toClusterAs has what a port with address own sends beyond its router come from its
// node address a. Then conntrack can be asked.
func (r *rules) toClusterAs(p intent.Port, own, a netip.Addr) {
	w := r.on(clusterSource, 100, openflow.InPort(r.number(p)), openflow.IPSrc(own)).set(openflow.IPSrc(a))
	if !r.native() {
		w.toCluster()
		return
	}
	w.set(asked).do(openflow.Resubmit(service.ID)).end()
	r.on(clusterSource, 100, openflow.InPort(r.number(p)), openflow.IPSrc(a), asked).goTo(cluster)
}

// firstOf is the first address of the family of like.
func firstOf(addresses []netip.Addr, like netip.Addr) (netip.Addr, bool) {
	for _, a := range addresses {
		if a.Is4() == like.Is4() {
			return a, true
		}
	}
	return netip.Addr{}, false
}
