// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// tenantEndpoints know the Ports behind endpoints of Services. Kubernetes knows a pod of a private
// Router by an address in its node's subnets, and OVN has to lead to its own.
type tenantEndpoints struct {
	ports    map[netip.Addr]string              // ids of Ports, by their node addresses
	services map[netip.Addr]map[string]struct{} // keys of Services, by endpoints' addresses
}

func newTenantEndpoints() tenantEndpoints {
	return tenantEndpoints{map[netip.Addr]string{}, map[netip.Addr]map[string]struct{}{}}
}

// affected follows Ports and Services, and then yields the Services with endpoints at other Ports.
func (e tenantEndpoints) affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	keys := map[string]struct{}{}
	followPorts(from, d, func(a netip.Addr, id string) {
		if e.ports[a] == id {
			delete(e.ports, a)
		}
		maps.Copy(keys, e.services[a])
	})
	followPorts(to, d, func(a netip.Addr, id string) {
		e.ports[a] = id
		maps.Copy(keys, e.services[a])
	})
	followServices(from, d, func(a netip.Addr, key string) { unindex(e.services, a, key) })
	followServices(to, d, func(a netip.Addr, key string) { index(e.services, a, key) })
	for key := range keys {
		yield(key)
	}
}

func followPorts(s *intent.State, d intent.Delta, each func(a netip.Addr, id string)) {
	if s == nil {
		return
	}
	for _, id := range d.Ports {
		p, ok := s.Ports().Get(id)
		if !ok {
			continue
		}
		for _, a := range p.NodeAddresses {
			each(a, id)
		}
	}
}

func followServices(s *intent.State, d intent.Delta, each func(a netip.Addr, key string)) {
	if s == nil {
		return
	}
	for _, key := range d.Services {
		v, ok := s.Services().Get(key)
		if !ok {
			continue
		}
		for _, p := range v.Ports {
			for _, at := range p.Endpoints {
				each(at.Address, key)
			}
		}
	}
}

// own is a Service of a private Router with the own addresses of its endpoints. One that is no
// Port's of the Router stays as it is: it may be an address in one of its Networks.
func (e tenantEndpoints) own(s *intent.State, v intent.Service) intent.Service {
	return e.each(v, func(list []intent.ServiceEndpoint) []intent.ServiceEndpoint {
		for i, at := range list {
			port, ok := e.of(s, v.Router, at)
			if !ok {
				continue
			}
			for _, a := range port.Addresses {
				if a.Is4() == at.Address.Is4() {
					list[i].Address = a
					break
				}
			}
		}
		return list
	})
}

// held is a Service of a private Router as nodes have it: with those of its endpoints that are
// Ports of the Router. Others would be no tenant's, or another one's.
func (e tenantEndpoints) held(s *intent.State, v intent.Service) intent.Service {
	return e.each(v, func(list []intent.ServiceEndpoint) []intent.ServiceEndpoint {
		return slices.DeleteFunc(list, func(at intent.ServiceEndpoint) bool {
			_, ok := e.of(s, v.Router, at)
			return !ok
		})
	})
}

// each changes copies of the endpoints of each port.
func (tenantEndpoints) each(
	v intent.Service, change func([]intent.ServiceEndpoint) []intent.ServiceEndpoint,
) intent.Service {
	v.Ports = slices.Clone(v.Ports)
	for i := range v.Ports {
		v.Ports[i].Endpoints = change(slices.Clone(v.Ports[i].Endpoints))
	}
	return v
}

// of is the Port of a Router behind an endpoint.
func (e tenantEndpoints) of(s *intent.State, router string, at intent.ServiceEndpoint) (intent.Port, bool) {
	port, ok := s.Ports().Get(e.ports[at.Address])
	if !ok {
		return port, false
	}
	n, ok := s.Networks().Get(port.Network)
	return port, ok && n.Router == router
}
