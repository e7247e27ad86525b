// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// networkKind are Networks: a Logical_Switch each, and its ports to the Router or the wire. The
// Network default has one on each node, network@node; other Networks with addresses of the nodes'
// ranges have none of their own.
type networkKind struct{ cluster names.Cluster }

// Name implements Kind.
func (networkKind) Name() string { return "Network" }

// networkKey is the key of a unit.
func networkKey(network, node string) string {
	if node == "" {
		return network
	}
	return network + "@" + node
}

// Affected implements Kind.
func (networkKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	networks := slices.Clone(d.Networks)
	for _, s := range states(from, to) {
		for _, name := range d.Routers {
			for n := range s.NetworksOf(name) {
				networks = append(networks, n.Name)
			}
		}
		if len(d.Nodes) > 0 && leastMTU(from) != leastMTU(to) {
			for n := range s.Networks().All() {
				if n.DHCP.Enabled && n.MTU == 0 {
					networks = append(networks, n.Name)
				}
			}
		}
	}
	for _, node := range d.Nodes {
		yield(networkKey(intent.DefaultNetworkName, node))
	}
	for _, name := range networks {
		yield(name)
		if name != intent.DefaultNetworkName {
			continue
		}
		for _, s := range states(from, to) {
			for n := range s.Nodes().All() {
				yield(networkKey(name, n.Name))
			}
		}
	}
}

// leastMTU is the smallest that a node has for pods; 0: none says.
func leastMTU(s *intent.State) (least int) {
	if s == nil {
		return 0
	}
	for n := range s.Nodes().All() {
		if n.MTU > 0 && (least == 0 || n.MTU < least) {
			least = n.MTU
		}
	}
	return least
}

// Compile implements Kind.
func (k networkKind) Compile(s *intent.State, key string, u *nb.Unit) {
	name, node, perNode := strings.Cut(key, "@")
	n, _ := s.Networks().Get(name)
	if n.LogicalSwitch != "" && !perNode && !n.FromNodes() {
		// Its gateway and its wire are the other system's, too.
		u.Add("Network/"+key, &nb.LogicalSwitch{Name: n.LogicalSwitch, Adopted: true})
		return
	}
	if !hasSwitch(s, name, node) {
		return
	}
	subnets := n.Subnets
	if perNode {
		subnets = nodeSubnets(s, node)
	}
	sw := u.Add("Network/"+key, &nb.LogicalSwitch{Name: k.cluster.Switch(name, node)})
	if n.Physical != "" {
		k.wire(n, sw, u)
		return
	}
	r, ok := s.Routers().Get(n.Router)
	if !ok {
		return
	}
	k.join(n, node, sw, subnets, u)
	if !r.Private() && !perNode {
		for _, sn := range subnets {
			ofPods(u, sn.Prefix)
		}
	}
	if r.Private() {
		k.isolate(sw, u)
	}
	if n.DHCP.Enabled {
		dhcpOptions(s, n, u)
	}
}

// hasSwitch says whether a Network has a Logical_Switch of ours, on that node if one is given.
func hasSwitch(s *intent.State, network, node string) bool {
	n, ok := s.Networks().Get(network)
	switch {
	case !ok || n.FromNodes() != (node != ""):
		return false
	case node != "":
		return len(nodeSubnets(s, node)) > 0
	}
	return n.LogicalSwitch == ""
}

// priorityApart is that of the ACL that keeps Ports of private Routers from pods of the cluster.
const priorityApart = 32650

// isolate keeps Ports of a private Router from opening connections to pods of the cluster. They may
// use Services: OVN resolves the first packet behind ACLs, and marks what follows (ct.dnat). The
// second ACL decides nothing; with it, answers are known as such.
func (k networkKind) isolate(sw nb.Ref, u *nb.Unit) {
	var pods []string
	for _, all := range everything {
		like := all.Destination.Addr()
		pods = append(pods, family(like)+".dst == $"+k.cluster.Set(family(like), podsSetRef(like).Key))
	}
	u.AddTo(sw, "acls", nb.Key(sw.Key, "isolated"), &nb.ACL{
		Priority: priorityApart, Direction: "from-lport", Match: and("!ct.dnat", or(pods)), Action: "drop",
	})
	u.AddTo(sw, "acls", nb.Key(sw.Key, "answers"), &nb.ACL{
		Direction: "from-lport", Match: "ip", Action: "allow-related",
	})
}

