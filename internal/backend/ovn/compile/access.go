// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// accessKind are ways between Ports of private Routers and their nodes. A Router has, on each node
// with Ports of it that have node addresses, a port on the node's switch of the Network default.
// The node's chassis alone has it, and translates node addresses there one to one. What such a Port
// sends beyond its Router goes by the kernel of its node. Units are
//
//	nodes           the addresses that nodes have: Address_Sets of them
//	node NAME       a node's elements of these sets
//	router NAME     the way out of a Router that has none by a gateway or a route; and its port on
//	                the switch of all nodes
//	at ROUTER@NODE  the port of a Router on a node's switch, and the policies that lead there
//	on NODE         how other nodes reach node addresses of a node
//	port OBJECT     translation of a Port's node addresses
//
// Where another system has made the switches and routers, one switch has all nodes. A Router has
// one port there, which is at no chassis, as that of floating IPs: node addresses are translated at
// the node.
type accessKind struct {
	cluster names.Cluster
	layout  layout
	ports   map[string]accessPlace              // of Ports with node addresses, by ID
	at      map[accessPlace]map[string]struct{} // their IDs
	routers map[string]map[string]struct{}      // of such Ports, by node
	nodes   map[string]map[string]struct{}      // of such Ports, by Router
}

// accessPlace is a private Router on a node.
type accessPlace struct{ router, node string }

func (p accessPlace) String() string { return p.router + "@" + p.node }

func newAccessKind(c names.Cluster, l layout) *accessKind {
	k := &accessKind{cluster: c, layout: l}
	k.forget()
	return k
}

func (k *accessKind) forget() {
	k.ports, k.at = map[string]accessPlace{}, map[accessPlace]map[string]struct{}{}
	k.routers, k.nodes = map[string]map[string]struct{}{}, map[string]map[string]struct{}{}
}

// Name implements Kind.
func (*accessKind) Name() string { return "Access" }

// The prefixes of units.
const (
	accessNodes  = "nodes"
	accessNode   = "node "
	accessRouter = "router "
	accessAt     = "at "
	accessOn     = "on "
	accessPort   = "port "
)

// Affected implements Kind.
func (k *accessKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	if from == nil {
		k.forget()
		yield(accessNodes)
	}
	// Units are compiled as they are yielded, so all Ports are placed before.
	var units []string
	for id := range changedPorts(from, to, d) {
		before, had := k.ports[id]
		k.place(to, id)
		now, has := k.ports[id]
		for _, p := range []accessPlace{before, now} {
			if before != now && p != (accessPlace{}) {
				units = append(units, accessAt+p.String(), accessOn+p.node, accessRouter+p.router)
			}
		}
		if !had && !has {
			continue
		}
		for _, s := range states(from, to) {
			if p, ok := s.Ports().Get(id); ok {
				units = append(units, accessPort+p.ObjectKey())
			}
		}
	}
	for _, unit := range units {
		yield(unit)
	}
	if hasName(d.Networks, intent.DefaultNetworkName) {
		d.Nodes = slices.Clone(d.Nodes)
		for node := range k.routers {
			d.Nodes = append(d.Nodes, node)
		}
	}
	for _, node := range d.Nodes {
		yield(accessNode + node)
		yield(accessOn + node)
		for router := range k.routers[node] {
			k.placeOf(to, accessPlace{router, node}, yield)
			yield(accessRouter + router)
		}
	}
	gatewayKind{k.cluster}.Affected(from, to, d, func(router string) {
		yield(accessRouter + router)
		for node := range k.nodes[router] {
			yield(accessAt + accessPlace{router, node}.String())
		}
	})
}

// placeOf yields the units of a place.
func (k *accessKind) placeOf(s *intent.State, p accessPlace, yield func(string)) {
	yield(accessAt + p.String())
	for id := range k.at[p] {
		if port, ok := s.Ports().Get(id); ok {
			yield(accessPort + port.ObjectKey())
		}
	}
}

// changedPorts are the IDs of Ports that may be at another place than before.
func changedPorts(from, to *intent.State, d intent.Delta) map[string]struct{} {
	ids := map[string]struct{}{}
	for _, id := range d.Ports {
		ids[id] = struct{}{}
	}
	if from == nil {
		return ids
	}
	networks := slices.Clone(d.Networks)
	for _, name := range d.Routers {
		was, old := from.Routers().Get(name)
		is, now := to.Routers().Get(name)
		if old == now && was.Private() == is.Private() {
			continue
		}
		for n := range to.NetworksOf(name) {
			networks = append(networks, n.Name)
		}
	}
	for _, name := range networks {
		for p := range to.PortsOf(name) {
			ids[p.ID] = struct{}{}
		}
	}
	return ids
}

// place finds the place of a Port anew.
func (k *accessKind) place(s *intent.State, id string) {
	if old, ok := k.ports[id]; ok {
		delete(k.ports, id)
		if unindex(k.at, old, id); len(k.at[old]) == 0 {
			unindex(k.routers, old.node, old.router)
			unindex(k.nodes, old.router, old.node)
		}
	}
	p, ok := s.Ports().Get(id)
	if !ok || len(p.NodeAddresses) == 0 || p.Node == "" {
		return
	}
	n, ok := s.Networks().Get(p.Network)
	if r, known := s.Routers().Get(n.Router); !ok || !known || !r.Private() || n.FromNodes() || foreign(n) {
		return
	}
	at := accessPlace{n.Router, p.Node}
	k.ports[id] = at
	index(k.at, at, id)
	index(k.routers, at.node, at.router)
	index(k.nodes, at.router, at.node)
}

