// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
)

// writeVPNInterface makes the Router of a Port have the extra routes of an entry. What else the
// entry says is compared with the Port, which its Network puts into the Router.
func writeVPNInterface(w *World, e *vpnInterface) error {
	key, err := interfaceKey(text(e.Name))
	if err != nil {
		return err
	}
	p := w.Ports[key]
	switch {
	case p == nil || w.hidden[key]:
		return invalid("name", fmt.Sprintf("there is no Port %s: make it first, as elan-interface %s", key, text(e.Name)))
	case !alive(p):
		return datatree.Fail(datatree.InUse, "name", fmt.Sprintf("the Port %s is being deleted", key))
	case p.Spec.ByAgent():
		return madeByAgent(key)
	}
	if err := checkMembership(w, p, e); err != nil {
		return err
	}
	routes, subnets := map[string]string{}, map[string]string{}
	for _, prefix := range slices.Sorted(maps.Keys(e.Adjacency)) {
		a := e.Adjacency[prefix]
		at := "adjacency[ip_address='" + prefix + "']/"
		switch a.AdjacencyType {
		case primaryAdjacency:
			err = checkPrimary(w, p, a, at)
		case extraRoute:
			routes[prefix], err = nextHop(p, a, at)
		default:
			err = unsupported(at+"adjacency_type", "is learnt-ip: addresses are not learnt, but those of the Port")
		}
		if err != nil {
			return err
		}
		if a.SubnetId != nil {
			subnets[prefix] = *a.SubnetId
		}
	}
	if err := setRoutes(w, p, routes); err != nil {
		return err
	}
	return setSubnetIDs(w, p, subnets)
}

// checkMembership compares the instance of an entry with the Router that the Port's Network is in.
func checkMembership(w *World, p *v1alpha1.Port, e *vpnInterface) error {
	if text(e.RouterInterface) {
		return unsupported("router-interface", "is true: a Router has no Ports of its own, its subnets have gateways")
	}
	if len(e.VpnInstanceNames) > 1 {
		return unsupported("vpn-instance-names", "has several instances: a Port is in one Router, that of its Network")
	}
	for name, of := range e.VpnInstanceNames {
		router := routerOf(w, p)
		if router == "" {
			return invalid("vpn-instance-names", fmt.Sprintf("there is no Network %s, on which the Port %s is",
				p.Spec.Network, keyOf(p)))
		}
		if name != vpnNameOf(w, router) {
			return invalid("vpn-instance-names", fmt.Sprintf("is %q: the Port %s is on the Network %s, which is in the Router %s",
				name, keyOf(p), p.Spec.Network, router))
		}
		known := subnetTypeOf(addressesOf(p))
		if t := of.AssociatedSubnetType; t != 0 && known != 0 && t != known && known != bothTypes {
			return invalid("vpn-instance-names/associated-subnet-type", fmt.Sprintf(
				"is not that of the Port %s, which has the addresses %s", keyOf(p), strings.Join(addressesOf(p), ", ")))
		}
	}
	return nil
}

// checkPrimary compares an address of an entry with those of the Port.
func checkPrimary(w *World, p *v1alpha1.Port, a *adjacency, at string) error {
	host := ""
	for _, address := range addressesOf(p) {
		if hostPrefix(address) == *a.IpAddress {
			host = address
		}
	}
	if host == "" {
		return invalid(at+"ip_address", fmt.Sprintf(
			"is no address of the Port %s: those are given by its elan-interface, and cannot be changed", keyOf(p)))
	}
	if len(a.NextHopIpList) > 0 && !slices.Equal(a.NextHopIpList, []string{host}) {
		return invalid(at+"next-hop-ip-list", "is for extra-route: an address of the Port itself has no next hop")
	}
	mac := strings.ToLower(text(a.MacAddress))
	if mac != "" && mac != strings.ToLower(p.Spec.MAC) && mac != strings.ToLower(p.Status.MAC) {
		return invalid(at+"mac_address", fmt.Sprintf(
			"is not that of the Port %s: it is given by its elan-interface, and cannot be changed", keyOf(p)))
	}
	gateway := gatewayOf(w.Networks[p.Spec.Network], host)
	if want := text(a.SubnetGatewayIp); want != "" && gateway != "" && want != gateway {
		return invalid(at+"subnet_gateway_ip", fmt.Sprintf("is %s: the subnet's gateway is %s", want, gateway))
	}
	return nil
}

