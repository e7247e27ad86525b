// SPDX-License-Identifier: Apache-2.0

// Package networks makes intent of Nodes and of the objects of coelan.io that Networks are made of.
package networks

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/sortedmap"
	"coelan.io/coelan/internal/translate"
)

// Options are what a Source works with. All are needed.
type Options struct {
	Log *slog.Logger
	// Node is the name of this node.
	Node   string
	Config config.Config
	Intent *intent.Store
	View   *apicache.View
	Store  *attachment.Store
	// Warn tells by an Event on the Node what is wrong.
	Warn func(reason string, err error)
	// Judged is called with what is wrong with this node's own object, nil if nothing is.
	Judged func(err error)
	// NodesChanged is called when there are other Node objects, once they are intent.
	NodesChanged func()
	// Withheld says that an attachment may not use its addresses now; nil: all may.
	Withheld func(attachment.Attachment) bool
	// Changed is called when intent has become another, or has been made of more kinds of objects
	// than before.
	Changed func()
}

// Source makes intent. Its methods are safe for concurrent use.
type Source struct {
	Options

	// translating is held while intent is made of what the view knows.
	translating sync.Mutex
	networks    *translate.NetworkSet
	floatingIPs *translate.FloatingIPSet
	gateways    *translate.GatewaySet
	egresses    *translate.EgressSet
	nodes       *translate.NodeSet
	// ports are those of other nodes, by their ids in intent, where this node may have one of the
	// same id.
	ports map[string]intent.Port
	// seen is the intent that ports were last compared with.
	seen *intent.State

	mu sync.Mutex
	// known is what intent is made of.
	known apicache.State
	// nodeProblems and problems are values in objects that were left out.
	nodeProblems, problems []translate.Problem
	// selectors say which Egress a pod leaves by.
	selectors translate.EgressSelectors
	// vanished says that this node's object is gone or useless, and what was known of it is used
	// on.
	vanished bool
}

// New makes a Source that knows nothing. Settings are in intent already.
func New(o Options) *Source {
	connected := func(physical string) bool {
		_, ok := o.Intent.State().Uplinks().Get(physical)
		return ok
	}
	return &Source{
		Options: o, ports: map[string]intent.Port{}, seen: o.Intent.State(), nodes: translate.NewNodeSet(),
		floatingIPs: translate.NewFloatingIPSet(), gateways: translate.NewGatewaySet(),
		egresses: translate.NewEgressSet(),
		networks: translate.NewNetworkSet(translate.NetworkView{
			Node: o.Node, Connected: connected,
			SNAT: intent.SNAT{Enabled: o.Config.SNAT.Enabled, Direct: o.Config.SNAT.ExcludeCIDRs},
		}),
	}
}

// Load makes intent of what was known when the agent ran last. Call it before Refresh.
func (s *Source) Load(tx *intent.Tx) {
	known := s.View.State()
	s.applyNetworks(tx, s.translateNetworks(apicache.State{}, known))
	applyNodes(tx, s.translateNodes(apicache.State{}, known))
	applyFloatingIPs(tx, s.translateFloatingIPs(apicache.State{}, known))
	applyGateways(tx, s.translateGateways(apicache.State{}, known), s.translateEgresses(apicache.State{}, known))
	refreshPools(tx, known)
	s.setKnown(known)
}

// applied is what intent is made of.
func (s *Source) applied() apicache.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

func (s *Source) setKnown(known apicache.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
}

// Problems are values in objects that were left out.
func (s *Source) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, p := range slices.Concat(s.nodeProblems, s.problems) {
		list = append(list, p.Error())
	}
	return list
}

// Refresh brings intent to what the view knows now. It costs as much as what has changed since the
// last call touches.
func (s *Source) Refresh() {
	s.translating.Lock()
	defer s.translating.Unlock()
	before, known := s.applied(), s.View.State()
	networks, nodes := s.translateNetworks(before, known), s.keepOwn(s.translateNodes(before, known))
	floatingIPs, gateways := s.translateFloatingIPs(before, known), s.translateGateways(before, known)
	egresses := s.translateEgresses(before, known)
	otherNodes := !known.Same(before, apicache.Nodes)
	old := s.Intent.State()
	now, err := s.Intent.Update(func(tx *intent.Tx) error {
		s.applyNetworks(tx, networks)
		applyNodes(tx, nodes)
		applyFloatingIPs(tx, floatingIPs)
		applyGateways(tx, gateways, egresses)
		if !known.Same(before, apicache.Namespaces) || !known.Same(before, apicache.Pods) ||
			!known.Same(before, kube.Egresses) || !known.Same(before, kube.Ports) {
			s.refreshPorts(tx)
		}
		if otherNodes || !known.Same(before, kube.Pools) {
			refreshPools(tx, known)
		}
		return nil
	})
	if err != nil { // the function above returns none
		s.Log.Error("cannot update intent with Networks and Nodes", "err", err)
		return
	}
	s.setKnown(known)
	if !known.Same(before, kube.Networks) || !known.Same(before, kube.Routers) {
		s.View.Touch() // what waits for InEffect looks again, also if intent is as it was
	}
	if otherNodes {
		s.NodesChanged()
	}
	if old != now || !known.SameListed(before) {
		s.Changed()
	}
}

