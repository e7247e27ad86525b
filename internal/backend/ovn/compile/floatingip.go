// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// floatingKind are FloatingIPs of Ports: translation of one address to one, at the node that has
// the Port. OVN does it on a Router's gateway, so the Router must have one.
type floatingKind struct{ cluster names.Cluster }

// Name implements Kind.
func (floatingKind) Name() string { return "FloatingIP" }

// Affected implements Kind.
func (floatingKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.FloatingIPs {
		yield(name)
	}
	for _, s := range states(from, to) {
		for _, id := range d.Ports {
			if p, ok := s.Ports().Get(id); ok {
				for f := range s.FloatingIPsOf(p.ObjectKey()) {
					yield(f.Name)
				}
			}
		}
		if len(d.EgressAddresses)+len(d.Networks)+len(d.Routers) == 0 {
			continue
		}
		for f := range s.FloatingIPs().All() {
			yield(f.Name)
		}
	}
}

// externalMAC is the Ethernet address of an address of ours on an external Network.
func externalMAC(a netip.Addr) string { return reserved.PodMAC(a).String() }

// Compile implements Kind.
func (k floatingKind) Compile(s *intent.State, name string, u *nb.Unit) {
	f, ok := s.FloatingIPs().Get(name)
	if !ok {
		return
	}
	object := "FloatingIP " + name
	if f.Service != "" {
		u.Problem(object, "ServiceUnsupported", "with OVN a FloatingIP stands for a Port, not for a Service; give the "+
			"Service an address of a LoadBalancerPool")
		return
	}
	for p := range s.PortsNamed(f.Port) {
		n, _ := s.Networks().Get(p.Network)
		g, ok := gatewayOf(s, n.Router)
		if !ok || g.network.Name != f.Network {
			u.Problem(object, "GatewayNeeded", "with OVN a FloatingIP needs a gateway of the Port's Router: set the "+
				"gateway of Router "+n.Router+" to Network "+f.Network+" with snat Centralized")
			return
		}
		i := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return a.Is4() == f.Address.Is4() })
		if i < 0 {
			return
		}
		port, mac := k.cluster.Port(p.ObjectKey()), externalMAC(f.Address)
		u.AddTo(routerRef(n.Router), "nat", "FloatingIP/"+name, &nb.NAT{
			Type: "dnat_and_snat", ExternalIP: f.Address.String(), ExternalMAC: &mac,
			LogicalIP: p.Addresses[i].String(), LogicalPort: &port,
		})
		return
	}
}
