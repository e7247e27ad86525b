// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/view"
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
	s.mu.Unlock()
	s.kick()
}

// selecting are the Networks that may select namespaces: few of those that there are.
func selecting(state view.State) []*v1alpha1.Network {
	return slices.DeleteFunc(state.NetworkList(), func(n *v1alpha1.Network) bool { return n.Spec.NamespaceSelector == nil })
}

// routerOf is the name of the Router of a namespace's Network; "" if that is not known, or has none.
func routerOf(mapping config.Mapping, namespace, node string, state view.State, networks []*v1alpha1.Network) string {
	known := state.Namespaces[namespace]
	if known == nil {
		return ""
	}
	name, _ := translate.PrimaryNetwork(mapping, namespace, known, node, networks)
	switch {
	case name == intent.DefaultNetworkName:
		return intent.DefaultRouterName
	case mapping != config.MapNamespace || name != translate.NamespaceNetwork(namespace, node):
		if n := state.Networks[name]; n != nil {
			return n.Status.Router
		}
		return ""
	case state.Routers[translate.NamespaceRouter(namespace)] == nil && known.Labels[v1alpha1.LabelIsolated] != "true":
		// It has no pods, and so no Router: its Services lead to addresses of others, as that of the API server does.
		return intent.DefaultRouterName
	}
	return translate.NamespaceRouter(namespace)
}

// setCIDRs takes the API's prefixes of ClusterIPs.
func (s *Services) setCIDRs(objects []*networkingv1.ServiceCIDR) {
	var list []netip.Prefix
	for _, o := range objects {
		for _, text := range o.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				s.Log.Warn("a prefix of ClusterIPs is left out", "servicecidr", o.Name, "err", err)
				continue
			}
			list = append(list, p.Masked())
		}
	}
	s.heard(func() { s.cidrs, s.listed[kube.ServiceCIDRs] = list, true })
}

// ranges are the prefixes of ClusterIPs, of the API and of the configuration. The caller holds mu.
func (s *Services) ranges() []intent.ServiceRange {
	var list []intent.ServiceRange
	for _, p := range slices.Concat(s.cidrs, s.Config.CIDRs) {
		list = append(list, intent.ServiceRange{Prefix: p})
	}
	return list
}