// InEffect returns the intent of a Network and of its Router. It is false if there is none, and
// also if intent is not made of the same objects that another State of the view has: intent follows
// the view, and a change of a Network is known there first. The view notifies its waiters when this
// may have changed.
func (s *Source) InEffect(seen apicache.State, name string) (intent.Network, intent.Router, bool) {
	s.translating.Lock() // a Refresh changes intent before it notes what that is made of
	defer s.translating.Unlock()
	made, state := s.applied(), s.Intent.State()
	n, ok := state.Networks().Get(name)
	r, _ := state.Routers().Get(n.Router)
	same := made.Networks.Get(name) == seen.Networks.Get(name) &&
		made.Routers.Get(n.Router) == seen.Routers.Get(n.Router)
	return n, r, ok && same
}

// translateNetworks brings the Networks to what is known, and logs once what cannot be used.
func (s *Source) translateNetworks(before, known apicache.State) translate.NetworkChanges {
	follow(before.Routers, known.Routers, s.networks.SetRouter)
	follow(before.Networks, known.Networks, s.networks.SetNetwork)
	follow(before.Blocks, known.Blocks, s.networks.SetBlock)
	follow(before.Ports, known.Ports, s.networks.SetPort)
	changes := s.networks.Changes()
	// Before the blocks are listed, it is not known yet to which Ports addresses belong.
	listed := known.Listed(kube.Blocks)
	if changes.Problems || listed != before.Listed(kube.Blocks) {
		s.report(&s.problems, s.networks.Problems(listed))
	}
	return changes
}

// translateFloatingIPs brings the FloatingIPs to what is known.
func (s *Source) translateFloatingIPs(before, known apicache.State) translate.Change[intent.FloatingIP] {
	follow(before.Blocks, known.Blocks, s.floatingIPs.SetBlock)
	follow(before.FloatingIPs, known.FloatingIPs, s.floatingIPs.Set)
	return s.floatingIPs.Changes()
}

func applyFloatingIPs(tx *intent.Tx, c translate.Change[intent.FloatingIP]) {
	apply(c, tx.SetFloatingIP, func(f intent.FloatingIP) { tx.DeleteFloatingIP(f.Name) })
}

// translateGateways brings the addresses of Routers' gateways to what is known.
func (s *Source) translateGateways(before, known apicache.State) translate.GatewayChanges {
	follow(before.Routers, known.Routers, s.gateways.SetRouter)
	follow(before.Networks, known.Networks, s.gateways.SetNetwork)
	follow(before.Nodes, known.Nodes, s.gateways.SetNode)
	follow(before.Blocks, known.Blocks, s.gateways.SetBlock)
	return s.gateways.Changes()
}

// applyGateways brings intent to the addresses of gateways and of Egresses, and to what else
// Egresses say. An address may go from one to another.
func applyGateways(tx *intent.Tx, g translate.GatewayChanges, e translate.EgressChanges) {
	apply(g.Nodes, tx.SetGatewayAddress, func(g intent.GatewayAddress) {
		tx.DeleteGatewayAddress(g.Network, g.Address)
	})
	apply(translate.Change[intent.EgressAddress]{
		Set: slices.Concat(g.Shared.Set, e.Addresses.Set), Gone: slices.Concat(g.Shared.Gone, e.Addresses.Gone),
	}, tx.SetEgressAddress, func(e intent.EgressAddress) { tx.DeleteEgressAddress(e.Network, e.Address) })
	apply(e.Paths, tx.SetEgressPath, func(e intent.EgressPath) { tx.DeleteEgressPath(e.Name) })
}

// follow calls changed with each object of a kind that is another one than before; nil: it is gone.
func follow[T any](before, now apicache.Objects[T], changed func(name string, o *T)) {
	sortedmap.Diff(before, now, func(name string, _, o *T) { changed(name, o) })
}

