// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// linkKind are pairs of Routers that know routes of each other: a Logical_Router_Port on both
// sides, and in each Router the routes that it takes over. Shared Routers have a link with the
// Router default, which knows them all, and to which they send what they have no route for.
//
// A link has no subnet. What one Router has for an address there, and the other one as next hop, is
// made of the number of the Router on the other side, so that it is unique in each.
type linkKind struct{ cluster names.Cluster }

// Name implements Kind.
func (linkKind) Name() string { return "Link" }

// linkKey is the key of a unit: both names, in order.
func linkKey(a, b string) string { return min(a, b) + "+" + max(a, b) }

// Affected implements Kind.
func (linkKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, s := range states(from, to) {
		routers := slices.Clone(d.Routers)
		for _, name := range d.Networks {
			if n, ok := s.Networks().Get(name); ok {
				routers = append(routers, n.Router)
			}
		}
		slices.Sort(routers)
		for _, name := range slices.Compact(routers) {
			linksOf(s, name, yield)
		}
	}
}

// linksOf yields the keys of all links that a Router may have.
func linksOf(s *intent.State, name string, yield func(string)) {
	r, ok := s.Routers().Get(name)
	if !ok {
		return
	}
	for _, other := range r.Imports {
		yield(linkKey(name, other))
	}
	for other := range s.Importers(name) {
		yield(linkKey(name, other.Name))
	}
	if name != intent.DefaultRouterName {
		yield(linkKey(name, intent.DefaultRouterName))
		return
	}
	for other := range s.Routers().All() {
		if other.Shared && other.Name != name {
			yield(linkKey(name, other.Name))
		}
	}
}

// Compile implements Kind.
func (k linkKind) Compile(s *intent.State, key string, u *nb.Unit) {
	first, second, _ := strings.Cut(key, "+")
	a, ok := s.Routers().Get(first)
	b, known := s.Routers().Get(second)
	if !ok || !known || !(takesOver(a, b) || takesOver(b, a)) {
		return
	}
	k.side(key, a, b, u)
	k.side(key, b, a, u)
	k.routes(s, key, a, b, u)
	k.routes(s, key, b, a, u)
}

// takesOver says whether a Router knows the routes of another one by a link between them.
func takesOver(r, other intent.Router) bool {
	switch intent.DefaultRouterName {
	case r.Name:
		return other.Shared
	case other.Name:
		return r.Shared
	}
	return slices.Contains(r.Imports, other.Name)
}

// side makes the port of a Router on its link with another one.
func (k linkKind) side(key string, r, other intent.Router, u *nb.Unit) {
	peer := k.cluster.PeerPort(other.Name, r.Name)
	u.AddTo(routerRef(r.Name), "ports", nb.Key("Link/"+key, r.Name), &nb.LogicalRouterPort{
		Name: k.cluster.PeerPort(r.Name, other.Name), Peer: &peer, MAC: linkMAC(other.ID).String(),
		Networks: []string{netip.PrefixFrom(linkAddress(other.ID), 32).String()},
	})
}

// routes makes what a Router has of another one.
func (k linkKind) routes(s *intent.State, key string, r, other intent.Router, u *nb.Unit) {
	if !takesOver(r, other) {
		return
	}
	port := k.cluster.PeerPort(r.Name, other.Name)
	for _, p := range exported(s, other) {
		hop := linkAddress(r.ID)
		if p.Addr().Is6() {
			hop = linkMAC(r.ID).LinkLocal()
		}
		u.AddTo(routerRef(r.Name), "static_routes", nb.Key("Link/"+key, r.Name, p.String()), &nb.StaticRoute{
			IPPrefix: p.String(), Nexthop: hop.String(), OutputPort: &port,
		})
	}
}

// exported are the destinations that others reach by a Router: of the Router default everything.
func exported(s *intent.State, r intent.Router) (list []netip.Prefix) {
	if r.Name == intent.DefaultRouterName {
		for _, all := range everything {
			list = append(list, all.Destination)
		}
		return list
	}
	for n := range s.NetworksOf(r.Name) {
		if n.Physical != "" {
			continue
		}
		for _, sn := range n.Subnets {
			list = append(list, sn.Prefix)
		}
	}
	for _, route := range effective(r) {
		if route.Destination.Bits() > 0 && !slices.Contains(list, route.Destination) {
			list = append(list, route.Destination)
		}
	}
	return list
}
