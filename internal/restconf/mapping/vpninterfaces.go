// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// AnnotationVPNInterface on a Port has what its vpn-interface calls subnets: uuids by prefixes.
const AnnotationVPNInterface = "coelan.io/restconf-vpn-interface"

type (
	vpnInterface = yangmodel.L3Vpn_VpnInterfaces_VpnInterface
	vpnOf        = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_VpnInstanceNames
	subnetType   = yangmodel.E_L3Vpn_VpnInterfaces_VpnInterface_VpnInstanceNames_AssociatedSubnetType
	adjacency    = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_Adjacency
)

const (
	primaryAdjacency = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_Adjacency_AdjacencyType_primary_adjacency
	extraRoute       = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_Adjacency_AdjacencyType_extra_route

	v4Subnet  = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_VpnInstanceNames_AssociatedSubnetType_V4Subnet
	v6Subnet  = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_VpnInstanceNames_AssociatedSubnetType_V6Subnet
	bothTypes = yangmodel.L3Vpn_VpnInterfaces_VpnInterface_VpnInstanceNames_AssociatedSubnetType_V4AndV6Subnets
)

// vpnInterfaces are Ports as members of Routers, with the Routers' routes by way of them: in
// configuration those of users.
func vpnInterfaces() *List {
	return &List{
		Container: "vpn-interfaces", Name: "vpn-interface",
		Reads:       []Resource{Ports, Networks, Routers},
		Late:        true,
		New:         func() ygot.GoStruct { return &vpnInterface{} },
		Entries:     func(w *World) []ygot.GoStruct { return structs(showVPNInterfaces(w, false)) },
		Operational: func(w *World) []ygot.GoStruct { return structs(showVPNInterfaces(w, true)) },
		Write:       writer(writeVPNInterface),
		Remove:      removeVPNInterface,
		Kept:        userInterfaces,
	}
}

// interfaceName is the name that clients of Netvirt know a Port by.
func interfaceName(p *v1alpha1.Port) string { return p.Namespace + ":" + p.Name }

// routerOf is the name of the Router that a Port is in; empty if its Network is not there.
func routerOf(w *World, p *v1alpha1.Port) string {
	n := w.Networks[p.Spec.Network]
	if n == nil {
		return ""
	}
	return cmp.Or(n.Spec.Router, n.Name)
}

// vpnNameOf is the name of a Router's instance.
func vpnNameOf(w *World, router string) string {
	if r := w.Routers[router]; r != nil {
		return vpnName(r)
	}
	return router
}

// addressesOf are the addresses that a Port has or asks for.
func addressesOf(p *v1alpha1.Port) []string {
	return canonicalAddresses(slices.Concat(p.Spec.Addresses, p.Status.Addresses))
}

// routesBy are the routes of a Port's Router that lead to the Port, by their prefixes.
func routesBy(w *World, p *v1alpha1.Port) map[string]v1alpha1.Route {
	routes := map[string]v1alpha1.Route{}
	r := w.Routers[routerOf(w, p)]
	if r == nil {
		return routes
	}
	addresses := addressesOf(p)
	for _, route := range r.Spec.Routes {
		if slices.Contains(addresses, canonicalAddress(route.NextHop)) {
			routes[canonicalPrefix(route.Destination)] = route
		}
	}
	return routes
}

// showVPNInterfaces are the interfaces as they are asked for, or as they are in operation.
func showVPNInterfaces(w *World, operational bool) []*vpnInterface {
	var list []*vpnInterface
	for _, p := range sortedPorts(w, operational) {
		list = append(list, showVPNInterface(w, p, operational))
	}
	return list
}

func showVPNInterface(w *World, p *v1alpha1.Port, operational bool) *vpnInterface {
	e := &vpnInterface{Name: ygot.String(interfaceName(p)), Adjacency: map[string]*adjacency{}}
	mac, addresses := p.Spec.MAC, p.Spec.Addresses
	if operational {
		mac, addresses = cmp.Or(p.Status.MAC, mac), p.Status.Addresses
	}
	if router := routerOf(w, p); router != "" {
		name := vpnNameOf(w, router)
		e.VpnInstanceNames = map[string]*vpnOf{name: {VpnName: &name, AssociatedSubnetType: subnetTypeOf(addresses)}}
	}
	subnets := readSubnetIDs(p)
	for _, a := range addresses {
		a = canonicalAddress(a)
		prefix := hostPrefix(a)
		e.Adjacency[prefix] = &adjacency{
			IpAddress: &prefix, AdjacencyType: primaryAdjacency, MacAddress: optional(strings.ToLower(mac)),
			SubnetId: optional(subnets[prefix]), SubnetGatewayIp: optional(gatewayOf(w.Networks[p.Spec.Network], a)),
		}
	}
	for prefix, route := range routesBy(w, p) {
		e.Adjacency[prefix] = &adjacency{
			IpAddress: ygot.String(prefix), AdjacencyType: extraRoute,
			NextHopIpList: []string{canonicalAddress(route.NextHop)}, SubnetId: optional(subnets[prefix]),
		}
	}
	return e
}

// subnetTypeOf says which families addresses are of.
func subnetTypeOf(addresses []string) subnetType {
	families := subnetType(0)
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a)
		switch {
		case err != nil:
		case ip.Is4() && families != v6Subnet && families != bothTypes:
			families = v4Subnet
		case !ip.Is4() && families != v4Subnet && families != bothTypes:
			families = v6Subnet
		default:
			families = bothTypes
		}
	}
	return families
}

// hostPrefix is the prefix of one address.
func hostPrefix(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// gatewayOf is the gateway of the subnet that an address is in: the first address, if the subnet
// does not name one. It is empty if the Network has no such subnet.
func gatewayOf(n *v1alpha1.Network, address string) string {
	if n == nil {
		return ""
	}
	for _, s := range n.Spec.Subnets {
		if !inside(address, s.CIDR) {
			continue
		}
		if s.Gateway != "" {
			return canonicalAddress(s.Gateway)
		}
		return netip.MustParsePrefix(s.CIDR).Masked().Addr().Next().String() // inside has parsed it
	}
	return ""
}

// readSubnetIDs is what the annotation says; nothing if a client of Kubernetes has broken it.
func readSubnetIDs(p *v1alpha1.Port) map[string]string {
	ids := map[string]string{}
	if text := p.Annotations[AnnotationVPNInterface]; text != "" && json.Unmarshal([]byte(text), &ids) != nil {
		return map[string]string{}
	}
	return ids
}