// report replaces what is wrong with objects, and logs what was not wrong before.
func (s *Source) report(problems *[]translate.Problem, now []translate.Problem) {
	s.mu.Lock()
	old := make(map[translate.Problem]struct{}, len(*problems))
	for _, p := range *problems {
		old[p] = struct{}{}
	}
	*problems = now
	s.mu.Unlock()
	for _, p := range now {
		if _, known := old[p]; !known {
			s.Log.Warn("an object has an invalid value, which is ignored", "err", p)
		}
	}
}

// applyNetworks brings intent to what other nodes and the API decide, and leaves the Ports of this
// node alone: one that this node has bound is its own, also while the API says that it is
// another's.
func (s *Source) applyNetworks(tx *intent.Tx, c translate.NetworkChanges) {
	apply(c.Routers, tx.SetRouter, func(r intent.Router) { tx.DeleteRouter(r.Name) })
	apply(c.Networks, tx.SetNetwork, func(n intent.Network) { tx.DeleteNetwork(n.Name) })
	apply(c.Blocks, tx.SetBlock, tx.DeleteBlock)
	touched := map[string]struct{}{}
	apply(c.Ports, func(p intent.Port) {
		s.ports[p.ID], touched[p.ID] = p, struct{}{}
	}, func(p intent.Port) {
		delete(s.ports, p.ID)
		touched[p.ID] = struct{}{}
	})
	// A Port that this node has given up may be another node's.
	now := s.Intent.State()
	for _, id := range intent.Diff(s.seen, now).Ports {
		touched[id] = struct{}{}
	}
	s.seen = now
	for id := range touched {
		current, there := now.Ports().Get(id)
		want, wanted := s.ports[id]
		switch {
		case there && current.Node == s.Node:
		case wanted:
			tx.SetPort(want)
		default:
			tx.DeletePort(id)
		}
	}
}

func apply[T any](c translate.Change[T], set, gone func(T)) {
	for _, o := range c.Gone {
		gone(o)
	}
	for _, o := range c.Set {
		set(o)
	}
}

// refreshPools brings the pools of load balancers' addresses to what is known of them and of the
// nodes.
func refreshPools(tx *intent.Tx, known apicache.State) {
	tx.ReplaceLoadBalancerPools(translate.LoadBalancerPools(known.PoolList(), known.NodeList()))
}

// Port is the intent of an attachment of this node.
func (s *Source) Port(at attachment.Attachment) intent.Port {
	p := translate.Port(at, s.Node)
	if s.Withheld != nil && s.Withheld(at) {
		p.Addresses = nil
	}
	p.Audited = s.audited(p.Namespace)
	p.Egress, _ = s.egress(p)
	p.Trusted, _ = s.trusted(p)
	return p
}

// trusted says whether a user's Port may send as a DHCP server; false if the Port is not known, or
// a pod's.
func (s *Source) trusted(p intent.Port) (trusted, known bool) {
	o := s.View.State().Ports.Get(p.ObjectKey())
	if o == nil || p.Interface != "" {
		return false, false
	}
	return o.Spec.Trusted && o.Spec.Pod == nil, true
}

// audited says whether what policies deny of a namespace's Ports is logged.
func (s *Source) audited(namespace string) bool {
	if s.Config.Policy.Mode != config.EnforcedPolicies {
		return false
	}
	if s.Config.Policy.AuditDenied {
		return true
	}
	n := s.View.State().Namespaces.Get(namespace)
	return n != nil && n.Annotations[v1alpha1.AnnotationAuditDenied] == "true"
}

// refreshPorts follows the annotations of namespaces, Egresses, the labels by which these select
// pods, and users' Ports. A pod that is gone from the API leaves as before until its end.
func (s *Source) refreshPorts(tx *intent.Tx) {
	for p := range s.Intent.State().PortsAt(s.Node) {
		now := p
		now.Audited = s.audited(p.Namespace)
		if egress, known := s.egress(p); known {
			now.Egress = egress
		}
		if trusted, known := s.trusted(p); known {
			now.Trusted = trusted
		}
		if now.Audited != p.Audited || now.Egress != p.Egress || now.Trusted != p.Trusted {
			tx.SetPort(now)
		}
	}
}

// Cluster are the nodes' podCIDRs and addresses, and the ClusterIPs.
func Cluster(state *intent.State) []netip.Prefix {
	var list []netip.Prefix
	for n := range state.Nodes().All() {
		list = append(list, n.Prefixes()...)
		for _, a := range n.Addresses {
			list = append(list, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for r := range state.ServiceRanges().All() {
		list = append(list, r.Prefix)
	}
	return list
}
