// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// gatewayKind are the gateways of private Routers, by Router: a port on an external Network that
// one chassis has, translation to its address, and the default route. What a Router asks for that
// OVN does not have is a problem of it.
type gatewayKind struct{ cluster names.Cluster }

// The highest priority of a chassis of a gateway.
const firstChassis = 32767

// Name implements Kind.
func (gatewayKind) Name() string { return "Gateway" }

// Affected implements Kind.
func (gatewayKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Routers {
		yield(name)
	}
	floatingRouters(from, to, d, yield)
	for _, s := range states(from, to) {
		for _, key := range d.EgressAddresses {
			if e, ok := s.EgressAddresses().Get(key); ok && e.Egress == "" {
				yield(e.Router)
			}
		}
		for _, key := range d.GatewayAddresses {
			if g, ok := s.GatewayAddresses().Get(key); ok {
				yield(g.Router)
			}
		}
		for _, name := range d.Networks {
			n, ok := s.Networks().Get(name)
			if !ok {
				continue
			}
			yield(n.Router)
			for e := range s.EgressAddresses().All() {
				if e.Network == name && e.Egress == "" {
					yield(e.Router)
				}
			}
		}
	}
}

// gateway is what a Router has of an external Network: one address of each family.
type gateway struct {
	network   intent.Network
	addresses []intent.EgressAddress
	rest      int // addresses that it has besides
}

// gatewayOf is a Router's gateway; false if it has none that OVN can make.
func gatewayOf(s *intent.State, router string) (g gateway, ok bool) {
	r, known := s.Routers().Get(router)
	if !known || !r.Private() {
		return g, false
	}
	var families []bool
	for e := range s.EgressAddressesOf(intent.RouterUser(router)) {
		n, known := s.Networks().Get(e.Network)
		if !known || n.Physical == "" || g.network.Name != "" && g.network.Name != n.Name {
			continue
		}
		g.network = n
		if slices.Contains(families, e.Address.Is6()) {
			g.rest++
			continue
		}
		families = append(families, e.Address.Is6())
		g.addresses = append(g.addresses, e)
	}
	return g, len(g.addresses) > 0
}

// gatewayPortRef is the Logical_Router_Port of a Router's gateway.
func gatewayPortRef(router string) nb.Ref {
	return nb.Ref{Table: "Logical_Router_Port", Key: "Gateway/" + router}
}

// Compile implements Kind.
func (k gatewayKind) Compile(s *intent.State, router string, u *nb.Unit) {
	r, known := s.Routers().Get(router)
	if !known {
		return
	}
	object := "Router " + router
	for a := range s.GatewayAddresses().All() {
		if a.Router == router {
			u.Problem(object, "DistributedGatewayUnsupported", "OVN translates at one node for all, or not at all: set "+
				"the gateway's snat to Centralized")
			break
		}
	}
	g, ok := gatewayOf(s, router)
	if !ok {
		for range s.EgressAddressesOf(intent.RouterUser(router)) {
			if !r.Private() {
				u.Problem(object, "SharedGatewayUnsupported", "with OVN only private Routers have gateways; what is "+
					"sent out of a shared Router leaves as its node")
			}
			break
		}
		if n, ok := floatingNetwork(s, router); ok {
			k.floating(r, n, u)
		}
		return
	}
	if g.rest > 0 {
		u.Problem(object, "OneGatewayAddress", "OVN uses the first address of a family: name no others")
	}
	k.port(router, g, u)
	k.translate(s, router, g, u)
}

// port makes the port on the external Network, and the chassis that may have it.
func (k gatewayKind) port(router string, g gateway, u *nb.Unit) {
	name := k.cluster.GatewayPort(g.network.Name, router)
	row := &nb.LogicalRouterPort{Name: name, MAC: externalMAC(g.addresses[0].Address)}
	for _, e := range g.addresses {
		bits := subnetOf(g.network, e.Address).Prefix.Bits()
		row.Networks = append(row.Networks, netip.PrefixFrom(e.Address, bits).String())
	}
	port := u.AddTo(routerRef(router), "ports", gatewayPortRef(router).Key, row)
	u.AddTo(switchRef(g.network.Name, ""), "ports", port.Key,
		routerSidePort(k.cluster.GatewaySwitchPort(g.network.Name, router), name))
	for i, node := range chassis(g.addresses[0]) {
		u.AddTo(port, "gateway_chassis", nb.Key(port.Key, node), &nb.GatewayChassis{
			Name: name + "@" + node, ChassisName: node, Priority: firstChassis - i,
		})
	}
}

// chassis are the nodes that may have a gateway, the first of them first: those that stay before
// those that are about to leave.
func chassis(e intent.EgressAddress) []string {
	leaving := func(node string) bool { return slices.Contains(e.Leaving, node) }
	stay := slices.DeleteFunc(slices.Clone(e.Nodes), leaving)
	return append(stay, e.Leaving...)
}

// translate makes the way out by the gateway: all that the Router's subnets send has its address.
func (k gatewayKind) translate(s *intent.State, router string, g gateway, u *nb.Unit) {
	ref, port := routerRef(router), k.cluster.GatewayPort(g.network.Name, router)
	for _, e := range g.addresses {
		to := subnetOf(g.network, e.Address)
		for _, all := range everything {
			if all.Destination.Addr().Is4() == e.Address.Is4() && to.Gateway.IsValid() {
				u.AddTo(ref, "static_routes", nb.Key("Gateway/"+router, family(e.Address)), &nb.StaticRoute{
					IPPrefix: all.Destination.String(), Nexthop: to.Gateway.String(), OutputPort: &port,
				})
			}
		}
		for n := range s.NetworksOf(router) {
			for _, sn := range n.Subnets {
				if n.Physical != "" || sn.Prefix.Addr().Is4() != e.Address.Is4() {
					continue
				}
				u.AddTo(ref, "nat", nb.Key("Gateway/"+router, sn.Prefix.String()), &nb.NAT{
					Type: "snat", ExternalIP: e.Address.String(), LogicalIP: sn.Prefix.String(),
					GatewayPort: ptr(gatewayPortRef(router).Key),
				})
			}
		}
	}
}

// subnetOf is the subnet of a Network that has an address.
func subnetOf(n intent.Network, a netip.Addr) intent.NetworkSubnet {
	for _, sn := range n.Subnets {
		if sn.Prefix.Contains(a) {
			return sn
		}
	}
	return intent.NetworkSubnet{Prefix: netip.PrefixFrom(a, a.BitLen())}
}
