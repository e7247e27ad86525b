// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// ServiceInfo is an element of the answer to GET /v1/services: what the node does for a Service.
type ServiceInfo struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Router is that of its namespace's Network; empty if the Service is not in effect.
	Router string            `json:"router,omitempty"`
	Ports  []ServicePortInfo `json:"ports"`
	// AffinitySeconds is for how long a client gets the same endpoint; 0: it need not.
	AffinitySeconds int            `json:"affinitySeconds,omitempty"`
	SourceRanges    []netip.Prefix `json:"sourceRanges,omitempty"`
	// InternalLocal and ExternalLocal say that the traffic policies are Local.
	InternalLocal       bool   `json:"internalLocal,omitempty"`
	ExternalLocal       bool   `json:"externalLocal,omitempty"`
	HealthCheckNodePort uint16 `json:"healthCheckNodePort,omitempty"`
	// LocalEndpoints is how many ready endpoints the node has.
	LocalEndpoints int `json:"localEndpoints"`
	// Answers are the load balancers' addresses that this node answers for.
	Answers []netip.Addr `json:"answers,omitempty"`
	// Problems are what of it is not in effect, and why.
	Problems []string `json:"problems,omitempty"`
}

// ServicePortInfo is one port of a Service in one family of addresses.
type ServicePortInfo struct {
	Name            string           `json:"name,omitempty"`
	Protocol        string           `json:"protocol"`
	Port            uint16           `json:"port"`
	NodePort        uint16           `json:"nodePort,omitempty"`
	ClusterIP       netip.Addr       `json:"clusterIP,omitzero"`
	ExternalIPs     []netip.Addr     `json:"externalIPs,omitempty"`
	LoadBalancerIPs []netip.Addr     `json:"loadBalancerIPs,omitempty"`
	Endpoints       []netip.AddrPort `json:"endpoints"`
	// OnNode are the endpoints for clients that a policy keeps on the node.
	OnNode []netip.AddrPort `json:"onNode,omitempty"`
	// Draining are endpoints that keep their clients and get no new ones.
	Draining []netip.AddrPort `json:"draining,omitempty"`
	// Refused says that there are no endpoints anywhere, and clients are refused.
	Refused bool `json:"refused,omitempty"`
}

// serviceList is what this node does for each Service, sorted by namespace and name.
func (a *Agent) serviceList() []ServiceInfo {
	infos := map[string]ServiceInfo{}
	owned := map[netip.Addr]bool{}
	for _, address := range a.announced().Owned {
		owned[address] = true
	}
	for v := range a.intent.State().Services().All() {
		infos[v.Namespace+"/"+v.Name] = serviceInfo(v, owned)
	}
	for name, problems := range a.services.ServiceProblems() {
		i := infos[name.String()]
		i.Namespace, i.Name, i.Problems = name.Namespace, name.Name, problems
		infos[name.String()] = i
	}
	for _, p := range a.flows.problems() {
		key, _ := strings.CutPrefix(p.Owner, "service/")
		if i, ok := infos[key]; ok {
			i.Problems = append(i.Problems, p.Text)
			infos[key] = i
		}
	}
	list := make([]ServiceInfo, 0, len(infos))
	for _, key := range slices.Sorted(maps.Keys(infos)) {
		list = append(list, infos[key])
	}
	return list
}

func serviceInfo(v intent.Service, owned map[netip.Addr]bool) ServiceInfo {
	i := ServiceInfo{
		Namespace: v.Namespace, Name: v.Name, Router: v.Router, Ports: []ServicePortInfo{}, AffinitySeconds: v.AffinitySeconds,
		SourceRanges: v.SourceRanges, InternalLocal: v.InternalLocal, ExternalLocal: v.ExternalLocal,
		HealthCheckNodePort: v.HealthCheckNodePort, LocalEndpoints: v.LocalEndpoints,
	}
	for _, p := range v.Ports {
		i.Ports = append(i.Ports, ServicePortInfo{
			Name: p.Name, Protocol: p.Protocol.String(), Port: p.Port, NodePort: p.NodePort, ClusterIP: p.ClusterIP,
			ExternalIPs: p.ExternalIPs, LoadBalancerIPs: p.LoadBalancerIPs, Refused: p.Unserved,
			Endpoints: append([]netip.AddrPort{}, sockets(p.Endpoints)...), OnNode: sockets(p.LocalEndpoints), Draining: sockets(p.Draining),
		})
		for _, address := range p.LoadBalancerIPs {
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
