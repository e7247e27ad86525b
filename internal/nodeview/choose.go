// SPDX-License-Identifier: Apache-2.0

package nodeview

import (
	"coelan.io/coelan/internal/intent"
)

// candidate is an endpoint of one port of a Service that may get traffic from somewhere.
type candidate struct {
	intent.Endpoint
	local bool // it is on the node
	ready bool // otherwise it is terminating, but still serves
	// What the hints say: forZone and forNode that it is for the node's zone or for the node, and
	// noZones and noNodes that there are none.
	forZone, forNode, noZones, noNodes bool
}

// chooser has room for the candidates of one port at a time.
type chooser struct{ list []candidate }

// candidates are the endpoints of a port, each once: of several entries for the same, one on the
// node is taken first, as in kube-proxy, and one that is ready before one that is not. They are
// valid until the next call.
func (c *chooser) candidates(endpoints []intent.ServiceEndpoint, at Node) []candidate {
	c.list = c.list[:0]
	var here candidate // what all endpoints of a place have in common
	for i := range endpoints {
		e := &endpoints[i]
		if i == 0 || e.Topology != endpoints[i-1].Topology {
			here = candidate{
				local:   at.Name != "" && e.Topology.Node() == at.Name,
				forZone: e.Topology.ForZone(at.Zone), forNode: e.Topology.ForNode(at.Name),
				noZones: !e.Topology.HasZones(), noNodes: !e.Topology.HasNodes(),
			}
		}
		here.Endpoint, here.ready = e.Endpoint(), !e.Terminating
		last := len(c.list) - 1
		switch {
		case last < 0 || c.list[last].Endpoint != here.Endpoint:
			c.list = append(c.list, here)
		case here.before(c.list[last]):
			c.list[last] = here
		}
	}
	return c.list
}

// before reports whether an entry is taken rather than another one for the same endpoint.
func (a candidate) before(b candidate) bool {
	if a.local != b.local {
		return a.local
	}
	return a.ready && !b.ready
}

// choose fills in which endpoints answer at a port. All that are ready do; if none is, those that
// are terminating and still serve do, for all clients and for those kept on the node each by
// themselves (KEP-1669).
func choose(p *intent.NodeServicePort, v intent.Service, list []candidate, external bool) {
	p.Unserved = len(list) == 0
	var draining, localDraining bool
	if !v.InternalLocal || external {
		wanted := hinted(list)
		p.Endpoints = pick(list, func(c *candidate) bool { return c.ready && wanted(c) })
		if draining = len(p.Endpoints) == 0; draining {
			p.Endpoints = pick(list, func(c *candidate) bool { return !c.ready })
		}
	}
	if v.InternalLocal || v.ExternalLocal && external {
		p.LocalEndpoints = pick(list, func(c *candidate) bool { return c.ready && c.local })
		if localDraining = len(p.LocalEndpoints) == 0; localDraining {
			p.LocalEndpoints = pick(list, func(c *candidate) bool { return !c.ready && c.local })
		}
	}
	p.Draining = pick(list, func(c *candidate) bool { return !c.ready && !draining && !(localDraining && c.local) })
}

// hinted says which of the ready endpoints the node is meant to use: those for the node, otherwise
// those for its zone, otherwise all. Hints count only if all ready endpoints have them and one is
// for the node, so that a change of the nodes never leaves a node without endpoints.
func hinted(list []candidate) func(*candidate) bool {
	allNodes, allZones, someNode, someZone := true, true, false, false
	for i := range list {
		c := &list[i]
		if !c.ready {
			continue
		}
		allNodes, someNode = allNodes && !c.noNodes, someNode || c.forNode
		allZones, someZone = allZones && !c.noZones, someZone || c.forZone
	}
	switch {
	case allNodes && someNode:
		return func(c *candidate) bool { return c.forNode }
	case allZones && someZone:
		return func(c *candidate) bool { return c.forZone }
	}
	return func(*candidate) bool { return true }
}

func pick(list []candidate, which func(*candidate) bool) []intent.Endpoint {
	n := 0
	for i := range list {
		if which(&list[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	picked := make([]intent.Endpoint, 0, n)
	for i := range list {
		if which(&list[i]) {
			picked = append(picked, list[i].Endpoint)
		}
	}
	return picked
}
