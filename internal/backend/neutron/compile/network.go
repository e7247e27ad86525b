// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"

	"go4.org/netipx"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// network makes a network, its subnets, and their places on the Router. The Network default has the
// nodes' podCIDRs as its subnets, which node makes; other Networks with addresses of the nodes'
// ranges have none of their own: their Ports are on this one.
func (c *compiler) network(n intent.Network) {
	c.set.Problems = append(c.set.Problems, c.Loans[n.Name].Problems...)
	if n.FromNodes() && n.Name != intent.DefaultNetworkName {
		return
	}
	object := "Network " + n.Name
	r := resource.Resource{
		Ref: c.networkRef(n), Object: object, Mutable: resource.Attributes{"name": c.name("net-" + n.Name)},
		Fixed: resource.Attributes{}, Optional: n.Kuryr != "",
	}
	if n.MTU > 0 {
		r.Mutable["mtu"] = n.MTU
	}
	if n.Physical != "" {
		r.Fixed["provider:physical_network"], r.Fixed["provider:network_type"] = n.Physical, "flat"
		if n.VLAN != 0 {
			r.Fixed["provider:network_type"], r.Fixed["provider:segmentation_id"] = "vlan", int(n.VLAN)
		}
		r.Mutable["router:external"] = n.External
	}
	if n.Leased {
		c.set.Problem(object, "DHCPAddressesUnsupported", "Neutron knows each address of a network: give the Network subnets "+
			"with addresses of its own")
		return
	}
	c.placed(n)
	switch {
	case c.waits(n):
		return
	case c.lent(n):
		c.lend(n)
		return
	}
	c.set.Add(r)
	for _, sn := range n.Subnets {
		c.subnet(n, sn, poolOf(n, sn.Prefix))
	}
}

// networkRef is the network of a Network, where it is.
func (c *compiler) networkRef(n intent.Network) resource.Ref {
	if c.lent(n) {
		return resource.LentNetwork(NetworkObject(n.Name))
	}
	return NetworkRef(n.Name).In(c.ProjectOf(n))
}

// subnetRef is a subnet of a Network, where that is.
func (c *compiler) subnetRef(n intent.Network, prefix netip.Prefix) resource.Ref {
	if c.lent(n) {
		return lentSubnet(n, prefix)
	}
	return SubnetRef(n.Name, prefix).In(c.ProjectOf(n))
}

// subnet makes a subnet of a Network and, unless the Network is a physical one, its place on the
// Router.
func (c *compiler) subnet(n intent.Network, sn intent.NetworkSubnet, pool intent.Pool) {
	object := "Network " + n.Name
	version := 4
	if sn.Prefix.Addr().Is6() {
		version = 6
	}
	r := resource.Resource{
		Ref: c.subnetRef(n, sn.Prefix), Object: object,
		Fixed: resource.Attributes{"network_id": c.networkRef(n), "cidr": sn.Prefix.String(), "ip_version": version},
		Mutable: resource.Attributes{
			"name": c.name("net-" + n.Name + " " + sn.Prefix.String()), "gateway_ip": nil, "enable_dhcp": false,
			"allocation_pools": allocationPools(sn, pool), "dns_nameservers": []any{},
		},
	}
	if sn.Gateway.IsValid() {
		r.Mutable["gateway_ip"] = sn.Gateway.String()
	}
	var servers []any
	for _, s := range n.DNS.Servers {
		if s.Is6() == sn.Prefix.Addr().Is6() {
			servers = append(servers, s.String())
		}
	}
	if servers != nil {
		r.Mutable["dns_nameservers"] = servers
	}
	c.dhcp(n, sn, &r)
	c.pooled(n, &r, sn)
	ref := c.set.Add(r)
	router, ok := c.state.Routers().Get(n.Router)
	if n.Physical != "" || !ok || !sn.Gateway.IsValid() {
		return
	}
	c.set.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Interface, Key: ref.Key, Project: ref.Project}, Object: object,
		Fixed: resource.Attributes{"router_id": RouterRef(RouterOf(router)), "subnet_id": ref},
	})
}

// dhcp has Neutron answer machines that ask for their addresses.
func (c *compiler) dhcp(n intent.Network, sn intent.NetworkSubnet, r *resource.Resource) {
	if !n.DHCP.Enabled {
		return
	}
	if sn.Prefix.Addr().Is4() {
		r.Mutable["enable_dhcp"] = true
		return
	}
	switch n.DHCP.IPv6 {
	case intent.NoIPv6:
	case intent.StatelessIPv6:
		c.set.Problem("Network "+n.Name, "StatelessDHCPUnsupported", "with Neutron machines that make their own IPv6 addresses "+
			"cannot have others: use the mode Stateful")
	default:
		r.Mutable["enable_dhcp"] = true
		r.Fixed["ipv6_ra_mode"], r.Fixed["ipv6_address_mode"] = "dhcpv6-stateful", "dhcpv6-stateful"
	}
}

// poolOf is what nodes hand out of a subnet of a Network.
func poolOf(n intent.Network, subnet netip.Prefix) intent.Pool {
	for _, p := range n.Pools {
		if p.Subnet == subnet {
			return p
		}
	}
	return intent.Pool{Subnet: subnet}
}

// allocationPools are the addresses of a subnet that Neutron gives to machines which ask for none:
// those that nodes do not hand out. Neutron takes no empty list, so without any it is the last
// address alone that is not the gateway's.
func allocationPools(sn intent.NetworkSubnet, pool intent.Pool) []any {
	var b netipx.IPSetBuilder
	if len(pool.Only) > 0 {
		b.AddPrefix(sn.Prefix)
		for _, r := range pool.Only {
			b.RemoveRange(netipx.IPRangeFrom(r.First, r.Last))
		}
	}
	for _, r := range pool.Except {
		b.AddRange(netipx.IPRangeFrom(r.First, r.Last))
	}
	all := netipx.RangeOfPrefix(sn.Prefix)
	b.Remove(all.From())
	if sn.Prefix.Addr().Is4() {
		b.Remove(all.To())
	}
	if sn.Gateway.IsValid() {
		b.Remove(sn.Gateway)
	}
	left, err := b.IPSet()
	ranges := []netipx.IPRange{}
	if err == nil {
		ranges = left.Ranges()
	}
	if len(ranges) == 0 {
		last := all.To()
		if last.Is4() {
			last = last.Prev()
		}
		if last == sn.Gateway {
			last = last.Prev()
		}
		ranges = append(ranges, netipx.IPRangeFrom(last, last))
	}
	var list []any
	for _, r := range ranges {
		list = append(list, resource.Attributes{"start": r.From().String(), "end": r.To().String()})
	}
	return list
}
