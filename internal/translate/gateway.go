// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"net/netip"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// GatewaySet is all AddressBlocks that make nodes gateways of Routers, and the Routers: only the
// gateway that a Router has now counts. A change translates anew what it touches. It is for one
// goroutine.
type GatewaySet struct {
	// networks are those of Routers' gateways, by the Router's name.
	networks map[string]v1alpha1.Name
	// By the name of the AddressBlock: what it makes of a node, and what of that is in effect.
	claims, results map[string]intent.GatewayAddress
	of              map[string]map[string]struct{} // names of blocks, by the Router's name
	touched         map[string]struct{}            // names of blocks
}

// NewGatewaySet makes a set without objects.
func NewGatewaySet() *GatewaySet {
	return &GatewaySet{
		networks: map[string]v1alpha1.Name{}, claims: map[string]intent.GatewayAddress{},
		results: map[string]intent.GatewayAddress{}, of: map[string]map[string]struct{}{},
		touched: map[string]struct{}{},
	}
}

// SetRouter adds or replaces the Router of a name; nil removes it.
func (s *GatewaySet) SetRouter(name string, o *v1alpha1.Router) {
	before := s.networks[name]
	delete(s.networks, name)
	if o != nil && o.Spec.Gateway != nil {
		s.networks[name] = o.Spec.Gateway.Network
	}
	if s.networks[name] != before {
		maps.Copy(s.touched, s.of[name])
	}
}

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *GatewaySet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if old, ok := s.claims[name]; ok {
		delete(s.claims, name)
		remove(s.of, old.Router, name)
		s.touched[name] = struct{}{}
	}
	if o == nil {
		return
	}
	if g, ok := gatewayAddress(o); ok {
		s.claims[name] = g
		add(s.of, g.Router, name)
		s.touched[name] = struct{}{}
	}
}

// Changes are how the addresses of gateways in effect differ from those at the call before.
func (s *GatewaySet) Changes() Change[intent.GatewayAddress] {
	var c Change[intent.GatewayAddress]
	for name := range s.touched {
		old, had := s.results[name]
		now, claimed := s.claims[name]
		switch {
		case claimed && s.networks[now.Router] == now.Network:
			s.results[name] = now
			c.Set = append(c.Set, now)
		case had:
			delete(s.results, name)
			c.Gone = append(c.Gone, old)
		}
	}
	clear(s.touched)
	return c
}

// gatewayAddress is what a block makes of a node; false if it makes no gateway. The name, which the
// API has unique, keeps a second block from giving the same address to another node.
func gatewayAddress(o *v1alpha1.AddressBlock) (intent.GatewayAddress, bool) {
	router, node, ok := strings.Cut(o.Spec.Gateway, "/")
	p, err := netip.ParsePrefix(o.Spec.CIDR)
	if !ok || router == "" || node == "" || o.Spec.Network == "" || err != nil || !p.IsSingleIP() ||
		p.Addr().Is4In6() || o.Name != names.BlockName(o.Spec.Network, p) || o.Spec.CIDR != p.String() {
		return intent.GatewayAddress{}, false
	}
	return intent.GatewayAddress{Router: router, Node: node, Network: o.Spec.Network, Address: p.Addr()}, true
}
