// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// addHosts gives ports, those of a Service, the endpoints that are no pods. Where a client has some
// of both kinds, the kernel chooses among these alone. Where the bridge does not balance by address
// alone, it leads clients to such endpoints itself, and only the node's process that is to see the
// address of a client outside would answer past it.
func (h *Services) addHosts(v intent.NodeService, ports []hostnet.ServicePort) {
	for i, p := range v.Ports {
		if !h.byAddress {
			if v.ExternalLocal {
				ports[i].Hosts = hostnet.HostEndpoints{
					Outside: h.hosts(p.LocalEndpoints), Sticky: v.AffinitySeconds > 0,
				}
			}
			continue
		}
		cluster, outside := p.Endpoints, p.Endpoints
		if v.InternalLocal {
			cluster = p.LocalEndpoints
		}
		if v.ExternalLocal {
			outside = p.LocalEndpoints
		}
		ports[i].Hosts = hostnet.HostEndpoints{
			Cluster: h.hosts(cluster), Inside: h.hosts(p.Endpoints), Outside: h.hosts(outside),
			Sticky: v.AffinitySeconds > 0,
		}
		if h.spanning && v.InternalLocal {
			ports[i].Hosts.Cluster = p.LocalEndpoints
		}
		if h.spanning && v.ExternalLocal {
			ports[i].Hosts.Outside = p.LocalEndpoints
		}
	}
}

// addTenantHosts gives ports, those of a Service of a private Router, the node's own endpoints
// where a policy keeps clients there and the bridge does not tell nodes apart: Ports of the Router,
// by the addresses that stand for them. Other endpoints may be another tenant's.
func addTenantHosts(s *intent.State, v intent.NodeService, ports []hostnet.ServicePort) {
	for i, p := range v.Ports {
		local := slices.DeleteFunc(slices.Clone(p.LocalEndpoints), func(e intent.Endpoint) bool {
			return !ofRouter(s, v.Router, e.Address)
		})
		ports[i].Hosts.Sticky = v.AffinitySeconds > 0
		if v.InternalLocal {
			ports[i].Hosts.Cluster = local
		}
		if v.ExternalLocal && !ports[i].Masked {
			ports[i].Hosts.Outside = local
		}
	}
}

// ofRouter says whether an address stands for a Port of a Router on this node.
func ofRouter(s *intent.State, router string, a netip.Addr) bool {
	for p := range s.PortsAt(s.Local().Node) {
		if n, ok := s.Networks().Get(p.Network); ok && n.Router == router && slices.Contains(p.NodeAddresses, a) {
			return true
		}
	}
	return false
}

func (h *Services) hosts(endpoints []intent.Endpoint) []intent.Endpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e intent.Endpoint) bool {
		return h.pods != nil && h.pods.Contains(e.Address)
	})
}

// kernelKnows says whether a Service's addresses mean something to the nodes' kernels.
func kernelKnows(s *intent.State, v intent.NodeService) bool { return Shared(s, v.Router) }

// podAddresses are those of all pods that the nodes' kernels know. A prefix that is not valid holds
// none.
func podAddresses(s *intent.State) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range clusterPrefixes(s) {
		b.AddPrefix(p)
	}
	pods, _ := b.IPSet()
	return pods
}

func serviceKeys(s *intent.State) (keys []string) {
	for v := range s.NodeServices().All() {
		keys = append(keys, v.Namespace+"/"+v.Name)
	}
	return keys
}
