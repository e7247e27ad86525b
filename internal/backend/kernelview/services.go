// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"go4.org/netipx"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// Services is what the node's kernel does for Services. It is recreated of those that have changed
// only: endpoints, which change most, do not matter to it, but for those that are no pods and that
// the kernel translates to itself. Its methods are safe for concurrent use.
type Services struct {
	byAddress bool // see hostnet.Services
	spanning  bool // see NewServicesByAddress

	mu    sync.Mutex
	pods  *netipx.IPSet // all that the nodes' kernels know
	state *intent.State
	ports map[string][]hostnet.ServicePort // by namespace/name
	// tenants are the keys of Services of private Routers that lead to Ports of the node.
	tenants map[string]struct{}
	whole   hostnet.Services
}

// NewServices makes one that knows no State.
func NewServices() *Services {
	return &Services{ports: map[string][]hostnet.ServicePort{}, tenants: map[string]struct{}{}}
}

// NewServicesByAddress makes one for a bridge that balances by address and port alone. With
// spanning it does not tell nodes apart either: where a policy keeps clients at the node's own
// endpoints, the kernel chooses among these.
func NewServicesByAddress(spanning bool) *Services {
	h := NewServices()
	h.byAddress, h.spanning = true, spanning
	return h
}

// Follow takes a State and says whether the kernel has to follow.
func (h *Services) Follow(s *intent.State) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bring(s)
}

// Of is what the kernel does for a State.
func (h *Services) Of(s *intent.State) hostnet.Services {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bring(s)
	return h.whole
}

func (h *Services) bring(s *intent.State) (changed bool) {
	delta := intent.Diff(h.state, s)
	services := delta.NodeServices
	all := len(delta.Routers) > 0 || h.byAddress && len(delta.EgressAddresses) > 0
	if len(delta.Nodes)+len(delta.Networks)+len(delta.Routers) > 0 {
		pods := podAddresses(s)
		all = all || h.pods == nil || !h.pods.Equal(pods)
		h.pods = pods
	}
	if all {
		services = slices.Concat(services, serviceKeys(s))
	}
	if len(delta.Ports)+len(delta.Networks) > 0 {
		services = slices.AppendSeq(slices.Clone(services), maps.Keys(h.tenants))
	}
	for _, key := range services {
		v, ok := s.NodeServices().Get(key)
		ports := hostPorts(v, h.byAddress && s.AnswersElsewhere(v.Router))
		delete(h.tenants, key)
		switch {
		case kernelKnows(s, v):
			h.addHosts(v, ports)
		case h.spanning && (v.InternalLocal || v.ExternalLocal):
			h.tenants[key] = struct{}{}
			addTenantHosts(s, v, ports)
		}
		if reflect.DeepEqual(h.ports[key], ports) {
			continue
		}
		changed = true
		if h.ports[key] = ports; !ok {
			delete(h.ports, key)
		}
	}
	for _, key := range delta.FloatingIPs {
		was, _ := h.floatingIP(key)
		is, _ := s.FloatingIPs().Get(key)
		changed = changed || was.Service != "" || is.Service != ""
	}
	others := len(delta.ServiceRanges) + len(delta.LoadBalancerPools) + len(delta.NodePortAddresses)
	changed = changed || h.state == nil || others > 0 || delta.Local
	if len(h.whole.Floating) > 0 {
		changed = changed || len(delta.Nodes)+len(delta.Networks)+len(delta.Routers) > 0
	}
	h.state = s
	if changed {
		h.whole = h.make()
	}
	return changed
}

// floatingIP is that of a key in the State before.
func (h *Services) floatingIP(key string) (intent.FloatingIP, bool) {
	if h.state == nil {
		return intent.FloatingIP{}, false
	}
	return h.state.FloatingIPs().Get(key)
}

func (h *Services) make() hostnet.Services {
	if h.state.Local().ServiceMode != intent.NativeServices {
		return hostnet.Services{}
	}
	whole := hostnet.Services{Native: true, ByAddress: h.byAddress}
	for a := range h.state.NodePortAddresses().All() {
		whole.NodePortAddresses = append(whole.NodePortAddresses, a.Prefix)
	}
	for r := range h.state.ServiceRanges().All() {
		whole.Ranges = append(whole.Ranges, r.Prefix)
	}
	announced, floating := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, key := range slices.Sorted(maps.Keys(h.ports)) {
		whole.Ports = append(whole.Ports, h.ports[key]...)
		for _, p := range h.ports[key] {
			for _, a := range p.LoadBalancerIPs {
				if _, ours := h.state.PoolOf(a); ours {
					announced[a] = true
				}
			}
			for _, a := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
				if standsForService(h.state, a) {
					announced[a], floating[a] = true, true
				}
			}
		}
	}
	whole.Announced = slices.SortedFunc(maps.Keys(announced), netip.Addr.Compare)
	if whole.Floating = slices.SortedFunc(maps.Keys(floating), netip.Addr.Compare); len(floating) > 0 {
		whole.Cluster = clusterPrefixes(h.state)
	}
	return whole
}

// standsForService says whether an address is a floating IP of a Service.
func standsForService(s *intent.State, a netip.Addr) bool {
	for f := range s.FloatingIPsAt(a) {
		if f.Service != "" {
			return true
		}
	}
	return false
}

// clusterPrefixes have the addresses of all pods that the nodes' kernels know.
func clusterPrefixes(s *intent.State) (list []netip.Prefix) {
	for n := range s.Nodes().All() {
		list = append(list, n.Prefixes()...)
	}
	for n := range s.Networks().All() {
		for _, subnet := range SharedSubnets(s, n) {
			list = append(list, subnet.Prefix)
		}
	}
	return list
}

// hostPorts are a Service's ports, as far as the kernel has to know.
func hostPorts(v intent.NodeService, masked bool) []hostnet.ServicePort {
	var list []hostnet.ServicePort
	for _, p := range v.Ports {
		list = append(list, hostnet.ServicePort{
			Protocol: p.Protocol, IPv6: p.IPv6, Port: p.Port, NodePort: p.NodePort, ClusterIP: p.ClusterIP,
			ExternalIPs: p.ExternalIPs, LoadBalancerIPs: p.LoadBalancerIPs,
			SourceRanges: v.SourceRanges, ExternalLocal: v.ExternalLocal, InternalLocal: v.InternalLocal,
			Unserved: p.Unserved, Masked: masked,
		})
	}
	return list
}
