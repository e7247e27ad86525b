// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// candidate is an endpoint of one port of a Service that may get traffic from somewhere.
type candidate struct {
	intent.Endpoint
	local bool // it is on this node
	ready bool // else it is terminating, but still serves
	// What the hints say: forZone and forNode that it is for the node's zone or for the node, and noZones and noNodes that
	// there are none.
	forZone, forNode, noZones, noNodes bool
}

// candidates are the endpoints of a port in one family, sorted, each once: of several entries for the same, one on this node is
// taken first, as in kube-proxy, and one that is ready before one that is not. They are valid until the next call.
func (c *chooser) candidates(endpointSlices []*sliceRecord, f family, p recordPort, view *ServiceView) []candidate {
	list := c.list[:0]
	for _, s := range endpointSlices {
		if s.family != f {
			continue
		}
		port := s.port(p.name, p.protocol)
		if port == 0 {
			continue
		}
		for i := range s.all {
			e := &s.all[i]
			if i == 0 || e.place != s.all[i-1].place {
				c.look(e.place.Value(), view)
			}
			c.at.Endpoint, c.at.ready = intent.Endpoint{Address: e.ip, Port: port}, e.ready
			list = append(list, c.at)
		}
	}
	// Slices are in the order of their names and sorted by address, so that the first of equals is always the same.
	if !slices.IsSortedFunc(list, candidate.compare) {
		slices.SortStableFunc(list, candidate.compare)
	}
	list = slices.CompactFunc(list, func(a, b candidate) bool { return a.Endpoint == b.Endpoint })
	c.list = list
	return list
}

func (a candidate) compare(b candidate) int {
	return cmp.Or(a.Endpoint.Compare(b.Endpoint), yesFirst(a.local, b.local), yesFirst(a.ready, b.ready))
}

func yesFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// chooser has room for the candidates of one port at a time.
type chooser struct {
	list []candidate
	at   candidate
}

// look sets what all endpoints of a place have in common.
func (c *chooser) look(p place, view *ServiceView) {
	c.at = candidate{
		local:   view.Node != "" && p.node == view.Node,
		forZone: has(p.forZones, view.Zone), forNode: has(p.forNodes, view.Node),
		noZones: p.forZones == "", noNodes: p.forNodes == "",
	}
}

// choose fills in who answers at a port. Whoever is ready does; if nobody is, those that are terminating and still serve do, for
// all clients and for those kept on the node each by themselves (KEP-1669).
func (r *serviceRecord) choose(p *intent.ServicePort, list []candidate) {
	p.Unserved = len(list) == 0
	var draining, localDraining bool
	external := p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerIPs) > 0
	if !r.internalLocal || external {
		wanted := hinted(list)
		p.Endpoints = pick(list, func(c *candidate) bool { return c.ready && wanted(c) })
		if draining = len(p.Endpoints) == 0; draining {
			p.Endpoints = pick(list, func(c *candidate) bool { return !c.ready })
		}
	}
	if r.internalLocal || r.externalLocal && external {
		p.LocalEndpoints = pick(list, func(c *candidate) bool { return c.ready && c.local })
		if localDraining = len(p.LocalEndpoints) == 0; localDraining {
			p.LocalEndpoints = pick(list, func(c *candidate) bool { return !c.ready && c.local })
		}
	}
	p.Draining = pick(list, func(c *candidate) bool { return !c.ready && !draining && !(localDraining && c.local) })
}

// hinted says which of the ready endpoints this node is meant to use: those for the node, else those for its zone, else all. Hints
// count only if all ready endpoints have them and one is for this node, so that a change of the nodes never leaves a node
// without endpoints.
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

// localReady is how many ready endpoints the node has in the family that has more of them: usually, they are the same pods.
func localReady(endpointSlices []*sliceRecord, of [families]netip.Addr, node string) int {
	var local [families][]netip.Addr
	for _, s := range endpointSlices {
		for i := range s.all {
			if e := &s.all[i]; e.ready && node != "" && e.place.Value().node == node {
				local[s.family] = append(local[s.family], e.ip)
			}
		}
	}
	most := 0
	for f, ips := range local {
		if of[f].IsValid() {
			slices.SortFunc(ips, netip.Addr.Compare)
			most = max(most, len(slices.Compact(ips)))
		}
	}
	return most
}

// endpointNodes are the nodes with ready endpoints, or, if there are none, with those that still serve, sorted.
func endpointNodes(endpointSlices []*sliceRecord, of [families]netip.Addr) []string {
	var nodes []string
	for _, ready := range []bool{true, false} {
		for _, s := range endpointSlices {
			for i := range s.all {
				e := &s.all[i]
				if i > 0 && e.place == s.all[i-1].place && e.ready == s.all[i-1].ready || e.ready != ready || !of[s.family].IsValid() {
					continue
				}
				if n := e.place.Value().node; n != "" {
					nodes = append(nodes, n)
				}
			}
		}
		if len(nodes) > 0 {
			break
		}
	}
	slices.Sort(nodes)
	return slices.Clip(slices.Compact(nodes))
}
