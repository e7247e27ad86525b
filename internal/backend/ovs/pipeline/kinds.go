// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// A new kind of unit is a constant before kindObjects and an entry in unitKinds. If the units are
// objects of intent, features have a function for them as well.

type kind uint8

const (
	kindLocal kind = iota
	kindRouter
	kindNetwork
	kindNode
	kindPort
	kindBlock
	kindService
	kindServiceRange
	kindFloatingIP
	kindGatewayAddress
	kindEgressAddress
	kindNeighbour // a next hop outside of the cluster
	kindRule
	kindPeer
	kindClass     // all Peers that have the same groups
	kindPrefix    // a block of Rules
	kindPortMatch // what Ports of Rules are compared with
	kindObjects   // how many kinds have flows
)

// unitKind is what the Compiler does with units of one kind.
type unitKind struct {
	// flows is about how many flows a unit compiles to.
	flows int
	// changed lists the units that a Delta names; nil: Compiler.policies finds them.
	changed func(intent.Delta) []string
	// compile emits the rules of the unit with that key and returns its name in bridge.Desired,
	// which is unique. It returns false if there is no such unit.
	compile func(r *rules, key string) (owner string, ok bool)
}

// unitKinds are the kinds that have flows.
var unitKinds = [kindObjects]unitKind{
	kindLocal: {
		flows: 64,
		compile: func(r *rules, _ string) (string, bool) {
			r.owner = "local"
			r.compileLocal()
			return r.owner, true
		},
	},
	kindRouter: objects(2,
		func(s *snapshot, key string) (intent.Router, bool) { return s.Routers().Get(key) },
		func(d intent.Delta) []string { return d.Routers },
		func(o intent.Router) string { return "router/" + o.Name },
		func(f *feature) func(*rules, intent.Router) { return f.router }),
	kindNetwork: objects(6,
		func(s *snapshot, key string) (intent.Network, bool) { return s.Networks().Get(key) },
		func(d intent.Delta) []string { return d.Networks },
		func(o intent.Network) string { return "network/" + o.Name },
		func(f *feature) func(*rules, intent.Network) { return f.network }),
	kindNode: objects(6,
		func(s *snapshot, key string) (intent.Node, bool) { return s.Nodes().Get(key) },
		func(d intent.Delta) []string { return d.Nodes },
		func(o intent.Node) string { return "node/" + o.Name },
		func(f *feature) func(*rules, intent.Node) { return f.node }),
	kindPort: {
		flows:   20,
		changed: func(d intent.Delta) []string { return d.Ports },
		compile: (*rules).compilePort,
	},
	kindBlock: objects(1,
		func(s *snapshot, key string) (intent.Block, bool) { return s.Blocks().Get(key) },
		func(d intent.Delta) []string { return d.Blocks },
		func(o intent.Block) string { return "block/" + o.Network + "/" + o.Prefix.String() },
		func(f *feature) func(*rules, intent.Block) { return f.block }),
	kindService: objects(0,
		func(s *snapshot, key string) (intent.NodeService, bool) { return s.NodeServices().Get(key) },
		func(d intent.Delta) []string { return d.NodeServices },
		func(o intent.NodeService) string { return "service/" + serviceKey(o) },
		func(f *feature) func(*rules, intent.NodeService) { return f.service }),
	kindServiceRange: objects(2,
		func(s *snapshot, key string) (intent.ServiceRange, bool) { return s.ServiceRanges().Get(key) },
		func(d intent.Delta) []string { return d.ServiceRanges },
		func(o intent.ServiceRange) string { return "service-range/" + o.Prefix.String() },
		func(f *feature) func(*rules, intent.ServiceRange) { return f.serviceRange }),
	kindFloatingIP: objects(0,
		func(s *snapshot, key string) (intent.FloatingIP, bool) { return s.FloatingIPs().Get(key) },
		func(d intent.Delta) []string { return d.FloatingIPs },
		func(o intent.FloatingIP) string { return "floating-ip/" + o.Name },
		func(f *feature) func(*rules, intent.FloatingIP) { return f.floatingIP }),
	kindGatewayAddress: objects(0,
		func(s *snapshot, key string) (intent.GatewayAddress, bool) { return s.GatewayAddresses().Get(key) },
		func(d intent.Delta) []string { return d.GatewayAddresses },
		func(o intent.GatewayAddress) string { return "gateway/" + o.Network + " " + o.Address.String() },
		func(f *feature) func(*rules, intent.GatewayAddress) { return f.gatewayAddress }),
	kindEgressAddress: objects(0,
		func(s *snapshot, key string) (intent.EgressAddress, bool) { return s.EgressAddresses().Get(key) },
		func(d intent.Delta) []string { return d.EgressAddresses },
		func(o intent.EgressAddress) string { return "egress-address/" + o.Network + " " + o.Address.String() },
		func(f *feature) func(*rules, intent.EgressAddress) { return f.egressAddress }),
	kindNeighbour: {flows: 2, compile: (*rules).compileNeighbour},
	kindRule: objects(0,
		func(s *snapshot, key string) (intent.Rule, bool) { return s.Rules().Get(key) }, nil,
		func(o intent.Rule) string { return "rule/" + o.ID },
		func(f *feature) func(*rules, intent.Rule) { return f.rule }),
	kindPeer: objects(0,
		func(s *snapshot, key string) (intent.Peer, bool) { return s.Peers().Get(key) }, nil,
		func(o intent.Peer) string { return "peer/" + o.Space + "/" + o.Address.String() },
		func(f *feature) func(*rules, intent.Peer) { return f.peer }),
	kindClass:     values(0, "peers/", (*rules).compileClass),
	kindPrefix:    values(0, "policy-block/", (*rules).compilePrefix),
	kindPortMatch: values(2, "policy-port/", (*rules).compilePortMatch),
}

// objects is the kind of units that are objects of intent.
func objects[T any](
	flows int, get func(*snapshot, string) (T, bool), changed func(intent.Delta) []string, owner func(T) string,
	emit func(*feature) func(*rules, T),
) unitKind {
	return unitKind{flows: flows, changed: changed, compile: func(r *rules, key string) (string, bool) {
		o, ok := get(r.state, key)
		if !ok {
			return "", false
		}
		r.owner = owner(o)
		compileObject(r, o, emit)
		return r.owner, true
	}}
}

// values is the kind of units that are values which Rules compare packets with. emit returns false
// if no Rule does so any more.
func values(flows int, owner string, emit func(r *rules, value string) bool) unitKind {
	return unitKind{flows: flows, compile: func(r *rules, key string) (string, bool) {
		r.owner = owner + key
		r.begin(policyPeerFeature)
		return r.owner, emit(r, key)
	}}
}

// compilePort emits the rules of a Port, by what features have for Ports of this node or of others.
func (r *rules) compilePort(key string) (owner string, ok bool) {
	o, ok := r.state.Ports().Get(key)
	if !ok {
		return "", false
	}
	r.owner = "port/" + o.Name()
	owner = r.owner + "#" + o.ID
	if reserved.IsRouterMAC(o.MAC) || o.MAC[0]&1 != 0 {
		r.problem("MAC %s is not for ports: it is a group's, or of those of virtual routers and gateways", o.MAC)
		return owner, true
	}
	if o.Node == r.local.Node && r.number(o) == 0 {
		r.problem("no OpenFlow port is known for it")
		return owner, true
	}
	compileObject(r, o, func(f *feature) func(*rules, intent.Port) {
		if o.Node != r.local.Node {
			return f.remote
		}
		return f.port
	})
	return owner, true
}
