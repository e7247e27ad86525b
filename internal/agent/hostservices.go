// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// hostServices is what the host's kernel does for Services. It is made anew of those that have changed only: endpoints,
// which change most, do not matter to it.
type hostServices struct {
	config config.Services

	mu    sync.Mutex
	state *intent.State
	ports map[string][]hostnet.ServicePort // by namespace/name
	pools []*v1alpha1.LoadBalancerPool
	whole hostnet.Services
}

func newHostServices(c config.Services) *hostServices {
	return &hostServices{config: c, ports: map[string][]hostnet.ServicePort{}}
}

// follow takes a State and says whether the kernel has to follow.
func (h *hostServices) follow(s *intent.State, pools []*v1alpha1.LoadBalancerPool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bring(s, pools)
}

// of is what the kernel does for a State.
func (h *hostServices) of(s *intent.State, pools []*v1alpha1.LoadBalancerPool) hostnet.Services {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bring(s, pools)
	return h.whole
}

func (h *hostServices) bring(s *intent.State, pools []*v1alpha1.LoadBalancerPool) (changed bool) {
	delta := intent.Diff(h.state, s)
	for _, key := range delta.Services {
		v, ok := s.Services().Get(key)
		ports := hostPorts(v)
		if reflect.DeepEqual(h.ports[key], ports) {
			continue
		}
		changed = true
		if h.ports[key] = ports; !ok {
			delete(h.ports, key)
		}
	}
	changed = changed || h.state == nil || len(delta.ServiceRanges) > 0 || delta.Local || !slices.Equal(h.pools, pools)
	h.state, h.pools = s, pools
	if changed {
		h.whole = h.make()
	}
	return changed
}

func (h *hostServices) make() hostnet.Services {
	if h.config.Mode != config.NativeServices {
		return hostnet.Services{}
	}
	whole := hostnet.Services{Native: true, NodePortAddresses: slices.Clone(h.config.NodePortAddresses)}
	for r := range h.state.ServiceRanges().All() {
		whole.Ranges = append(whole.Ranges, r.Prefix)
	}
	announced := map[netip.Addr]bool{}
	pools := translate.NewAddressPools(h.pools)
	for _, key := range slices.Sorted(maps.Keys(h.ports)) {
		whole.Ports = append(whole.Ports, h.ports[key]...)
		for _, p := range h.ports[key] {
			for _, a := range p.LoadBalancerIPs {
				announced[a] = announced[a] || pools.Find(a) != nil
			}
		}
	}
	maps.DeleteFunc(announced, func(_ netip.Addr, ours bool) bool { return !ours })
	whole.Announced = slices.SortedFunc(maps.Keys(announced), netip.Addr.Compare)
	return whole
}

// hostPorts are a Service's ports, as far as the kernel has to know.
func hostPorts(v intent.Service) []hostnet.ServicePort {
	var list []hostnet.ServicePort
	for _, p := range v.Ports {
		list = append(list, hostnet.ServicePort{
			Protocol: p.Protocol, IPv6: p.IPv6, Port: p.Port, NodePort: p.NodePort, ClusterIP: p.ClusterIP,
			ExternalIPs: p.ExternalIPs, LoadBalancerIPs: p.LoadBalancerIPs,
			SourceRanges: v.SourceRanges, ExternalLocal: v.ExternalLocal, Unserved: p.Unserved,
		})
	}
	return list
}
