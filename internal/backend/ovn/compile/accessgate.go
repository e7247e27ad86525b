// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// The priorities of the policies of a private Router about nodes, and of the Router default's about
// node addresses. Those of floatingPriority are between.
const (
	untranslatedPriority = 930 // drops what comes for a node address that no Port has
	fromNodesPriority    = 920 // lets in what nodes send
	fromPodsPriority     = 910 // drops connections of pods of the cluster
	tenantsPriority      = 850 // drops what is for Services of private Routers
	ownAccessPriority    = 810 // to the Router's port, from the node's own switch
	accessPriority       = 800 // to the node, for what is of the cluster
	outPriority          = 300 // to the node, for all that the Router has no route for
)

// gate makes the port of a Router on a node's switch, and what leads there. Its address is that of
// the subnet itself, which no other has: what it sends has node addresses.
func (k *accessKind) gate(s *intent.State, at accessPlace, u *nb.Unit) {
	r, ok := s.Routers().Get(at.router)
	if !ok || len(k.at[at]) == 0 || !k.there(s, at.node) || !k.layout.hasRouter(at.router) {
		return
	}
	n, _ := s.Nodes().Get(at.node)
	if k.layout.common() {
		k.neighbors(n, routerRef(at.router), at, u)
	} else {
		k.port(s, at, []string{at.node}, at.node, u)
	}
	policy := policies(at.router, "Access/"+accessAt+at.String(), u)
	for _, all := range everything {
		set := translatedSetRef(at, all.Destination.Addr())
		u.Add(set.Key, &nb.AddressSet{Name: k.set(set)})
	}
	for _, a := range names.ManagementAddresses(n) {
		fam, e := family(a), k.exitOf(s, r, a)
		sent := fmt.Sprintf("is_chassis_resident(%q) && %s.src == $%s", k.layout.resident(at), fam,
			k.set(translatedSetRef(at, a)))
		to := func(set nb.Ref) string { return fmt.Sprintf(" && %s.dst == $%s", fam, k.set(set)) }
		by := e.leaves + " && "
		policy("cluster "+fam, accessPriority, "reroute", sent+to(clusterSetRef(a)), a.String())
		policy("nodes "+fam, accessPriority, "reroute", by+sent+to(nodesSetRef(a)), a.String())
		if !e.others {
			policy("out "+fam, outPriority, "reroute", by+sent, a.String())
		}
	}
}

// port makes the port of a Router on the switch of nodes, at a chassis, and judges what comes and
// leaves by it.
func (k *accessKind) port(s *intent.State, at accessPlace, nodes []string, chassis string, u *nb.Unit) {
	r, _ := s.Routers().Get(at.router)
	key, name := k.layout.gate(at)
	row := &nb.LogicalRouterPort{Name: name, MAC: linkMAC(r.ID).String()}
	for _, node := range nodes {
		for _, sn := range nodeSubnets(s, node) {
			row.Networks = append(row.Networks, sn.Prefix.Masked().String())
		}
	}
	port := u.AddTo(routerRef(at.router), "ports", key, row)
	u.AddTo(k.layout.nodeSwitch(at.node), "ports", key,
		routerSidePort(k.cluster.AccessSwitchPort(cmp.Or(at.node, "all"), at.router), name))
	u.AddTo(port, "gateway_chassis", nb.Key(key, "chassis"), &nb.GatewayChassis{
		Name: name + "@" + chassis, ChassisName: chassis, Priority: firstChassis,
	})
	policy := policies(at.router, key, u)
	from := fmt.Sprintf("inport == %q && ", name)
	policy("untranslated", untranslatedPriority, "drop", from+k.within("dst", clusterSetRef))
	policy("from nodes", fromNodesPriority, "allow", from+k.within("src", nodesSetRef))
	policy("from pods", fromPodsPriority, "drop", from+"ct.new && "+k.within("src", clusterSetRef))
	policy("untranslated source", nowherePriority, "drop", fmt.Sprintf("outport == %q", name))
}

// policies adds policies to a Router.
func policies(
	router, key string, u *nb.Unit,
) func(what string, priority int, action, match string, to ...string) {
	return func(what string, priority int, action, match string, to ...string) {
		u.AddTo(routerRef(router), "policies", nb.Key(key, what), &nb.RouterPolicy{
			Priority: priority, Match: match, Action: action, Nexthops: to,
		})
	}
}

