// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// hostServices is what the host's kernel does for Services. It is recreated of those that have
// changed only: endpoints, which change most, do not matter to it.
type hostServices struct {
	mu    sync.Mutex
	state *intent.State
	ports map[string][]hostnet.ServicePort // by namespace/name
	whole hostnet.Services
}

func newHostServices() *hostServices { return &hostServices{ports: map[string][]hostnet.ServicePort{}} }

// follow takes a State and says whether the kernel has to follow.
func (h *hostServices) follow(s *intent.State) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bring(s)
}

// of is what the kernel does for a State.
func (h *hostServices) of(s *intent.State) hostnet.Services {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bring(s)
	return h.whole
}

func (h *hostServices) bring(s *intent.State) (changed bool) {
	delta := intent.Diff(h.state, s)
	for _, key := range delta.NodeServices {
		v, ok := s.NodeServices().Get(key)
		ports := hostPorts(v)
		if reflect.DeepEqual(h.ports[key], ports) {
			continue
		}
		changed = true
		if h.ports[key] = ports; !ok {
			delete(h.ports, key)
		}
	}
	others := len(delta.ServiceRanges) + len(delta.LoadBalancerPools) + len(delta.NodePortAddresses)
	changed = changed || h.state == nil || others > 0 || delta.Local
	h.state = s
	if changed {
		h.whole = h.make()
	}
	return changed
}

func (h *hostServices) make() hostnet.Services {
	if h.state.Local().ServiceMode != intent.NativeServices {
		return hostnet.Services{}
	}
	whole := hostnet.Services{Native: true}
	for a := range h.state.NodePortAddresses().All() {
		whole.NodePortAddresses = append(whole.NodePortAddresses, a.Prefix)
	}
	for r := range h.state.ServiceRanges().All() {
		whole.Ranges = append(whole.Ranges, r.Prefix)
	}
	announced := map[netip.Addr]bool{}
	for _, key := range slices.Sorted(maps.Keys(h.ports)) {
		whole.Ports = append(whole.Ports, h.ports[key]...)
		for _, p := range h.ports[key] {
			for _, a := range p.LoadBalancerIPs {
				if _, ours := h.state.PoolOf(a); ours {
					announced[a] = true
				}
			}
		}
	}
	whole.Announced = slices.SortedFunc(maps.Keys(announced), netip.Addr.Compare)
	return whole
}

// hostPorts are a Service's ports, as far as the kernel has to know.
func hostPorts(v intent.NodeService) []hostnet.ServicePort {
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