// nextHop is the address of the Port that an extra route leads to: without one, the first of the
// route's family.
func nextHop(p *v1alpha1.Port, a *adjacency, at string) (string, error) {
	if len(a.NextHopIpList) > 1 {
		return "", unsupported(at+"next-hop-ip-list", "has several addresses: a route has one next hop")
	}
	addresses := addressesOf(p)
	want := first(a.NextHopIpList)
	if want == "" {
		i := slices.IndexFunc(addresses, func(address string) bool { return sameFamily(address, *a.IpAddress) })
		if i < 0 {
			return "", invalid(at+"next-hop-ip-list",
				fmt.Sprintf("the Port %s has no address of the prefix's family", keyOf(p)))
		}
		return addresses[i], nil
	}
	switch {
	case !slices.Contains(addresses, want):
		return "", invalid(at+"next-hop-ip-list", fmt.Sprintf("%s is no address of the Port %s", want, keyOf(p)))
	case !sameFamily(want, *a.IpAddress):
		return "", invalid(at+"next-hop-ip-list", fmt.Sprintf("%s is of another family than the prefix", want))
	}
	return want, nil
}

// setRoutes makes the Port's Router have these routes by way of the Port, next hops by prefix, and
// no others by way of it.
func setRoutes(w *World, p *v1alpha1.Port, wanted map[string]string) error {
	now := routesBy(w, p)
	same := len(now) == len(wanted)
	for prefix, hop := range wanted {
		same = same && canonicalAddress(now[prefix].NextHop) == hop
	}
	if same {
		return nil
	}
	name := routerOf(w, p)
	r := w.Routers[name]
	if r == nil || !alive(r) {
		return invalid("adjacency", fmt.Sprintf("there is no Router %s to have the route: make it first, as vpn-instance",
			name))
	}
	r = r.DeepCopy()
	var routes []v1alpha1.Route
	for _, route := range r.Spec.Routes {
		prefix := canonicalPrefix(route.Destination)
		hop, there := wanted[prefix]
		_, mine := now[prefix]
		switch {
		case !mine && there:
			return datatree.Fail(datatree.DataExists, "adjacency[ip_address='"+prefix+"']", fmt.Sprintf(
				"the Router %s has a route for it by way of %s: a prefix has one next hop", name, route.NextHop))
		case mine && !there:
			continue
		case there && canonicalAddress(route.NextHop) != hop:
			route.NextHop = hop
		}
		routes = append(routes, route)
	}
	for _, prefix := range slices.Sorted(maps.Keys(wanted)) {
		if _, mine := now[prefix]; !mine {
			routes = append(routes, v1alpha1.Route{Destination: prefix, NextHop: wanted[prefix]})
		}
	}
	r.Spec.Routes = routes
	w.Routers[name] = r
	return nil
}

// setSubnetIDs writes the annotation, or removes it.
func setSubnetIDs(w *World, p *v1alpha1.Port, subnets map[string]string) error {
	if maps.Equal(subnets, readSubnetIDs(p)) {
		return nil
	}
	p = p.DeepCopy()
	w.Ports[keyOf(p)] = p
	if len(subnets) == 0 {
		delete(p.Annotations, AnnotationVPNInterface)
		return nil
	}
	data, err := json.Marshal(subnets)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, AnnotationVPNInterface, string(data))
	return nil
}

// removeVPNInterface refuses: what is there is the Port.
func removeVPNInterface(_ *World, name string) error {
	return unsupported("name", fmt.Sprintf(
		"is there as long as the Port is: delete elan-interface %s, or write the entry without its extra-routes", name))
}
