// SPDX-License-Identifier: Apache-2.0

// Package nodeview projects what intent says of the cluster to what one node makes of it. A backend
// that works on a node reads the projection; one that works for all nodes at once reads the
// cluster's objects.
package nodeview

import (
	"iter"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Node is what the projection of a Service depends on besides the Service.
type Node struct {
	Name string
	Zone string // empty: in none
	// Listens says that a process of the node's host has a port; nil: none has any.
	Listens func(p intent.Protocol, port uint16) bool
	// FloatingIPs are those that stand for the Service of a namespace/name; nil: none has any.
	FloatingIPs func(service string) iter.Seq[intent.FloatingIP]
}

// Services returns the Derivation that keeps the NodeServices of a State those of the named node.
// Only what has changed is projected. What has no Service, such as what was remembered in another
// form, stays as it is.
func Services(node string) intent.Derivation {
	return func(before, now *intent.State, tx *intent.Tx) {
		delta := intent.Diff(before, now)
		was, _ := before.Nodes().Get(node)
		is, _ := now.Nodes().Get(node)
		at := Node{Name: node, Zone: is.Zone, Listens: func(p intent.Protocol, port uint16) bool {
			_, listens := now.Listeners().Get(intent.Listener{Protocol: p, Port: port}.Key())
			return listens
		}, FloatingIPs: now.FloatingIPsOfService}
		all := was.Zone != is.Zone
		if all || len(delta.Listeners) > 0 {
			for v := range now.Services().All() {
				if all || slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool {
					return among(p, delta.Listeners)
				}) {
					tx.SetNodeService(Service(v, at))
				}
			}
		}
		for _, key := range floating(before, now, delta) {
			if v, ok := now.Services().Get(key); ok {
				tx.SetNodeService(Service(v, at))
			}
		}
		for _, key := range delta.Services {
			if v, ok := now.Services().Get(key); ok {
				tx.SetNodeService(Service(v, at))
			} else {
				tx.DeleteNodeService(key)
			}
		}
	}
}

// floating are the namespaces/names of the Services that had, or have, the FloatingIPs of a Delta.
func floating(before, now *intent.State, delta intent.Delta) (list []string) {
	for _, key := range delta.FloatingIPs {
		for _, s := range []*intent.State{before, now} {
			if f, ok := s.FloatingIPs().Get(key); ok && f.Service != "" {
				list = append(list, f.Service)
			}
		}
	}
	return list
}

// among reports whether the node port of a port is one of those listeners.
func among(p intent.ServicePort, listeners []string) bool {
	_, found := slices.BinarySearch(listeners, intent.Listener{Protocol: p.Protocol, Port: p.NodePort}.Key())
	return found
}

// Service is what a node serves of a Service.
func Service(v intent.Service, at Node) intent.NodeService {
	out := intent.NodeService{
		Namespace: v.Namespace, Name: v.Name, UID: v.UID, Router: v.Router,
		AffinitySeconds: v.AffinitySeconds, SourceRanges: v.SourceRanges,
		InternalLocal: v.InternalLocal, ExternalLocal: v.ExternalLocal, HealthCheckNodePort: v.HealthCheckNodePort,
		LocalEndpoints: localReady(v, at.Name), Ports: make([]intent.NodeServicePort, 0, len(v.Ports)),
	}
	var c chooser
	for i := range v.Ports {
		p := &v.Ports[i]
		served := intent.NodeServicePort{
			Name: p.Name, Protocol: p.Protocol, IPv6: p.IPv6, Port: p.Port, NodePort: p.NodePort,
			ClusterIP: p.ClusterIP, ExternalIPs: at.externalIPs(v, p), LoadBalancerIPs: p.LoadBalancerIPs,
		}
		if at.Listens != nil && at.Listens(p.Protocol, p.NodePort) {
			served.NodePort = 0
		}
		external := served.NodePort != 0 || len(served.ExternalIPs)+len(p.LoadBalancerIPs) > 0
		if external || p.ClusterIP.IsValid() {
			choose(&served, v, c.candidates(p.Endpoints, at), external)
			out.Ports = append(out.Ports, served)
		}
	}
	return out
}

// externalIPs are those of a port of a Service, with its floating IPs that are not addresses of its
// load balancer.
func (at Node) externalIPs(v intent.Service, p *intent.ServicePort) []netip.Addr {
	if at.FloatingIPs == nil {
		return p.ExternalIPs
	}
	var more []netip.Addr
	for f := range at.FloatingIPs(v.Namespace + "/" + v.Name) {
		if f.Address.Is6() == p.IPv6 && !slices.Contains(p.LoadBalancerIPs, f.Address) {
			more = append(more, f.Address)
		}
	}
	if more == nil {
		return p.ExternalIPs
	}
	all := slices.Concat(p.ExternalIPs, more)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// localReady is how many ready endpoints a node has in the family that has more of them: usually,
// they are the same pods.
func localReady(v intent.Service, node string) int {
	var four, six []netip.Addr
	for i := range v.Ports {
		local := &four
		if v.Ports[i].IPv6 {
			local = &six
		}
		for _, e := range v.Ports[i].Endpoints {
			if !e.Terminating && node != "" && e.Topology.Node() == node {
				*local = append(*local, e.Address)
			}
		}
	}
	most := 0
	for _, ips := range [][]netip.Addr{four, six} {
		slices.SortFunc(ips, netip.Addr.Compare)
		most = max(most, len(slices.Compact(ips)))
	}
	return most
}
