// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"slices"
)

// LoadBalancerPool has addresses of Services of type LoadBalancer that nodes answer for.
type LoadBalancerPool struct {
	Name   string         // the key
	Ranges []AddressRange // sorted; no other pool has any of them
	Nodes  []string       // names of the nodes that may answer for the addresses, sorted
}

// AddressRange is all addresses from First to Last.
type AddressRange struct {
	First, Last netip.Addr
}

// Contains reports whether a is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// LoadBalancerPools are all pools by name.
func (s *State) LoadBalancerPools() Table[LoadBalancerPool] { return s.pools }

// PoolOf is the pool that has the address; false if none has.
func (s *State) PoolOf(a netip.Addr) (LoadBalancerPool, bool) {
	for p := range s.pools.All() {
		if slices.ContainsFunc(p.Ranges, func(r AddressRange) bool { return r.Contains(a) }) {
			return p, true
		}
	}
	return LoadBalancerPool{}, false
}

// ReplaceLoadBalancerPools makes these the only pools, and leaves everything else.
func (tx *Tx) ReplaceLoadBalancerPools(pools []LoadBalancerPool) { tx.pools = replace(tx.pools, pools) }

// Announcement is an address that one node of the cluster answers for.
type Announcement struct {
	Address netip.Addr
	Nodes   []string // names of those that may be that node, sorted; none: nothing answers
	// Floating says that it is a floating IP, for which the node's bridge answers, on the wire of
	// an external Network.
	Floating bool
}

// Announcements are the load balancers' addresses that are of a pool, sorted, and the floating IPs
// of Services. The pool's nodes may answer, or those that are connected to the external Network;
// where a Service keeps what comes from outside on the node, only those with an endpoint.
func (s *State) Announcements() []Announcement {
	list := slices.Concat(s.balanced(), s.floating())
	slices.SortFunc(list, func(a, b Announcement) int { return a.Address.Compare(b.Address) })
	return list
}

// floating are the floating IPs of Services.
func (s *State) floating() (list []Announcement) {
	for f := range s.floatingIPs.All() {
		if nodes, ok := s.Answering(f); ok {
			list = append(list, Announcement{f.Address, nodes, true})
		}
	}
	return list
}

// Answering are the names of the nodes that may answer for a floating IP, sorted: those that are
// connected to its Network. False if it does not stand for a Service that has a port of the family.
func (s *State) Answering(f FloatingIP) (nodes []string, ok bool) {
	v, ok := s.services.Get(f.Service)
	n, _ := s.networks.Get(f.Network)
	if !ok || !n.External || n.Physical == "" ||
		!slices.ContainsFunc(v.Ports, func(p ServicePort) bool { return p.IPv6 == f.Address.Is6() }) {
		return nil, false
	}
	for node := range s.nodes.All() { // sorted by name
		if slices.Contains(node.PhysicalNetworks, n.Physical) && !node.Withdrawn {
			nodes = append(nodes, node.Name)
		}
	}
	return v.answering(nodes), true
}

// balanced are the load balancers' addresses that are of a pool.
func (s *State) balanced() []Announcement {
	if s.pools.Len() == 0 {
		return nil
	}
	nodes := map[netip.Addr][]string{}
	for v := range s.services.All() {
		for _, p := range v.Ports {
			for _, a := range p.LoadBalancerIPs {
				if pool, ok := s.PoolOf(a); ok {
					nodes[a] = append(nodes[a], v.answering(pool.Nodes)...)
				}
			}
		}
	}
	list := make([]Announcement, 0, len(nodes))
	for a, names := range nodes {
		slices.Sort(names)
		list = append(list, Announcement{a, slices.Compact(names), false})
	}
	return list
}

// answering are those of the nodes that may answer for the Service.
func (v Service) answering(nodes []string) []string {
	if !v.ExternalLocal {
		return nodes
	}
	with := v.EndpointNodes()
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
		_, has := slices.BinarySearch(with, n)
		return !has
	})
}

// EndpointNodes are the names of the nodes that have a ready endpoint, or one that still serves if
// none is ready on any node, sorted.
func (v Service) EndpointNodes() []string {
	var ready, terminating []string
	for _, p := range v.Ports {
		for i, e := range p.Endpoints {
			if i > 0 && e.Topology == p.Endpoints[i-1].Topology && e.Terminating == p.Endpoints[i-1].Terminating {
				continue
			}
			switch node := e.Topology.Node(); {
			case node == "":
			case e.Terminating:
				terminating = append(terminating, node)
			default:
				ready = append(ready, node)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

func (p LoadBalancerPool) key() string { return p.Name }

func (p LoadBalancerPool) equal(o LoadBalancerPool) bool {
	return p.Name == o.Name && slices.Equal(p.Ranges, o.Ranges) && slices.Equal(p.Nodes, o.Nodes)
}

func (p LoadBalancerPool) clone() LoadBalancerPool {
	p.Ranges, p.Nodes = slices.Clone(p.Ranges), slices.Clone(p.Nodes)
	return p
}