// foreign reports whether a Network is on a switch of other programs: their routers lead elsewhere.
func foreign(n intent.Network) bool { return n.LogicalSwitch != "" || n.NeutronNetwork != "" }

// Compile implements Kind.
func (k *accessKind) Compile(s *intent.State, key string, u *nb.Unit) {
	sort, name, _ := strings.Cut(key, " ")
	switch sort + " " {
	case accessNodes + " ":
		for _, all := range everything {
			set := nodesSetRef(all.Destination.Addr())
			u.Add(set.Key, &nb.AddressSet{Name: k.set(set)})
		}
	case accessNode:
		n, _ := s.Nodes().Get(name)
		for _, a := range slices.Concat(n.Addresses, names.ManagementAddresses(n)) {
			u.Put(nodesSetRef(a), "addresses", a.String())
		}
	case accessRouter:
		k.wayOut(s, name, u)
	case accessAt:
		router, node, _ := strings.Cut(name, "@")
		k.gate(s, accessPlace{router, node}, u)
	case accessOn:
		k.byOthers(s, name, u)
	case accessPort:
		for p := range s.PortsNamed(name) {
			k.translate(s, p, u)
			return // as of portKind
		}
	}
}

// nodesSetRef is the Address_Set of the addresses of all nodes, of the family of an address.
func nodesSetRef(like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Access/"+accessNodes, family(like))}
}

// heldSetRef is the Address_Set of a node's node addresses of Ports.
func heldSetRef(node string, like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Access/"+accessOn+node, family(like))}
}

// translatedSetRef is the Address_Set of the own addresses of Ports that have node addresses.
func translatedSetRef(p accessPlace, like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Access/"+accessAt+p.String(), "translated", family(like))}
}

// set is the name of an Address_Set.
func (k *accessKind) set(ref nb.Ref) string {
	is := "ip4"
	if strings.HasSuffix(ref.Key, "ip6") {
		is = "ip6"
	}
	return k.cluster.Set(is, ref.Key)
}

// within fits packets with an address of one of two Address_Sets, which are of one family each.
func (k *accessKind) within(side string, set func(netip.Addr) nb.Ref) string {
	var either []string
	for _, all := range everything {
		like := all.Destination.Addr()
		either = append(either, fmt.Sprintf("%s.%s == $%s", family(like), side, k.set(set(like))))
	}
	return or(either)
}

// translate makes a Port's node addresses stand for its own first ones.
func (k *accessKind) translate(s *intent.State, p intent.Port, u *nb.Unit) {
	at, ok := k.ports[p.ID]
	if !ok || !k.there(s, at.node) || !k.layout.hasRouter(at.router) {
		return
	}
	gate, _ := k.layout.gate(at)
	for _, a := range p.NodeAddresses {
		i := slices.IndexFunc(p.Addresses, func(own netip.Addr) bool { return own.Is4() == a.Is4() })
		if i < 0 {
			continue
		}
		u.Put(heldSetRef(at.node, a), "addresses", a.String())
		u.Put(translatedSetRef(at, a), "addresses", p.Addresses[i].String())
		nat := &nb.NAT{
			Type: "dnat_and_snat", ExternalIP: a.String(), LogicalIP: p.Addresses[i].String(), GatewayPort: &gate,
		}
		k.layout.translate(at, a, nat)
		u.AddTo(routerRef(at.router), "nat", nb.Key("Access/"+accessPort+p.ObjectKey(), family(a)), nat)
	}
}

// there says whether a node is on a switch of the Network default.
func (k *accessKind) there(s *intent.State, node string) bool {
	_, known := s.Networks().Get(intent.DefaultNetworkName)
	return known && k.layout.hasNode(node) && len(nodeSubnets(s, node)) > 0
}

// byOthers makes the Router default send what is for node addresses to the kernel of the node that
// has them, since a Router's port on a chassis takes packets on that one only. What comes from the
// node's own switch, by a Service, is on that chassis, and goes back there.
func (k *accessKind) byOthers(s *intent.State, node string, u *nb.Unit) {
	if len(k.routers[node]) == 0 || !k.there(s, node) || !k.layout.hasRouter(intent.DefaultRouterName) {
		return
	}
	n, _ := s.Nodes().Get(node)
	for _, all := range everything {
		set := heldSetRef(node, all.Destination.Addr())
		u.Add(set.Key, &nb.AddressSet{Name: k.set(set)})
	}
	toNode, toOwn := k.layout.priorities()
	for _, a := range names.ManagementAddresses(n) {
		set := heldSetRef(node, a)
		match := fmt.Sprintf("%s.dst == $%s", family(a), k.set(set))
		u.AddTo(routerRef(intent.DefaultRouterName), "policies", set.Key, &nb.RouterPolicy{
			Priority: toNode, Match: match, Action: "reroute", Nexthops: []string{a.String()},
		})
		u.AddTo(routerRef(intent.DefaultRouterName), "policies", nb.Key(set.Key, "own"), &nb.RouterPolicy{
			Priority: toOwn, Match: and(k.layout.atNode(node), match), Action: "allow",
		})
	}
}
