// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// routerKind are Routers: a Logical_Router each, with its own routes. What leads to other Routers
// is of linkKind.
//
// The Router default is where packets leave the cluster. A route leads all that no other one does
// to its port "way out", which nothing is behind, and policies lead what is for that port to the
// management port of a node: a Logical_Router_Policy is not asked about a packet without a route.
type routerKind struct{ cluster names.Cluster }

// The priorities of the Router default's policies.
const (
	withinPriority   = 900 // drops what is for the cluster and has no route
	sourcePriority   = 500 // to the node that the source is a pod of
	residentPriority = 400 // to the node that the packet is on
	nowherePriority  = 1
)

// Name implements Kind.
func (routerKind) Name() string { return "Router" }

// Affected implements Kind.
func (routerKind) Affected(_, _ *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Routers {
		yield(name)
	}
}

// Compile implements Kind.
func (k routerKind) Compile(s *intent.State, name string, u *nb.Unit) {
	r, ok := s.Routers().Get(name)
	if !ok {
		return
	}
	ref := u.Add("Router/"+name, &nb.LogicalRouter{Name: k.cluster.Router(name), Options: map[string]string{
		// Neighbors are known from the rows of their ports; those of wires are learned when asked
		// for.
		"always_learn_from_arp_request": "false",
		"mac_binding_age_threshold":     "300",
	}})
	for _, route := range effective(r) {
		key := nb.Key("Router/"+name, "route", route.Destination.String())
		u.AddTo(ref, "static_routes", key, &nb.StaticRoute{
			IPPrefix: route.Destination.String(), Nexthop: route.NextHop.String(),
		})
	}
	switch n := len(r.Routes) - len(effective(r)); {
	case n > 0 && !r.Private():
		u.Problem("Router "+name, "RouteIgnored",
			"a default route of a shared Router has no effect, and of several routes to one destination only the first has")
	case n > 0:
		u.Problem("Router "+name, "RouteIgnored", "of several routes to one destination only the first has an effect")
	}
	if name == intent.DefaultRouterName {
		k.wayOut(ref, u)
	}
}

// effective are a Router's routes that have an effect: the first to each destination, and in a
// shared Router no default route.
func effective(r intent.Router) (routes []intent.Route) {
	seen := map[netip.Prefix]bool{}
	for _, route := range r.Routes {
		if seen[route.Destination] || route.Destination.Bits() == 0 && !r.Private() {
			continue
		}
		seen[route.Destination] = true
		routes = append(routes, route)
	}
	return routes
}

// wayOutPort is the name of the Router default's port "way out".
func wayOutPort(c names.Cluster) string { return c.PeerPort(intent.DefaultRouterName, "") }

// everything are all destinations of each family, with an address that stands for a next hop.
var everything = []intent.Route{
	{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: netip.MustParseAddr("240.255.0.2")},
	{Destination: netip.MustParsePrefix("::/0"), NextHop: netip.MustParseAddr("fe80::2")},
}

// wayOut makes the Router default's port "way out" and what is common to all nodes.
func (k routerKind) wayOut(router nb.Ref, u *nb.Unit) {
	port := wayOutPort(k.cluster)
	u.AddTo(router, "ports", nb.Key(router.Key, "way-out"), &nb.LogicalRouterPort{
		Name: port, MAC: linkMAC(0).String(), Networks: []string{"240.255.0.1/30"},
	})
	for _, all := range everything {
		dst := all.Destination.Addr()
		u.AddTo(router, "static_routes", nb.Key(router.Key, "way-out", family(dst)), &nb.StaticRoute{
			IPPrefix: all.Destination.String(), Nexthop: all.NextHop.String(), OutputPort: &port,
		})
		set := clusterSetRef(dst)
		name := k.cluster.Set(family(dst), set.Key)
		u.Add(set.Key, &nb.AddressSet{Name: name})
		pods := podsSetRef(dst)
		u.Add(pods.Key, &nb.AddressSet{Name: k.cluster.Set(family(dst), pods.Key)})
		tenants := tenantsSetRef(dst)
		tenantsName := k.cluster.Set(family(dst), tenants.Key)
		u.Add(tenants.Key, &nb.AddressSet{Name: tenantsName})
		u.AddTo(router, "policies", nb.Key(router.Key, "within", family(dst)), &nb.RouterPolicy{
			Priority: withinPriority, Match: fmt.Sprintf("outport == %q && %s.dst == $%s", port, family(dst), name),
			Action: "drop",
		})
		u.AddTo(router, "policies", nb.Key(router.Key, "tenants", family(dst)), &nb.RouterPolicy{
			Priority: withinPriority, Action: "drop",
			Match: fmt.Sprintf("outport == %q && %s.dst == $%s", port, family(dst), tenantsName),
		})
	}
	u.AddTo(router, "policies", nb.Key(router.Key, "nowhere"), &nb.RouterPolicy{
		Priority: nowherePriority, Match: fmt.Sprintf("outport == %q", port), Action: "drop",
	})
}

// clusterSetRef is the Address_Set of all that is in the cluster, of the family of an address: what
// has no way out of it.
func clusterSetRef(like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Router/"+intent.DefaultRouterName, "cluster", family(like))}
}

// podsSetRef is the Address_Set of all pods of the cluster, also those on Networks of shared
// Routers, and of node addresses: what is in the cluster but for ClusterIPs.
func podsSetRef(like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Router/"+intent.DefaultRouterName, "pods", family(like))}
}

// ofPods makes a prefix one of the cluster's pods.
func ofPods(u *nb.Unit, p netip.Prefix) {
	u.Put(clusterSetRef(p.Addr()), "addresses", p.String())
	u.Put(podsSetRef(p.Addr()), "addresses", p.String())
}

// rangeKind are the prefixes of ClusterIPs, which are in the cluster.
type rangeKind struct{}

// Name implements Kind.
func (rangeKind) Name() string { return "ServiceRange" }

// Affected implements Kind.
func (rangeKind) Affected(_, _ *intent.State, d intent.Delta, yield func(string)) {
	for _, prefix := range d.ServiceRanges {
		yield(prefix)
	}
}

// Compile implements Kind.
func (rangeKind) Compile(s *intent.State, key string, u *nb.Unit) {
	if r, ok := s.ServiceRanges().Get(key); ok {
		u.Put(clusterSetRef(r.Prefix.Addr()), "addresses", r.Prefix.String())
	}
}
