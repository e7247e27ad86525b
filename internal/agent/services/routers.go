// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// router is translate.ServiceView.Router. The caller holds mu.
func (s *Services) router(namespace string) string {
	name, ok := s.routers[namespace]
	if !ok {
		state := s.View.State()
		name = routerOf(s.Mapping, namespace, s.Node, state, selecting(state))
		s.routers[namespace] = name
	}
	return name
}

// Recheck takes a change of namespaces, Networks or Routers.
func (s *Services) Recheck() {
	s.mu.Lock()
	state := s.View.State()
	networks := selecting(state)
	for namespace, old := range s.routers {
		if now := routerOf(s.Mapping, namespace, s.Node, state, networks); now != old {
			s.routers[namespace] = now
			s.set.RouterChanged(namespace)
		}
	}
	s.recheckExternalIPs()
	s.mu.Unlock()
	s.wake.Fire()
}

// selecting are the Networks that may select namespaces: few of those that there are.
func selecting(state apicache.State) []*v1alpha1.Network {
	return slices.DeleteFunc(state.NetworkList(), func(n *v1alpha1.Network) bool {
		return n.Spec.NamespaceSelector == nil
	})
}

func routerOf(mapping config.Mapping, namespace, node string, state apicache.State,
	networks []*v1alpha1.Network,
) string {
	return translate.ServiceRouter(mapping, namespace, state.Namespaces[namespace], node, networks,
		func(name string) bool { return state.Routers[name] != nil })
}

// setCIDRs takes the API's prefixes of ClusterIPs.
func (s *Services) setCIDRs(objects []*networkingv1.ServiceCIDR) {
	var list []netip.Prefix
	for _, o := range objects {
		for _, text := range o.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				s.Log.Warn("a ServiceCIDR has an invalid prefix, which is ignored", "servicecidr", o.Name, "err", err)
				continue
			}
			list = append(list, p.Masked())
		}
	}
	s.heard(func() {
		s.cidrs, s.listed[kube.ServiceCIDRs] = list, true
		s.recheckExternalIPs()
	})
}

// ranges are the prefixes of ClusterIPs, of the API and of the configuration. The caller holds mu.
func (s *Services) ranges() []intent.ServiceRange {
	var list []intent.ServiceRange
	for _, p := range slices.Concat(s.cidrs, s.Config.CIDRs) {
		list = append(list, intent.ServiceRange{Prefix: p})
	}
	return list
}
