// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// router is translate.ServiceView.Router. The caller holds mu.
func (s *Services) router(namespace string) string {
	name, ok := s.routers[namespace]
	if !ok {
		name = s.routerOf(namespace)
		s.routers[namespace] = name
	}
	return name
}

// Recheck takes what has changed of the View. Only namespaces, Networks, Routers and pools matter
// to Services.
func (s *Services) Recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects
	s.objects = s.View.State()
	same := func(kinds ...string) bool {
		return !slices.ContainsFunc(kinds, func(kind string) bool { return !s.objects.Same(before, kind) })
	}
	if same(apicache.Namespaces, kube.Networks, kube.Routers, kube.Pools) {
		return
	}
	if !same(kube.Networks) {
		s.selecting = selecting(s.objects)
	}
	for namespace, old := range s.routers {
		if now := s.routerOf(namespace); now != old {
			s.routers[namespace] = now
			s.set.RouterChanged(namespace)
		}
	}
	if !same(kube.Networks, kube.Routers, kube.Pools) {
		s.forgetExternalIPs()
	}
	s.wake.Fire()
}

// selecting are the Networks that may select namespaces, sorted by name: few of those that there
// are.
func selecting(state apicache.State) []*v1alpha1.Network {
	var list []*v1alpha1.Network
	for n := range state.Networks.Values() {
		if n.Spec.NamespaceSelector != nil {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *v1alpha1.Network) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *Services) routerOf(namespace string) string {
	return translate.ServiceRouter(s.Mapping, namespace, s.objects.Namespaces.Get(namespace), s.Node, s.selecting,
		func(name string) bool { return s.objects.Routers.Get(name) != nil })
}

// setCIDRs takes the API's prefixes of ClusterIPs.
func (s *Services) setCIDRs(d kube.Delta[*networkingv1.ServiceCIDR]) {
	s.heard(func() {
		d.Apply(s.cidrObjects, (*networkingv1.ServiceCIDR).GetName)
		if list := s.prefixes(); !slices.Equal(s.cidrs, list) {
			s.cidrs = list
			s.forgetExternalIPs()
		}
		s.listed[kube.ServiceCIDRs] = true
	})
}

// prefixes are those of all ServiceCIDRs, of which clusters have few. The caller holds mu.
func (s *Services) prefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(s.cidrObjects)) {
		for _, text := range s.cidrObjects[name].Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				s.Log.Warn("a ServiceCIDR has an invalid prefix, which is ignored", "servicecidr", name, "err", err)
				continue
			}
			list = append(list, p.Masked())
		}
	}
	return list
}

// ranges are the prefixes of ClusterIPs, of the API and of the configuration. The caller holds mu.
func (s *Services) ranges() []intent.ServiceRange {
	var list []intent.ServiceRange
	for _, p := range slices.Concat(s.cidrs, s.Config.CIDRs) {
		list = append(list, intent.ServiceRange{Prefix: p})
	}
	return list
}
