// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Default is the network that all pods join, and its router.
func Default() (intent.Network, intent.Router) {
	network := intent.Network{
		Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, VNI: uint32(intent.DefaultNetwork),
		Router: intent.DefaultRouterName,
	}
	router := intent.Router{
		Name: intent.DefaultRouterName, ID: intent.DefaultRouter, VNI: uint32(intent.DefaultNetwork), Shared: true,
	}
	return network, router
}

// Networks translates Routers and Networks as the controller has admitted them: what has no id or
// is not Ready has no effect, nor has a Network without its Router. The default Network and Router
// are always among the rest, which is sorted by name.
func Networks(routers []*v1alpha1.Router, networks []*v1alpha1.Network) ([]intent.Router, []intent.Network, []Problem) {
	t := &networkTables{routers: map[string]intent.Router{}, networks: map[string]intent.Network{}}
	network, router := Default()
	t.routers[router.Name], t.networks[network.Name] = router, network
	t.addRouters(routers)
	for _, n := range networks {
		switch {
		case n.Name == intent.DefaultNetworkName:
			network.UID = string(n.UID)
			t.networks[n.Name] = network
		case Admitted(n.Status.ID, n.Status.Conditions):
			t.addNetwork(n)
		}
	}
	sortProblems(t.problems)
	return sorted(t.routers, func(r intent.Router) string { return r.Name }),
		sorted(t.networks, func(n intent.Network) string { return n.Name }), t.problems
}

// Admitted says whether the controller lets an object take effect.
func Admitted(id int32, conditions []metav1.Condition) bool {
	return id > 0 && !meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionReady)
}