// nodeSubnets are a node's ranges of the Network default.
func nodeSubnets(s *intent.State, node string) (subnets []intent.NetworkSubnet) {
	n, _ := s.Nodes().Get(node)
	for _, sn := range n.Subnets {
		if sn.Network == intent.DefaultNetworkName {
			subnets = append(subnets, intent.NetworkSubnet{Prefix: sn.Prefix, Gateway: sn.Gateway})
		}
	}
	return subnets
}

// wire makes the port to the physical network.
func (k networkKind) wire(n intent.Network, sw nb.Ref, u *nb.Unit) {
	port := &nb.LogicalSwitchPort{
		Name: k.cluster.LocalnetPort(n.Name), Type: "localnet", Addresses: []string{"unknown"},
		Options: map[string]string{"network_name": n.Physical},
	}
	if n.VLAN != 0 {
		port.Tag = ptr(int(n.VLAN))
	}
	u.AddTo(sw, "ports", nb.Key(sw.Key, "wire"), port)
}

// join makes the ports between the switch and the Network's Router.
func (k networkKind) join(n intent.Network, node string, sw nb.Ref, subnets []intent.NetworkSubnet, u *nb.Unit) {
	var networks []string
	var first netip.Addr
	for _, sn := range subnets {
		if !sn.Gateway.IsValid() {
			continue
		}
		if !first.IsValid() {
			first = sn.Gateway
		}
		networks = append(networks, netip.PrefixFrom(sn.Gateway, sn.Prefix.Bits()).String())
	}
	if len(networks) == 0 {
		return
	}
	name := k.cluster.RouterPort(n.Name, node)
	u.AddTo(routerRef(n.Router), "ports", sw.Key, &nb.LogicalRouterPort{
		Name: name, MAC: networkMAC(n, first).String(), Networks: networks, IPv6RAConfigs: advertised(n),
	})
	u.AddTo(sw, "ports", nb.Key(sw.Key, "router"), routerSidePort(k.cluster.SwitchPort(n.Name, node), name))
}

// routerSidePort is the Logical_Switch_Port that leads to a router's port.
func routerSidePort(name, routerPort string) *nb.LogicalSwitchPort {
	return &nb.LogicalSwitchPort{
		Name: name, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": routerPort},
	}
}

// gatewayMAC is the Ethernet address that answers for a Network's gateways.
func gatewayMAC(n intent.Network) string {
	for _, sn := range n.Subnets {
		if sn.Gateway.IsValid() {
			return networkMAC(n, sn.Gateway).String()
		}
	}
	return ""
}

// advertised are the settings of router advertisements on a Network; none if machines there are not
// answered.
func advertised(n intent.Network) map[string]string {
	v6 := slices.ContainsFunc(n.Subnets, func(sn intent.NetworkSubnet) bool { return sn.Prefix.Addr().Is6() })
	if !n.DHCP.Enabled || !v6 || n.DHCP.IPv6 == intent.NoIPv6 {
		return nil
	}
	ra := map[string]string{"address_mode": "dhcpv6_stateful", "send_periodic": "true"}
	if n.DHCP.IPv6 == intent.StatelessIPv6 {
		ra["address_mode"] = "dhcpv6_stateless"
	}
	if n.MTU > 0 {
		ra["mtu"] = strconv.Itoa(n.MTU)
	}
	if servers := ofFamily(n.DNS.Servers, true); len(servers) > 0 {
		ra["rdnss"] = servers[0] // OVN takes one
	}
	if len(n.DNS.Searches) > 0 {
		ra["dnssl"] = strings.Join(n.DNS.Searches, ",")
	}
	return ra
}
