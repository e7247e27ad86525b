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
	if !slices.Equal(s.nodes, nodes) {
		s.nodes = nodes
		s.forgetExternalIPs()
	}
	s.mu.Unlock()
	s.wake.Fire()
}

// forgetExternalIPs has Services with external IPs translated anew, because what decides about
// those has changed. The caller holds mu.
func (s *Services) forgetExternalIPs() {
	s.externalIPs = nil
	s.set.ExternalIPsChanged()
}

// externalIPRefused is translate.ServiceView.ExternalIPRefused. Few clusters have a Service with
// external IPs, so what decides about them is read when the first such Service asks. The caller
// holds mu.
func (s *Services) externalIPRefused(namespace string, ip netip.Addr) string {
	if s.externalIPs == nil {
		s.externalIPs = translate.NewExternalIPs(translate.ExternalIPSources{
			Allowed: s.Config.ExternalIPs, Services: slices.Concat(s.cidrs, s.Config.CIDRs), Nodes: s.nodes,
			Routers: s.objects.RouterList(), Networks: s.objects.NetworkList(), Pools: s.objects.PoolList(),
		})
	}
	return s.externalIPs.Refuse(s.router(namespace), ip)
}