func sorted[T any](m map[string]T, name func(T) string) []T {
	list := make([]T, 0, len(m))
	for _, v := range m {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return list
}

type networkTables struct {
	routers  map[string]intent.Router
	networks map[string]intent.Network
	problems []Problem
}

func (t *networkTables) problem(object, field, value, text string) {
	t.problems = append(t.problems, Problem{Object: object, Field: field, Value: value, Reason: Malformed, Text: text})
}

func (t *networkTables) addRouters(objects []*v1alpha1.Router) {
	exports := map[string][]string{} // names of Routers by route target
	shared := map[string]bool{}
	for _, o := range objects {
		r, ok := t.router(o)
		if !ok {
			continue
		}
		for _, target := range exportTargets(o) {
			exports[target] = append(exports[target], o.Name)
		}
		t.routers[r.Name], shared[r.Name] = r, r.Shared
	}
	for _, o := range objects {
		if r, ok := t.routers[o.Name]; ok {
			r.Imports = imports(o, exports, shared)
			t.routers[o.Name] = r
		}
	}
}

// router reads a Router without its imports; false if it has no effect.
func (t *networkTables) router(o *v1alpha1.Router) (r intent.Router, ok bool) {
	r = intent.Router{
		Name: o.Name, ID: intent.RouterID(o.Status.ID), VNI: uint32(o.Status.VNI), //nolint:gosec // both are positive
		Shared: IsShared(o),
	}
	if o.Name == intent.DefaultRouterName {
		_, r = Default()
	} else if !Admitted(o.Status.ID, o.Status.Conditions) {
		return intent.Router{}, false
	}
	r.Routes, r.Distinguisher = t.routes(o), o.Spec.RouteDistinguisher
	r.ImportTargets, r.ExportTargets = importTargets(o), otherTargets(o.Spec.ExportRouteTargets)
	return r, true
}

// exportTargets are the route targets by which other Routers import the routes of one. Shared
// stands for the target of the Router default.
func exportTargets(o *v1alpha1.Router) []string {
	if o.Name == intent.DefaultRouterName || !Admitted(o.Status.ID, o.Status.Conditions) {
		return nil
	}
	return otherTargets(o.Spec.ExportRouteTargets)
}

// importTargets are the route targets by which a Router imports the routes of others.
func importTargets(o *v1alpha1.Router) []string { return otherTargets(o.Spec.ImportRouteTargets) }

// otherTargets are those of a list beside that of the Router default, sorted.
func otherTargets(list []string) []string {
	others := slices.DeleteFunc(slices.Clone(list), func(t string) bool { return t == v1alpha1.DefaultRouteTarget })
	slices.Sort(others)
	return others
}

// IsShared says that a Router exchanges routes with the Router default in both directions. One
// direction alone would be of no use: there would be no way back.
func IsShared(o *v1alpha1.Router) bool {
	return slices.Contains(o.Spec.ImportRouteTargets, v1alpha1.DefaultRouteTarget) &&
		slices.Contains(o.Spec.ExportRouteTargets, v1alpha1.DefaultRouteTarget)
}

// imports are the Routers that export what o imports. Shared Routers meet in the Router default,
// and need no routes of each other.
func imports(o *v1alpha1.Router, exports map[string][]string, shared map[string]bool) []string {
	var names []string
	for _, target := range importTargets(o) {
		for _, name := range exports[target] {
			if name != o.Name && !(shared[o.Name] && shared[name]) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *networkTables) routes(o *v1alpha1.Router) []intent.Route {
	var routes []intent.Route
	for i, r := range o.Spec.Routes {
		field := fmt.Sprintf("spec.routes[%d]", i)
		destination, err := parsePrefix(r.Destination)
		if err != nil {
			t.problem("router "+o.Name, field+".destination", r.Destination, err.Error())
			continue
		}
		hop, err := netip.ParseAddr(r.NextHop)
		if err != nil || hop.Is4In6() || hop.Is4() != destination.Addr().Is4() {
			t.problem("router "+o.Name, field+".nextHop", r.NextHop, "is not an address of the destination's family")
			continue
		}
		routes = append(routes, intent.Route{Destination: destination, NextHop: hop})
	}
	return routes
}

func (t *networkTables) addNetwork(o *v1alpha1.Network) {
	n := t.network(o)
	// Without its Router, which may be on its way, it is of no use; the controller tells if there
	// is none. One of a physical network without its name is one that the API does not admit.
	if _, ok := t.routers[n.Router]; ok || n.Physical != "" {
		t.networks[n.Name] = n
	}
}

// Network reads a Network whether or not it has effect.
func Network(o *v1alpha1.Network) intent.Network { return new(networkTables).network(o) }

func (t *networkTables) network(o *v1alpha1.Network) intent.Network {
	n := intent.Network{
		Name: o.Name, UID: string(o.UID), ID: intent.NetworkID(o.Status.ID), //nolint:gosec // positive
		MTU: int(o.Spec.MTU), DNS: t.dns(o), DHCP: t.dhcp(o),
		LogicalSwitch:  o.Annotations[v1alpha1.AnnotationLogicalSwitch],
		NeutronNetwork: o.Annotations[v1alpha1.AnnotationNeutronNetwork],
		Kuryr:          o.Annotations[v1alpha1.AnnotationKuryrNetwork],
		Project:        t.project(o),
		Namespace:      MadeFor(o),
	}
	t.setSubnets(&n, o)
	if o.Spec.Type != v1alpha1.VLAN && o.Spec.Type != v1alpha1.Flat {
		n.VNI, n.Router = uint32(o.Status.VNI), assignedRouter(o) //nolint:gosec // positive
		return n
	}
	n.Physical, n.External = o.Spec.PhysicalNetwork, o.Spec.External
	if n.Leased = o.Spec.IPAM == v1alpha1.DHCPServers; n.Leased {
		n.Relay = t.relay(o)
	}
	if o.Spec.Type == v1alpha1.VLAN && o.Spec.VLAN != nil {
		n.VLAN = uint16(*o.Spec.VLAN) //nolint:gosec // 1 to 4094
	}
	return n
}

// project is the project of OpenStack that a Network says it is in.
func (t *networkTables) project(o *v1alpha1.Network) string {
	id, says := o.Annotations[v1alpha1.KuryrProjectAnnotation]
	if says && !projectID.MatchString(id) {
		t.problem("network "+o.Name, "metadata.annotations["+v1alpha1.KuryrProjectAnnotation+"]", id,
			"is no id of a project")
		return ""
	}
	return id
}

// assignedRouter is the name of the Router that a Network is in: the one that the controller has
// admitted it to, if any.
func assignedRouter(o *v1alpha1.Network) string {
	return cmp.Or(o.Status.Router, o.Spec.Router, o.Name)
}

// setSubnets reads the subnets of a Network with addresses of its own, and what is handed out of
// them. What cannot be read might be in use elsewhere, so that nothing is handed out then.
func (t *networkTables) setSubnets(n *intent.Network, o *v1alpha1.Network) {
	if o.Spec.IPAM == v1alpha1.PodCIDR {
		return
	}
	for i, s := range o.Spec.Subnets {
		field := fmt.Sprintf("spec.subnets[%d]", i)
		bad := func(of, value, text string) {
			t.problem("network "+o.Name, field+of, value, text)
			n.Withheld = cmp.Or(n.Withheld, t.problems[len(t.problems)-1].Error())
		}
		prefix, err := parsePrefix(s.CIDR)
		if err != nil {
			bad(".cidr", s.CIDR, err.Error())
			continue
		}
		gateway := prefix.Addr().Next()
		if s.Gateway != "" {
			gateway, err = netip.ParseAddr(s.Gateway)
			if err != nil || !prefix.Contains(gateway) {
				bad(".gateway", s.Gateway, "is not an address of "+prefix.String())
				continue
			}
		}
		n.Subnets = append(n.Subnets, intent.NetworkSubnet{Prefix: prefix, Gateway: gateway})
		pool := intent.Pool{Subnet: prefix, BlockBits: blockLength(prefix, s.BlockPrefixLength)}
		pool.Only = addressRanges(rangeTexts(s.Ranges), func(i int, text string) {
			bad(fmt.Sprintf(".ranges[%d]", i), text, "is not a range of addresses")
		})
		pool.Except = addressRanges(s.Exclusions, func(i int, text string) {
			bad(fmt.Sprintf(".exclusions[%d]", i), text, "is not an address, a CIDR or a range of addresses")
		})
		n.Pools = append(n.Pools, pool)
	}
}

func addressRanges(texts []string, bad func(i int, text string)) []intent.AddressRange {
	var list []intent.AddressRange
	for i, text := range texts {
		r, err := ipam.ParseRange(text)
		if err != nil {
			bad(i, text)
			continue
		}
		list = append(list, intent.AddressRange{First: r.From(), Last: r.To()})
	}
	return list
}

// blockLength is the prefix length of the blocks of a subnet: what it asks for, or that of
// blockBits. It is never shorter than the subnet, and a block is never a single address, which
// would be a fixed one.
func blockLength(subnet netip.Prefix, asked int32) int {
	length := cmp.Or(int(asked), blockBits(subnet))
	return max(min(length, subnet.Addr().BitLen()-1), subnet.Bits())
}

func (t *networkTables) dns(o *v1alpha1.Network) intent.DNS {
	if o.Spec.DNS == nil {
		return intent.DNS{}
	}
	dns := intent.DNS{Searches: o.Spec.DNS.Searches, Options: o.Spec.DNS.Options}
	for i, text := range o.Spec.DNS.Nameservers {
		a, err := netip.ParseAddr(text)
		if err != nil {
			t.problem("network "+o.Name, fmt.Sprintf("spec.dns.nameservers[%d]", i), text, "is not an address")
			continue
		}
		dns.Servers = append(dns.Servers, a)
	}
	return dns
}

// parsePrefix reads a prefix of either family and masks it.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("is not a CIDR")
	}
	return p.Masked(), nil
}

// EffectiveRouter is the name of the Router that a Network is to join: its own name if it names
// none, and none at all on a physical network.
func EffectiveRouter(n *v1alpha1.Network) string {
	switch {
	case n.Name == intent.DefaultNetworkName:
		return intent.DefaultRouterName
	case n.Spec.Type == v1alpha1.VLAN || n.Spec.Type == v1alpha1.Flat:
		return ""
	}
	return cmp.Or(n.Spec.Router, n.Name)
}