// neighbors lets the port find the node's addresses, where another system does not tell OVN which
// interface has them. It asks for the next hops of policies, and would send questions of IPv6 to
// the group of the packet's destination (RFC 4861, section 7.2.2), but for next hops of routes.
func (k *accessKind) neighbors(n intent.Node, router nb.Ref, at accessPlace, u *nb.Unit) {
	_, port := k.layout.gate(at)
	for _, a := range names.ManagementAddresses(n) {
		if a.Is4() {
			continue
		}
		u.AddTo(router, "static_routes", nb.Key("Access/"+accessAt+at.String(), "neighbor"), &nb.StaticRoute{
			IPPrefix: netip.PrefixFrom(a, a.BitLen()).String(), Nexthop: a.String(), OutputPort: &port,
		})
	}
}

// exit is where a Router sends what it has no other route for.
type exit struct {
	leaves string // fits what is sent there
	others bool   // that is the way of all Ports; else only of those with FloatingIPs, or of none
	made   bool   // by a port that nothing is behind, made for policies
}

// exitOf is a private Router's exit for the family of an address.
func (k *accessKind) exitOf(s *intent.State, r intent.Router, like netip.Addr) exit {
	by := func(port string) string { return k.layout.leaves(s, r, port, like) }
	for _, route := range effective(r) {
		if route.Destination.Bits() == 0 && route.NextHop.Is4() == like.Is4() {
			return exit{leaves: by(k.portTo(s, r, route.NextHop)), others: true}
		}
	}
	if g, ok := gatewayOf(s, r.Name); ok {
		for _, e := range g.addresses {
			if e.Address.Is4() == like.Is4() && subnetOf(g.network, e.Address).Gateway.IsValid() {
				return exit{leaves: by(k.cluster.GatewayPort(g.network.Name, r.Name)), others: true}
			}
		}
	} else if n, ok := floatingNetwork(s, r.Name); ok && k.layout.floats() {
		for _, sn := range n.Subnets {
			if sn.Prefix.Addr().Is4() == like.Is4() && sn.Gateway.IsValid() {
				return exit{leaves: by(k.cluster.GatewayPort(n.Name, r.Name))}
			}
		}
	}
	return exit{leaves: fmt.Sprintf("outport == %q", k.peerPort(r.Name)), made: true}
}

// portTo is a Router's port on the Network that has a next hop.
func (k *accessKind) portTo(s *intent.State, r intent.Router, hop netip.Addr) string {
	for n := range s.NetworksOf(r.Name) {
		for _, sn := range n.Subnets {
			if sn.Prefix.Contains(hop) {
				return k.cluster.RouterPort(n.Name, "")
			}
		}
	}
	return k.cluster.PeerPort(r.Name, "")
}

// peerPort is the name of a private Router's port that nothing is behind.
func (k *accessKind) peerPort(router string) string {
	return k.layout.portName(k.cluster.PeerPort(router, ""))
}

// portOfAll makes the port of a Router on the switch of all nodes.
func (k *accessKind) portOfAll(s *intent.State, router string, u *nb.Unit) {
	nodes := slices.Sorted(maps.Keys(k.nodes[router]))
	nodes = slices.DeleteFunc(nodes, func(node string) bool { return !k.there(s, node) })
	if len(nodes) > 0 {
		k.port(s, accessPlace{router: router}, nodes, nowhere, u)
	}
}

// wayOut makes the port that nothing is behind of a private Router, as the Router default has one.
// A Service of its own is balanced on its switches: what comes here for one is another Router's.
func (k *accessKind) wayOut(s *intent.State, name string, u *nb.Unit) {
	r, ok := s.Routers().Get(name)
	if !ok || !r.Private() || !k.layout.hasRouter(name) {
		return
	}
	if k.layout.common() {
		k.portOfAll(s, name, u)
	}
	ref, port, made := routerRef(name), k.peerPort(name), false
	for _, all := range everything {
		like := all.Destination.Addr()
		u.AddTo(ref, "policies", nb.Key("Access/"+accessRouter+name, "tenants", family(like)), &nb.RouterPolicy{
			Priority: tenantsPriority, Match: fmt.Sprintf("%s.dst == $%s", family(like), k.set(tenantsSetRef(like))),
			Action: "drop",
		})
		if !k.exitOf(s, r, like).made {
			continue
		}
		made = true
		u.AddTo(ref, "static_routes", nb.Key("Access/"+accessRouter+name, family(all.NextHop)), &nb.StaticRoute{
			IPPrefix: all.Destination.String(), Nexthop: all.NextHop.String(), OutputPort: &port,
		})
	}
	if !made {
		return
	}
	u.AddTo(ref, "ports", "Access/"+accessRouter+name, &nb.LogicalRouterPort{
		Name: port, MAC: linkMAC(0).String(), Networks: []string{"240.255.0.1/30"},
	})
	u.AddTo(ref, "policies", nb.Key("Access/"+accessRouter+name, "nowhere"), &nb.RouterPolicy{
		Priority: nowherePriority, Match: fmt.Sprintf("outport == %q", port), Action: "drop",
	})
}
