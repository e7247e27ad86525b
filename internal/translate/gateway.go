// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// GatewaySet is all AddressBlocks that make nodes gateways of Routers, and the Routers: only the
// gateway that a Router has now counts. It also knows which nodes may be active for the addresses
// of centralized gateways. A change translates anew what it touches. It is for one goroutine.
type GatewaySet struct {
	routers    map[string]routerGateway // by the Router's name, of those with a gateway
	candidates *candidates              // users are centralized gateways, by the Router's name
	// By the name of the AddressBlock: what it claims, and what of that is in effect.
	claims  map[string]gatewayClaim
	nodes   map[string]intent.GatewayAddress
	shared  map[string]intent.EgressAddress
	of      map[string]map[string]struct{} // names of blocks, by the Router's name
	touched map[string]struct{}            // names of blocks
}

// routerGateway is what a Router says of its gateway.
type routerGateway struct {
	spec *v1alpha1.RouterGateway
	// addresses in effect of a centralized gateway, by the Router's status: the controller writes
	// them when they are the Router's for sure.
	addresses []string
}

// gatewayClaim is what a block of a single address is for.
type gatewayClaim struct {
	router, node string // node is v1alpha1.AnyNode for a centralized gateway
	network      string
	address      netip.Addr
	active       string
}

// GatewayChanges are how the addresses of gateways differ from those at the call before.
type GatewayChanges struct {
	Nodes  Change[intent.GatewayAddress] // each of one node
	Shared Change[intent.EgressAddress]  // of centralized gateways
}

// NewGatewaySet makes a set without objects.
func NewGatewaySet() *GatewaySet {
	return &GatewaySet{
		routers: map[string]routerGateway{}, candidates: newCandidates(), claims: map[string]gatewayClaim{},
		nodes: map[string]intent.GatewayAddress{}, shared: map[string]intent.EgressAddress{},
		of: map[string]map[string]struct{}{}, touched: map[string]struct{}{},
	}
}

// SetRouter adds or replaces the Router of a name; nil removes it.
func (s *GatewaySet) SetRouter(name string, o *v1alpha1.Router) {
	before := s.routers[name]
	var now routerGateway
	delete(s.routers, name)
	if o != nil && o.Spec.Gateway != nil {
		now = routerGateway{o.Spec.Gateway, o.Status.GatewayAddresses}
		s.routers[name] = now
	}
	same := equality.Semantic.DeepEqual(before.spec, now.spec)
	if same && slices.Equal(before.addresses, now.addresses) {
		return
	}
	maps.Copy(s.touched, s.of[name])
	switch {
	case same:
	case now.spec.IsCentralized():
		s.candidates.setUser(name, now.spec.Network, now.spec.Nodes)
	default:
		s.candidates.removeUser(name)
	}
}

// SetNode adds or replaces the node of a name; nil removes it.
func (s *GatewaySet) SetNode(name string, o *corev1.Node) { s.candidates.setNode(name, o) }

// SetNetwork adds or replaces the Network of a name; nil removes it.
func (s *GatewaySet) SetNetwork(name string, o *v1alpha1.Network) { s.candidates.setNetwork(name, o) }

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *GatewaySet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if old, ok := s.claims[name]; ok {
		delete(s.claims, name)
		remove(s.of, old.router, name)
		s.touched[name] = struct{}{}
	}
	if o == nil {
		return
	}
	if c, ok := claimOfGateway(o); ok {
		s.claims[name] = c
		add(s.of, c.router, name)
		s.touched[name] = struct{}{}
	}
}

// Changes are how the addresses of gateways in effect differ from those at the call before.
func (s *GatewaySet) Changes() GatewayChanges {
	for router := range s.candidates.touched {
		maps.Copy(s.touched, s.of[router])
	}
	clear(s.candidates.touched)
	var c GatewayChanges
	for name := range s.touched {
		claim, claimed := s.claims[name]
		r := s.routers[claim.router]
		claimed = claimed && r.spec != nil && r.spec.Network == claim.network
		node, isNode := s.ofNode(claim, r)
		note(&c.Nodes, s.nodes, name, node, claimed && isNode)
		shared, isShared := s.ofRouter(claim, r)
		note(&c.Shared, s.shared, name, shared, claimed && isShared)
	}
	clear(s.touched)
	return c
}

// note records what is in effect by a name now, if anything is, and how that is a change.
func note[T any](c *Change[T], results map[string]T, name string, now T, inEffect bool) {
	old, had := results[name]
	switch {
	case inEffect:
		results[name] = now
		c.Set = append(c.Set, now)
	case had:
		delete(results, name)
		c.Gone = append(c.Gone, old)
	}
}

// ofNode is what a claim makes of a node; false if it is for no node, or the gateway is
// centralized.
func (s *GatewaySet) ofNode(c gatewayClaim, r routerGateway) (intent.GatewayAddress, bool) {
	if r.spec == nil || c.node == v1alpha1.AnyNode || r.spec.IsCentralized() {
		return intent.GatewayAddress{}, false
	}
	return intent.GatewayAddress{
		Router: c.router, Node: c.node, Network: c.network, Address: c.address,
		Routed: r.spec.IsRouted(v1alpha1.IPFamily(familyOf(c.address).String())),
	}, true
}

// ofRouter is the address of a centralized gateway that a claim makes; false if it makes none.
func (s *GatewaySet) ofRouter(c gatewayClaim, r routerGateway) (intent.EgressAddress, bool) {
	if c.node != v1alpha1.AnyNode || !r.spec.IsCentralized() || !slices.Contains(r.addresses, c.address.String()) {
		return intent.EgressAddress{}, false
	}
	names, leaving := s.candidates.of(c.router)
	return intent.EgressAddress{
		Network: c.network, Address: c.address, Router: c.router, Nodes: names, Leaving: leaving, Active: c.active,
		Failback: r.spec.Failback,
	}, true
}

// claimOfGateway is what a block claims for a gateway; false if it does not. The name, which the
// API has unique, keeps a second block from giving the same address to another node or Router.
func claimOfGateway(o *v1alpha1.AddressBlock) (gatewayClaim, bool) {
	router, node, ok := strings.Cut(o.Spec.Gateway, "/")
	a, single := claimedAddress(o)
	if !ok || router == "" || node == "" || !single {
		return gatewayClaim{}, false
	}
	return gatewayClaim{
		router: router, node: node, network: o.Spec.Network, address: a, active: o.Status.ActiveNode,
	}, true
}

// claimedAddress is the address of a block of a single one by its right name.
func claimedAddress(o *v1alpha1.AddressBlock) (netip.Addr, bool) {
	p, err := netip.ParsePrefix(o.Spec.CIDR)
	if err != nil || o.Spec.Network == "" || !p.IsSingleIP() || p.Addr().Is4In6() ||
		o.Name != names.BlockName(o.Spec.Network, p) || o.Spec.CIDR != p.String() {
		return netip.Addr{}, false
	}
	return p.Addr(), true
}
