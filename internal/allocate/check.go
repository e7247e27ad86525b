// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// checkNetwork reads a Network by itself. The API server refuses most of what is an error here; an
// API server with older definitions may not.
func checkNetwork(n *v1alpha1.Network) ([]translate.Pool, error) {
	if s := n.Spec.NamespaceSelector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	switch {
	case n.Spec.Type == v1alpha1.VLAN && n.Spec.VLAN == nil:
		return nil, fmt.Errorf("spec.vlan: type VLAN needs one")
	case n.Spec.Type != v1alpha1.VLAN && n.Spec.VLAN != nil:
		return nil, fmt.Errorf("spec.vlan: is for type VLAN only")
	case n.Spec.Type != v1alpha1.Overlay && n.Spec.PhysicalNetwork == "":
		return nil, fmt.Errorf("spec.physicalNetwork: types VLAN and Flat need one")
	case n.Spec.Type != v1alpha1.Overlay && n.Spec.Router != "":
		return nil, fmt.Errorf("spec.router: is for type Overlay only")
	case n.Spec.IPAM == v1alpha1.PodCIDR && len(n.Spec.Subnets) > 0:
		return nil, fmt.Errorf("spec.subnets: with ipam PodCIDR they are those of the nodes")
	case n.Spec.IPAM == v1alpha1.DHCPServers && n.Spec.Type == v1alpha1.Overlay:
		return nil, fmt.Errorf("spec.ipam: DHCP is for types VLAN and Flat only")
	case n.Spec.IPAM == v1alpha1.DHCPServers && len(n.Spec.Subnets) > 0:
		return nil, fmt.Errorf("spec.subnets: with ipam DHCP they are those of the physical network's servers")
	case n.Spec.IPAM != v1alpha1.DHCPServers && n.Spec.DHCPRelay != nil:
		return nil, fmt.Errorf("spec.dhcpRelay: is for ipam DHCP only")
	case n.Spec.IPAM != v1alpha1.PodCIDR && n.Spec.Type == v1alpha1.Overlay && len(n.Spec.Subnets) == 0:
		return nil, fmt.Errorf("spec.subnets: an overlay with ipam Blocks needs one")
	}
	return translate.Pools(n)
}

// checkRouter reads a Router by itself.
func checkRouter(r *v1alpha1.Router) error {
	if rd := r.Spec.RouteDistinguisher; rd != "" && !isRouteTarget(rd) {
		return fmt.Errorf("spec.routeDistinguisher: %q is not AS:number or IPv4:number", rd)
	}
	for _, list := range []struct {
		field   string
		targets []string
	}{
		{"importRouteTargets", r.Spec.ImportRouteTargets},
		{"exportRouteTargets", r.Spec.ExportRouteTargets},
	} {
		for i, t := range list.targets {
			if !isRouteTarget(t) {
				return fmt.Errorf("spec.%s[%d]: %q is not AS:number or IPv4:number", list.field, i, t)
			}
		}
	}
	for i, route := range r.Spec.Routes {
		destination, err := netip.ParsePrefix(route.Destination)
		if err != nil || destination != destination.Masked() {
			return fmt.Errorf("spec.routes[%d].destination: %q is not a CIDR", i, route.Destination)
		}
		hop, err := netip.ParseAddr(route.NextHop)
		if err != nil || hop.Is4() != destination.Addr().Is4() {
			return fmt.Errorf("spec.routes[%d].nextHop: %q is not an address of the destination's family", i,
				route.NextHop)
		}
	}
	return nil
}

// isRouteTarget reads a route target or distinguisher of six bytes: AS:number or IPv4:number (RFC
// 4364, 4.2; RFC 5668).
func isRouteTarget(text string) bool {
	administrator, number, found := strings.Cut(text, ":")
	if !found {
		return false
	}
	bits := 16
	if as, err := strconv.ParseUint(administrator, 10, 32); err == nil {
		if as <= 1<<16-1 {
			bits = 32
		}
	} else if ip, err := netip.ParseAddr(administrator); err != nil || !ip.Is4() {
		return false
	}
	_, err := strconv.ParseUint(number, 10, bits)
	return err == nil
}
