// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// defaultRouter looks up the router that all shared ones are one with.
func (r *rules) defaultRouter() (intent.Router, bool) {
	r.dependOn(unitKey{kindRouter, intent.DefaultRouterName})
	rt, ok := r.state.Routers().Get(intent.DefaultRouterName)
	if !ok {
		r.problem("router %q does not exist", intent.DefaultRouterName)
	}
	return rt, ok
}

// home is the router with the flows of the routes of rt: those of the shared ones are in the
// default router together.
func (r *rules) home(rt intent.Router) (intent.Router, bool) {
	if rt.Private() || rt.Name == intent.DefaultRouterName {
		return rt, true
	}
	return r.defaultRouter()
}

// readers are the routers with flows of the routes of rt: its home, and those that import them.
func (r *rules) readers(rt intent.Router) []intent.Router {
	home, ok := r.home(rt)
	if !ok {
		return nil
	}
	list := []intent.Router{home}
	if rt.Name == intent.DefaultRouterName {
		return list // importing from it is what being shared is
	}
	for _, importer := range r.importers(rt) {
		if importer.Private() || rt.Private() { // else they share a home
			list = append(list, importer)
		}
	}
	return list
}

// route begins the flow for packets to prefix in router rt; longer prefixes win.
func (r *rules) route(rt intent.Router, prefix netip.Prefix) flow { return r.routeIn(l3, rt, prefix) }

// routeIn is route in another table than l3.
func (r *rules) routeIn(t Table, rt intent.Router, prefix netip.Prefix) flow {
	return r.on(t, byLength(prefix), inRouter(rt), to(prefix))
}

// byLength is the priority of a route.
func byLength(prefix netip.Prefix) uint16 { return 100 + uint16(prefix.Bits()) }

// to matches packets to a prefix, which may be all of a family.
func to(prefix netip.Prefix) openflow.FieldValue {
	if prefix.Bits() > 0 {
		return openflow.IPDst(prefix)
	}
	return familyOf(prefix.Addr())
}

// familyOf matches IP packets of the family of an address.
func familyOf(like netip.Addr) openflow.FieldValue {
	if like.Is4() {
		return openflow.EthType(openflow.EthTypeIPv4)
	}
	return openflow.EthType(openflow.EthTypeIPv6)
}

// deliver sends a prefix of router rt to a port of this node, in table t of one of
// the readers of rt.
func (r *rules) deliver(t Table, reader, rt intent.Router, prefix netip.Prefix, p intent.Port) {
	own, reading := zone(rt), zone(reader)
	if home, ok := r.home(rt); ok && home.Name == reader.Name {
		r.routeIn(t, reader, prefix).set(r.toLocal(p)...).deliver()
		return
	}
	// The zone has to be the same for both directions. Of two ports of this node it is the lower
	// one of their routers'; with one port here, that port's.
	r.routeIn(t, reader, prefix).set(r.toLocal(p)...).set(inZone(min(own, reading))).deliver()
	if own > reading && r.tunneled() {
		const more = 300
		r.on(t, more+byLength(prefix), from(fromTunnel), inRouter(reader), to(prefix)).
			set(r.toLocal(p)...).set(inZone(own)).deliver()
	}
}

// toLocal are the fields that send a packet from the virtual router to a port.
func (r *rules) toLocal(p intent.Port) []openflow.FieldValue {
	return []openflow.FieldValue{openflow.EthSrc(routerMAC), openflow.EthDst(openflow.MAC(p.MAC)), toPort(r.number(p))}
}

// routeToNode sends a prefix of router rt through the tunnel to its node, in table
// t of one of the readers of rt; false if nothing leads there.
func (r *rules) routeToNode(t Table, reader, rt intent.Router, prefix netip.Prefix, n intent.Node) bool {
	home, ok := r.home(rt)
	if !ok || !r.tunneled() {
		return false
	}
	remote, ok := r.endpoint(n, prefix)
	if !ok {
		return false
	}
	w := r.routeIn(t, reader, prefix).set(throughTunnel(routerMAC, remote)...).
		set(openflow.TunnelID(uint64(home.VNI)), toPort(datapath.TunnelPort))
	if reader.Private() {
		w = w.set(tenantSource)
	}
	w.goTo(ttl)
	return true
}

// endpoint is the address of the node's end of the tunnel that leads to a prefix.
func (r *rules) endpoint(n intent.Node, prefix netip.Prefix) (netip.Addr, bool) {
	remote := n.AddressIn(r.local.TunnelIP)
	if !remote.IsValid() {
		r.problem("node %s has no address of the family of this node's tunnel address %s: %s is out of reach", n.Name,
			r.local.TunnelIP, prefix)
	}
	return remote, remote.IsValid()
}

// throughTunnel are the fields that send a packet to the virtual router of
// another node, as one that source has routed.
func throughTunnel(source openflow.MAC, remote netip.Addr) []openflow.FieldValue {
	return []openflow.FieldValue{openflow.EthSrc(source), openflow.EthDst(routerMAC), openflow.TunDst(remote)}
}

// viaGateway are the fields that send a packet to the host.
func viaGateway() []openflow.FieldValue {
	return []openflow.FieldValue{openflow.EthSrc(routerMAC), openflow.EthDst(gatewayMAC), toPort(datapath.GatewayPort)}
}

// host is the prefix of a single address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// node looks up a node.
func (r *rules) node(name string) (intent.Node, bool) {
	r.dependOn(unitKey{kindNode, name})
	n, ok := r.state.Nodes().Get(name)
	if !ok {
		r.problem("node %q does not exist", name)
	}
	return n, ok
}

// localSubnets are what this node hands out, none before it is known.
func (r *rules) localSubnets() []intent.Subnet {
	r.dependOn(unitKey{kindNode, r.local.Node})
	n, _ := r.state.LocalNode()
	return n.Subnets
}
