// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
)

// router makes a router with its gateway and routes. Shared Routers are one with the Router
// default.
func (c *compiler) router(r intent.Router) {
	object := RouterObject(r.Name)
	c.bgpvpn(r)
	if RouterOf(r) != r.Name {
		return
	}
	if r.Private() && c.idle(r) {
		if len(r.Routes) > 0 || c.gateway(r) != nil {
			c.set.Problem(object, "RouterUnsupported", "its Networks are on networks that are not Coelan's, which have routers of "+
				"their own: routes and gateways are made there")
		}
		return
	}
	made := resource.Resource{
		Ref: RouterRef(r.Name), Object: object, Mutable: resource.Attributes{
			"name": c.name("router-" + r.Name), "admin_state_up": true, "external_gateway_info": c.gateway(r),
		},
	}
	ref := c.set.Add(made)
	routes := []any{}
	for _, route := range c.routes(r) {
		routes = append(routes, resource.Attributes{
			"destination": route.Destination.String(), "nexthop": route.NextHop.String(),
		})
	}
	c.set.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Routes, Key: ref.Key}, Object: object,
		Mutable: resource.Attributes{"routes": routes},
	})
}

// routes are the extra routes of a router: the first to each destination. The Router default has
// those of shared Routers, too, and leads to nodes by their management ports. A default route of it
// has no effect.
func (c *compiler) routes(r intent.Router) (routes []intent.Route) {
	seen := map[netip.Prefix]bool{}
	add := func(of intent.Router, list []intent.Route) {
		for _, route := range list {
			if seen[route.Destination] || route.Destination.Bits() == 0 && !r.Private() {
				c.set.Problem(RouterObject(of.Name), "RouteIgnored", "a default route of a shared Router has no effect, and of "+
					"several routes to one destination only the first has")
				continue
			}
			seen[route.Destination] = true
			routes = append(routes, route)
		}
	}
	add(r, r.Routes)
	if r.Name != intent.DefaultRouterName {
		return routes
	}
	for other := range c.state.Routers().All() {
		if other.Shared && other.Name != r.Name {
			add(other, other.Routes)
		}
	}
	for n := range c.state.Nodes().All() {
		add(r, nodeRoutes(n))
	}
	if c.Supplemented {
		routes = append(routes, c.wayOut()...)
	}
	return routes
}

// wayOut are default routes, to the first node with an address of the family. OVN asks policies,
// which lead to other nodes, only about packets with a route.
func (c *compiler) wayOut() (routes []intent.Route) {
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		destination := netip.MustParsePrefix(all)
		for n := range c.state.Nodes().All() {
			management := names.ManagementAddresses(n)
			i := slices.IndexFunc(management, func(m netip.Addr) bool { return m.Is4() == destination.Addr().Is4() })
			if i >= 0 {
				routes = append(routes, intent.Route{Destination: destination, NextHop: management[i]})
				break
			}
		}
	}
	return routes
}

// nodeRoutes lead to a node's own addresses by its management port.
func nodeRoutes(n intent.Node) (routes []intent.Route) {
	management := names.ManagementAddresses(n)
	for _, a := range n.Addresses {
		i := slices.IndexFunc(management, func(m netip.Addr) bool { return m.Is4() == a.Is4() })
		if i >= 0 {
			routes = append(routes, intent.Route{Destination: netip.PrefixFrom(a, a.BitLen()), NextHop: management[i]})
		}
	}
	return routes
}

// gateway is the external gateway of a private Router; nil: it has none.
func (c *compiler) gateway(r intent.Router) any {
	object := RouterObject(r.Name)
	for a := range c.state.GatewayAddresses().All() {
		if a.Router == r.Name {
			c.set.Problem(object, "DistributedGatewayUnsupported", "Neutron translates at one node for all, or not at all: "+
				"set the gateway's snat to Centralized")
			break
		}
	}
	var info resource.Attributes
	addresses := []any{}
	network := ""
	for e := range c.state.EgressAddressesOf(intent.RouterUser(r.Name)) {
		n, ok := c.state.Networks().Get(e.Network)
		if !ok || n.Physical == "" || n.Leased || network != "" && network != n.Name {
			continue
		}
		network = n.Name
		address := resource.Attributes{"ip_address": e.Address.String()}
		for _, sn := range n.Subnets {
			if sn.Prefix.Contains(e.Address) {
				address["subnet_id"] = c.subnetRef(n, sn.Prefix)
			}
		}
		addresses = append(addresses, address)
		info = resource.Attributes{"network_id": c.networkRef(n), "enable_snat": true,
			"external_fixed_ips": addresses}
	}
	if info == nil {
		return nil
	}
	return info
}

// floatingIP makes the floating IP of a Port. One of a Service is its load balancer's, or else of
// no port: it keeps the address from others, and nodes take what comes for it. Neutron has none of
// IPv6.
func (c *compiler) floatingIP(f intent.FloatingIP) {
	n, ok := c.state.Networks().Get(f.Network)
	if !ok || n.Physical == "" || n.Leased {
		return
	}
	if f.Service != "" {
		if v, _ := c.state.Services().Get(f.Service); v.Octavia || !c.Supplemented || f.Address.Is6() {
			return
		}
	}
	r := resource.Resource{
		Ref: FloatingIPRef(f.Name), Object: FloatingIPObject(f.Name),
		Fixed: resource.Attributes{
			"floating_network_id": c.networkRef(n), "floating_ip_address": f.Address.String(),
		},
		Mutable: resource.Attributes{"port_id": nil},
	}
	for p := range c.state.PortsNamed(f.Port) {
		i := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return a.Is4() == f.Address.Is4() })
		if on, made := c.networkOf(p); made && i >= 0 {
			r.Mutable["port_id"], r.Mutable["fixed_ip_address"] = c.portRef(on, p), p.Addresses[i].String()
		}
		break
	}
	c.set.Add(r)
}
