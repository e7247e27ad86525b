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
// the Port. OVN does it on a Router's port on the external Network: that of its gateway, or one
// that is there for FloatingIPs alone (gatewayKind.floating).
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
		if len(d.EgressAddresses)+len(d.Networks)+len(d.Routers) == 0 && !otherNetwork(from, to, d) {
			continue
		}
		for f := range s.FloatingIPs().All() {
			yield(f.Name)
		}
	}
}

// otherNetwork says whether some Router has FloatingIPs of another Network in its place.
func otherNetwork(from, to *intent.State, d intent.Delta) (other bool) {
	if from == nil {
		return false
	}
	floatingRouters(from, to, d, func(router string) {
		before, _ := floatingNetwork(from, router)
		now, _ := floatingNetwork(to, router)
		other = other || before.Name != now.Name
	})
	return other
}

// externalMAC is the Ethernet address of an address of ours on an external Network.
func externalMAC(a netip.Addr) string { return reserved.PodMAC(a).String() }

// Compile implements Kind.
func (k floatingKind) Compile(s *intent.State, name string, u *nb.Unit) {
	f, ok := s.FloatingIPs().Get(name)
	if !ok || f.Service != "" { // that is frontKind's
		return
	}
	object := "FloatingIP " + name
	for p := range s.PortsNamed(f.Port) {
		n, _ := s.Networks().Get(p.Network)
		network, problem := translator(s, n.Router)
		switch {
		case problem != "":
			u.Problem(object, "RouterUnsupported", problem)
			return
		case network != f.Network:
			u.Problem(object, "OtherNetwork", "with OVN the Ports of a Router have FloatingIPs of one Network: those of "+
				"Router "+n.Router+" of Network "+network)
			return
		}
		i := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return a.Is4() == f.Address.Is4() })
		if i < 0 {
			return
		}
		port, mac := k.cluster.Port(p.ObjectKey()), externalMAC(f.Address)
		if _, alone := floatingNetwork(s, n.Router); alone {
			u.Put(floatingSetRef(n.Router, f.Address), "addresses", p.Addresses[i].String())
		}
		u.AddTo(routerRef(n.Router), "nat", "FloatingIP/"+name, &nb.NAT{
			Type: "dnat_and_snat", ExternalIP: f.Address.String(), ExternalMAC: &mac,
			LogicalIP: p.Addresses[i].String(), LogicalPort: &port,
			GatewayPort: ptr(gatewayPortRef(n.Router).Key),
		})
		return
	}
}

// translator is the external Network that a Router translates to, or why there is none.
func translator(s *intent.State, router string) (network, problem string) {
	if g, ok := gatewayOf(s, router); ok {
		return g.network.Name, ""
	}
	if n, ok := floatingNetwork(s, router); ok {
		return n.Name, ""
	}
	r, known := s.Routers().Get(router)
	switch {
	case known && !r.Private():
		return "", "with OVN FloatingIPs are for Ports of private Routers, and Router " + router + " is shared"
	case known && leadsElsewhere(r):
		return "", "with OVN Router " + router + " sends all out by its own default route: remove that"
	}
	return "", "the external Network, or Router " + router + ", is not there"
}
