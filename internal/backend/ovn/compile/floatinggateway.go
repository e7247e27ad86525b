// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// nowhere is the name of a chassis that there is none of: a port without a chassis OVN does not
// take for one that translates.
const nowhere = "nowhere"

// floatingPriority is that of the policy that lets out what has a FloatingIP.
const floatingPriority = 500

// floatingNetwork is the external Network on which a private Router without a gateway that OVN can
// make has a port for the FloatingIPs of its Ports: the first by name, as a Router translates on
// one.
func floatingNetwork(s *intent.State, router string) (found intent.Network, ok bool) {
	r, known := s.Routers().Get(router)
	if !known || !r.Private() || leadsElsewhere(r) {
		return found, false
	}
	if _, has := gatewayOf(s, router); has {
		return found, false
	}
	for f := range s.FloatingIPs().All() {
		if ok && f.Network >= found.Name || f.Port == "" || !slices.Contains(routersOf(s, f), router) {
			continue
		}
		if n, known := s.Networks().Get(f.Network); known && n.Physical != "" {
			found, ok = n, true
		}
	}
	return found, ok
}

// leadsElsewhere says whether a Router has a default route of its own.
func leadsElsewhere(r intent.Router) bool {
	return slices.ContainsFunc(effective(r), func(route intent.Route) bool { return route.Destination.Bits() == 0 })
}

// routersOf are the Routers of the Ports of a FloatingIP's name.
func routersOf(s *intent.State, f intent.FloatingIP) (routers []string) {
	for p := range s.PortsNamed(f.Port) {
		if n, ok := s.Networks().Get(p.Network); ok {
			routers = append(routers, n.Router)
		}
	}
	return routers
}

// floatingRouters yields the Routers with FloatingIPs that may differ between two States.
func floatingRouters(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, s := range states(from, to) {
		each := func(f intent.FloatingIP) {
			for _, router := range routersOf(s, f) {
				yield(router)
			}
		}
		for _, name := range d.FloatingIPs {
			if f, ok := s.FloatingIPs().Get(name); ok {
				each(f)
			}
		}
		for _, id := range d.Ports {
			if p, ok := s.Ports().Get(id); ok {
				for f := range s.FloatingIPsOf(p.ObjectKey()) {
					each(f)
				}
			}
		}
		for _, name := range d.Networks {
			for f := range s.FloatingIPs().All() {
				if f.Network == name {
					each(f)
				}
			}
		}
	}
}

// floatingSetRef is the Address_Set of a Router's Ports with FloatingIPs, of an address's family.
func floatingSetRef(router string, like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Gateway/"+router, "floating", family(like))}
}

// floating makes a port on an external Network by which only what has a FloatingIP leaves, at the
// node of its Port. It needs no address of the Network that others could have: its own is that of
// the subnet itself, and what it sends has the FloatingIP's.
func (k gatewayKind) floating(r intent.Router, n intent.Network, u *nb.Unit) {
	name, ref := k.cluster.GatewayPort(n.Name, r.Name), routerRef(r.Name)
	row := &nb.LogicalRouterPort{Name: name, MAC: linkMAC(r.ID).String()}
	for _, sn := range n.Subnets {
		row.Networks = append(row.Networks, sn.Prefix.Masked().String())
	}
	port := u.AddTo(ref, "ports", gatewayPortRef(r.Name).Key, row)
	u.AddTo(switchRef(n.Name, ""), "ports", port.Key, routerSidePort(k.cluster.GatewaySwitchPort(n.Name, r.Name), name))
	u.AddTo(port, "gateway_chassis", nb.Key(port.Key, nowhere), &nb.GatewayChassis{
		Name: name + "@" + nowhere, ChassisName: nowhere,
	})
	for _, all := range everything {
		like := all.Destination.Addr()
		i := slices.IndexFunc(n.Subnets, func(sn intent.NetworkSubnet) bool {
			return sn.Prefix.Addr().Is4() == like.Is4()
		})
		if i < 0 {
			continue
		}
		if gateway := n.Subnets[i].Gateway; gateway.IsValid() {
			u.AddTo(ref, "static_routes", nb.Key("Gateway/"+r.Name, family(like)), &nb.StaticRoute{
				IPPrefix: all.Destination.String(), Nexthop: gateway.String(), OutputPort: &name,
			})
		}
		set := floatingSetRef(r.Name, like)
		setName := k.cluster.Set(family(like), set.Key)
		u.Add(set.Key, &nb.AddressSet{Name: setName})
		u.AddTo(ref, "policies", nb.Key("Gateway/"+r.Name, "floating", family(like)), &nb.RouterPolicy{
			Priority: floatingPriority, Action: "allow",
			Match: fmt.Sprintf("outport == %q && %s.src == $%s", name, family(like), setName),
		})
	}
	u.AddTo(ref, "policies", nb.Key("Gateway/"+r.Name, "floating"), &nb.RouterPolicy{
		Priority: nowherePriority, Match: fmt.Sprintf("outport == %q", name), Action: "drop",
	})
}
