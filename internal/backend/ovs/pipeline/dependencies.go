// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"iter"
	"net/netip"

	"coelan.io/coelan/internal/intent"
)

// What a unit can need beside objects. These have no flows of their own: their keys name a
// question, and units that asked are compiled again when the answer may have changed.
const (
	kindAttached  kind = kindObjects + iota // network: has it a port on this node?
	kindAddress                             // address: which ports have it?
	kindBlocksOf                            // network: which blocks has it?
	kindJoined                              // router: which networks have joined it?
	kindImporters                           // router: which routers import its routes?
	kindPrivate                             // no key: is there any private router?
	kindPhysical                            // no key: is there any physical network?
	kindSubject                             // subject: how is it governed?
	kindShape                               // rule: what is it but its peers and ports?
	// group: which rules ask for it, and what are their shapes?
	kindGroup
	kindUse // class: in which directions do rules ask for it?
	// No key: may a port here send what is too big for another node, or be sent what is for it?
	kindNarrow
	kindNamed     // Port object: which port of this node has its name?
	kindAnswering // network: does this node answer for addresses of it?
	kindOutside   // no key: does this node answer for any address of an external network?
	kindChosen    // address: has this node been chosen to answer for it?
	kindServing   // no key: does this node answer for any floating IP of a Service?
	kindGateways  // router: which addresses has this node as its gateway? No key: as any's?
	kindEgressOf  // user: which addresses has it that one of several nodes is active for?
	kindPath      // Egress: what does it say of the way?
	kindHop       // next hop of an Egress's address: does it work?
	// Router: may packets of other nodes' ports leave here for it? No key: for any?
	kindRelays
)

// attached says whether a port of this node is on the network. What only such
// ports would use need not be there without one: a cluster may have many more
// networks than a node has.
func (r *rules) attached(network string) bool {
	r.dependOn(unitKey{kindAttached, network})
	return attached(r.state, network)
}

func attached(s *snapshot, network string) bool {
	for p := range s.PortsOf(network) {
		if p.Node == s.Local().Node {
			return true
		}
	}
	return false
}

// anyPrivate says whether there is any private router.
func (r *rules) anyPrivate() bool {
	r.dependOn(unitKey{kind: kindPrivate})
	return anyPrivate(r.state)
}

func anyPrivate(s *snapshot) bool {
	for range s.PrivateRouters() {
		return true
	}
	return false
}

// anyGuarded says whether any port may be in the cluster for hosts only.
func (r *rules) anyGuarded() bool {
	r.dependOn(unitKey{kind: kindPhysical})
	return r.anyPrivate() || anyPhysical(r.state)
}

func anyPhysical(s *snapshot) bool {
	for n := range s.NetworksOf("") { // no other network lacks a router
		if n.Physical != "" {
			return true
		}
	}
	return false
}

// importers are the routers that import the routes of rt, by name.
func (r *rules) importers(rt intent.Router) (list []intent.Router) {
	r.dependOn(unitKey{kindImporters, rt.Name})
	for importer := range r.state.Importers(rt.Name) {
		r.dependOn(unitKey{kindRouter, importer.Name})
		list = append(list, importer)
	}
	return list
}

// answered lists the questions with answers that may differ between two States, of which the
// objects in delta differ.
func answered(from, to *snapshot, delta intent.Delta) map[unitKey]bool {
	keys := map[unitKey]bool{}
	if anyPrivate(from) != anyPrivate(to) {
		keys[unitKey{kind: kindPrivate}] = true
	}
	if anyPhysical(from) != anyPhysical(to) {
		keys[unitKey{kind: kindPhysical}] = true
	}
	if narrowMay(from, to, delta) && anyNarrow(from) != anyNarrow(to) {
		keys[unitKey{kind: kindNarrow}] = true
	}
	if networks := answeringMay(from, to, delta); len(networks) > 0 {
		for network := range networks {
			if answering(from, network) != answering(to, network) {
				keys[unitKey{kindAnswering, network}] = true
			}
		}
		if anyAnswering(from) != anyAnswering(to) {
			keys[unitKey{kind: kindOutside}] = true
		}
	}
	if len(delta.ChosenAddresses)+len(delta.FloatingIPs) > 0 && anyChosen(from) != anyChosen(to) {
		keys[unitKey{kind: kindServing}] = true
	}
	for _, key := range delta.ChosenAddresses {
		keys[unitKey{kindChosen, key}] = true
	}
	for _, s := range []*snapshot{from, to} {
		for _, key := range delta.GatewayAddresses {
			if g, ok := s.GatewayAddresses().Get(key); ok && g.Node == s.Local().Node {
				keys[unitKey{kindGateways, g.Router}], keys[unitKey{kind: kindGateways}] = true, true
			}
		}
		for _, key := range delta.EgressAddresses {
			if e, ok := s.EgressAddresses().Get(key); ok {
				keys[unitKey{kindEgressOf, e.User()}] = true
				keys[unitKey{kindRelays, e.Router}], keys[unitKey{kind: kindRelays}] = true, true
			}
		}
		for _, name := range delta.EgressPaths {
			keys[unitKey{kindPath, name}] = true
		}
		for _, name := range delta.Routers {
			if rt, ok := s.Routers().Get(name); ok {
				for _, imported := range rt.Imports {
					keys[unitKey{kindImporters, imported}] = true
				}
			}
		}
		for _, name := range delta.Networks {
			if n, ok := s.Networks().Get(name); ok {
				keys[unitKey{kindJoined, n.Router}] = true
			}
		}
		for _, key := range delta.Blocks {
			if b, ok := s.Blocks().Get(key); ok {
				keys[unitKey{kindBlocksOf, b.Network}] = true
			}
		}
		for _, id := range delta.Ports {
			if p, ok := s.Ports().Get(id); ok {
				for _, a := range p.Addresses {
					keys[addressKey(a)] = true
				}
				keys[unitKey{kindNamed, p.ObjectKey()}] = true
				if attached(from, p.Network) != attached(to, p.Network) {
					keys[unitKey{kindAttached, p.Network}] = true
				}
			}
		}
	}
	return keys
}

// servicesMoved yields the Services that share a Slot with one that came or went, and may
// have another place there. There are too many to have each note that it asks.
func servicesMoved(from, to *snapshot, delta intent.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, key := range delta.NodeServices {
			was, old := from.NodeServices().Get(key)
			is, now := to.NodeServices().Get(key)
			if old == now {
				continue
			}
			if old {
				is = was
			}
			for o := range to.servicesBySlot.By(slotText(serviceSlot(is))) {
				if !yield(serviceKey(o)) {
					return
				}
			}
		}
	}
}

func serviceKey(v intent.NodeService) string { return v.Namespace + "/" + v.Name }

// anyDefaultRoute says whether any private router has a default route, or a routed gateway here.
func anyDefaultRoute(s *snapshot) bool {
	for rt := range s.PrivateRouters() {
		for g := range s.GatewayAddressesOf(s.Local().Node, rt.Name) {
			if g.Routed {
				return true
			}
		}
		for _, route := range rt.Routes {
			if route.Destination.Bits() == 0 {
				return true
			}
		}
	}
	return false
}

func addressKey(a netip.Addr) unitKey { return unitKey{kindAddress, a.String()} }
