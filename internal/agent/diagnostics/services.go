// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
)

// serviceList is what this node does for each Service, sorted by namespace and name.
func (d *Diagnostics) serviceList() []agentapi.ServiceInfo {
	infos := map[string]agentapi.ServiceInfo{}
	owned := map[netip.Addr]bool{}
	for _, address := range d.Announced() {
		owned[address] = true
	}
	for v := range d.Intent.State().NodeServices().All() {
		infos[v.Namespace+"/"+v.Name] = serviceInfo(v, owned)
	}
	for name, problems := range d.Services.ServiceProblems() {
		i := infos[name.String()]
		i.Namespace, i.Name, i.Problems = name.Namespace, name.Name, problems
		infos[name.String()] = i
	}
	for key, problems := range d.Backend.ServiceProblems() {
		if i, ok := infos[key]; ok {
			i.Problems = append(i.Problems, problems...)
			infos[key] = i
		}
	}
	list := make([]agentapi.ServiceInfo, 0, len(infos))
	for _, key := range slices.Sorted(maps.Keys(infos)) {
		list = append(list, infos[key])
	}
	return list
}

func serviceInfo(v intent.NodeService, owned map[netip.Addr]bool) agentapi.ServiceInfo {
	i := agentapi.ServiceInfo{
		Namespace: v.Namespace, Name: v.Name, Router: v.Router, Ports: []agentapi.ServicePortInfo{},
		AffinitySeconds: v.AffinitySeconds,
		SourceRanges:    v.SourceRanges, InternalLocal: v.InternalLocal, ExternalLocal: v.ExternalLocal,
		HealthCheckNodePort: v.HealthCheckNodePort, LocalEndpoints: v.LocalEndpoints,
	}
	for _, p := range v.Ports {
		i.Ports = append(i.Ports, agentapi.ServicePortInfo{
			Name: p.Name, Protocol: p.Protocol.String(), Port: p.Port, NodePort: p.NodePort, ClusterIP: p.ClusterIP,
			ExternalIPs: p.ExternalIPs, LoadBalancerIPs: p.LoadBalancerIPs, Refused: p.Unserved,
			Endpoints: append([]netip.AddrPort{}, sockets(p.Endpoints)...), OnNode: sockets(p.LocalEndpoints),
			Draining: sockets(p.Draining),
		})
		for _, address := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
			if owned[address] && !slices.Contains(i.Answers, address) {
				i.Answers = append(i.Answers, address)
			}
		}
	}
	return i
}

func sockets(list []intent.Endpoint) []netip.AddrPort {
	var all []netip.AddrPort
	for _, e := range list {
		all = append(all, netip.AddrPortFrom(e.Address, e.Port))
	}
	return all
}
