// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/translate"
)

// SetNodes takes all nodes. Their addresses are no external IPs.
func (s *Services) SetNodes(nodes []*corev1.Node) {
	s.mu.Lock()
	s.nodes = nodes
	s.recheckExternalIPs()
	s.mu.Unlock()
	s.wake.Fire()
}

// recheckExternalIPs has Services with external IPs translated anew if what decides about those has
// changed. The caller holds mu.
func (s *Services) recheckExternalIPs() {
	state := s.View.State()
	now := translate.ExternalIPSources{
		Allowed: s.Config.ExternalIPs, Services: slices.Concat(s.cidrs, s.Config.CIDRs), Nodes: s.nodes,
		Routers: state.RouterList(), Networks: state.NetworkList(), Pools: state.PoolList(),
	}
	if s.externalIPs != nil && s.sources.Equal(now) {
		return
	}
	s.sources, s.externalIPs = now, translate.NewExternalIPs(now)
	s.set.ExternalIPsChanged()
}

// externalIPRefused is translate.ServiceView.ExternalIPRefused. The caller holds mu.
func (s *Services) externalIPRefused(namespace string, ip netip.Addr) string {
	return s.externalIPs.Refuse(s.router(namespace), ip)
}
