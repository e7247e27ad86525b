// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// Where OVN balances Services, it asks security groups about what a Port sends before it chooses an
// endpoint. So a rule that lets out to all endpoints of a Service has one more, for its ClusterIP,
// and prefixes do not let out to others.

const itselfKey = "Cluster/itself"

// fromItself is the group of Ports that policies close: by a Service they reach themselves. OVN
// gives such packets an address that no other host has.
func (f *firewall) fromItself() []resource.Ref {
	if !f.Supplemented {
		return nil
	}
	ref := groupRef(itselfKey)
	if _, made := f.set.Get(ref); !made {
		f.group(ref, "Network "+intent.DefaultNetworkName, "itself")
		for _, a := range []netip.Addr{reserved.NodeLocalIPv4[0], reserved.NodeLocalIPv6[0]} {
			f.rule(ref, intent.Ingress, addressPeer(a), port{})
		}
	}
	return []resource.Ref{ref}
}

// balanced are the ports of Services with a ClusterIP and endpoints, of shared Routers.
type balanced struct {
	all []*intent.ServicePort
	// first are those with a first endpoint in a group of intent.
	first map[string][]*intent.ServicePort
}

func (f *firewall) balancedPorts() (b balanced) {
	b.first = map[string][]*intent.ServicePort{}
	if !f.Supplemented {
		return b
	}
	for v := range f.state.Services().All() {
		if r, ok := f.state.Routers().Get(v.Router); !ok || r.Private() {
			continue
		}
		for i := range v.Ports {
			p := &v.Ports[i]
			if !p.ClusterIP.IsValid() || len(p.Endpoints) == 0 {
				continue
			}
			b.all = append(b.all, p)
			for _, group := range f.groupsAt(p.Endpoints[0].Address) {
				b.first[group] = append(b.first[group], p)
			}
		}
	}
	return b
}

// groupsAt are the groups of intent that an address of shared Routers is in.
func (f *firewall) groupsAt(a netip.Addr) []string {
	known, _ := f.state.Peers().Get(intent.PeerKey(intent.DefaultRouterName, a))
	return known.Groups
}

// toServices adds to a group what a rule lets out to by Services.
func (f *firewall) toServices(group resource.Ref, r intent.Rule, space string) {
	if r.Direction != intent.Egress || space != intent.DefaultRouterName || r.AnyPeer && len(r.Ports) == 0 {
		return
	}
	candidates := f.services.all
	if !r.AnyPeer && len(r.Blocks) == 0 {
		candidates = nil
		for _, g := range r.Groups {
			candidates = append(candidates, f.services.first[g]...)
		}
	}
	for _, p := range candidates {
		closed := func(e intent.ServiceEndpoint) bool { return !f.letsOut(r, p.Protocol, e) }
		if !slices.ContainsFunc(p.Endpoints, closed) {
			at := port{protocolName(uint8(p.Protocol)), int(p.Port), int(p.Port)}
			f.rule(group, intent.Egress, addressPeer(p.ClusterIP), at)
		}
	}
}

// letsOut reports whether a rule lets out to an endpoint.
func (f *firewall) letsOut(r intent.Rule, protocol intent.Protocol, e intent.ServiceEndpoint) bool {
	peer := r.AnyPeer ||
		slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(e.Address) }) ||
		slices.ContainsFunc(f.groupsAt(e.Address), func(g string) bool { return slices.Contains(r.Groups, g) })
	return peer && (len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p intent.PortRange) bool {
		return !p.ICMP && p.Protocol == uint8(protocol) && p.First <= e.Port && e.Port <= p.Last
	}))
}

// withoutServices is what a block of a rule leaves of ClusterIPs: nothing, unless the block has all
// addresses.
func (f *firewall) withoutServices(r intent.Rule, block netip.Prefix) []netip.Prefix {
	if r.Direction != intent.Egress || !f.Supplemented || block.Bits() == 0 {
		return []netip.Prefix{block}
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(block)
	for s := range f.state.ServiceRanges().All() {
		b.RemovePrefix(s.Prefix)
	}
	left, err := b.IPSet()
	if err != nil {
		return nil // a block that is no prefix fits nothing
	}
	return left.Prefixes()
}
