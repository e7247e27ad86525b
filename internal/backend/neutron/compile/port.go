// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// port makes a port.
func (c *compiler) port(p intent.Port) {
	c.uses(p)
	n, ok := c.networkOf(p)
	if !ok {
		c.isolated(p, n)
		return
	}
	r, _ := c.state.Routers().Get(n.Router)
	if r.Private() && len(p.NodeAddresses) > 0 && !c.reached(n) {
		// Once for all of the Router's Ports.
		c.unreached[r.Name] = true
	}
	made := c.portAt(n, p.Node, p.MAC, p.Addresses)
	made.Ref, made.Object, made.Holder = c.portRef(n, p), PortObject(p.ObjectKey()), p.ObjectUID
	made.Optional = p.NeutronPort != "" // in place of one that the pod cannot have, none is made
	if made.Ref != c.addressRef(n, p.Node, p.Addresses) {
		made.Mutable["name"] = c.name(p.ObjectKey())
		switch {
		case made.Trunk == "":
			made.Mutable["device_id"] = p.UID
		case made.Optional: // the plan says when it is to be of none
			delete(made.Mutable, "device_id")
		}
	}
	made.Mutable["security_groups"], made.Mutable["allowed_address_pairs"] = c.groups.groupsOf(p), pairs(r, p)
	c.set.Add(made)
}

// reached reports whether nodes reach Ports on a Network of a private Router, by rows of OVN.
func (c *compiler) reached(n intent.Network) bool { return c.Supplemented && n.NeutronNetwork == "" }

// portAt is the port of an interface on a node, without what depends on the Port that has it.
func (c *compiler) portAt(
	n intent.Network, node string, mac intent.MAC, addresses []netip.Addr,
) resource.Resource {
	return c.onTrunk(node, resource.Resource{
		Fixed: resource.Attributes{"network_id": c.networkRef(n), "mac_address": mac.String()},
		Mutable: resource.Attributes{
			"name": c.name(node + " " + addresses[0].String()), "device_id": node, "device_owner": resource.DeviceOwner,
			"admin_state_up": true, "binding:host_id": node, "fixed_ips": c.fixedIPs(n, node, addresses),
			"port_security_enabled": true, "allowed_address_pairs": []any{},
		},
	})
}

// portRef is the port of a Port: its own, or that of its addresses, which other Ports had before.
// A machine's goes with it from node to node.
func (c *compiler) portRef(n intent.Network, p intent.Port) resource.Ref {
	if p.NeutronPort != "" {
		return BorrowedRef(p.ObjectKey(), p.NeutronPort).In(c.ProjectOf(n))
	}
	if !p.IsMachine() && c.hasSpare(n) && p.MAC == reserved.PodMAC(p.Addresses[0]) &&
		len(c.fixedIPs(n, p.Node, p.Addresses)) == len(p.Addresses) {
		return c.addressRef(n, p.Node, p.Addresses)
	}
	return PortRef(p.ObjectKey()).In(c.ProjectOf(n))
}

// addressRef is the port of addresses that a node hands out of a Network.
func (c *compiler) addressRef(n intent.Network, node string, addresses []netip.Addr) resource.Ref {
	var parts []string
	if !n.FromNodes() {
		parts = append(parts, "in", n.Name)
	}
	for _, a := range addresses {
		parts = append(parts, a.String())
	}
	return resource.Ref{Kind: resource.Port, Key: resource.Key("Node/"+node, parts...)}.In(c.ProjectOf(n))
}

// networkOf is the Network that a Port is on in Neutron; false if it is on none.
func (c *compiler) networkOf(p intent.Port) (intent.Network, bool) {
	n, ok := c.state.Networks().Get(p.Network)
	if !ok || len(p.Addresses) == 0 || p.ObjectKey() == "" {
		return n, false
	}
	if !n.FromNodes() {
		return n, c.there(n)
	}
	if r, ok := c.state.Routers().Get(n.Router); !ok || r.Private() {
		return n, false
	}
	return c.state.Networks().Get(intent.DefaultNetworkName)
}

// there reports whether a Network with subnets has ports in Neutron.
func (c *compiler) there(n intent.Network) bool {
	_, ok := c.state.Routers().Get(n.Router)
	return (ok || n.Physical != "") && !n.Leased && !c.waits(n)
}

// isolated says why a Port of an isolated namespace is on no network.
func (c *compiler) isolated(p intent.Port, n intent.Network) {
	if r, ok := c.state.Routers().Get(n.Router); ok && r.Private() && n.FromNodes() {
		c.set.Problem("Port "+p.ObjectKey(), "IsolatedNamespaceUnsupported",
			"the isolated namespace of Network "+n.Name+
				" shares its node's subnet with others, which Neutron cannot keep apart: use a Network with subnets of its own")
	}
}

// fixedIPs are the addresses of a Port, each in its subnet of the Network.
func (c *compiler) fixedIPs(n intent.Network, node string, addresses []netip.Addr) []any {
	var prefixes []netip.Prefix
	for _, sn := range n.Subnets {
		prefixes = append(prefixes, sn.Prefix)
	}
	if n.FromNodes() {
		owner, _ := c.state.Nodes().Get(node)
		prefixes = owner.Prefixes()
	}
	list := []any{}
	for _, a := range addresses {
		i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		if i >= 0 {
			list = append(list, resource.Attributes{"subnet_id": c.subnetRef(n, prefixes[i]),
				"ip_address": a.String()})
		}
	}
	return list
}

// pairs are what a Port may send from beside its addresses: the destinations of routes that lead to
// it.
func pairs(r intent.Router, p intent.Port) []any {
	list := []any{}
	for _, route := range r.Routes {
		if slices.Contains(p.Addresses, route.NextHop) {
			list = append(list, resource.Attributes{"ip_address": route.Destination.String()})
		}
	}
	return list
}

// node makes the subnets that a node hands out, and the port by which its kernel reaches pods.
func (c *compiler) node(node intent.Node) {
	n, ok := c.state.Networks().Get(intent.DefaultNetworkName)
	if !ok {
		return
	}
	subnets := false
	for _, s := range node.Subnets {
		if s.Network != n.Name {
			continue
		}
		subnets = true
		if _, ok := names.ManagementAddress(s.Prefix); !ok {
			c.set.Problem("Node "+node.Name, "SubnetTooSmall", "the podCIDR "+s.Prefix.String()+
				" has no room for the node's own address beside its gateway")
		}
		c.subnet(n, intent.NetworkSubnet{Prefix: s.Prefix, Gateway: s.Gateway}, intent.Pool{})
	}
	addresses := names.ManagementAddresses(node)
	if !subnets || len(addresses) == 0 {
		return
	}
	c.set.Add(c.onTrunk(node.Name, resource.Resource{
		Ref: NodePortRef(node.Name), Object: NodeObject(node.Name),
		Fixed: resource.Attributes{
			"network_id": NetworkRef(n.Name), "mac_address": names.ManagementMAC(addresses).String(),
		},
		Mutable: resource.Attributes{
			"name": c.name("node-" + node.Name), "device_id": node.Name, "device_owner": resource.DeviceOwner,
			"admin_state_up":  true,
			"binding:host_id": node.Name, "fixed_ips": c.fixedIPs(n, node.Name, addresses),
			// The node answers from its own addresses, which are not of the subnet.
			"port_security_enabled": false, "security_groups": []any{}, "allowed_address_pairs": []any{},
		},
	}))
}
