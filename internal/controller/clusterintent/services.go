// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// services is all Services, and what decides in which Router they are and which external IPs they
// have.
type services struct {
	Settings
	set        *translate.ServiceSet
	namespaces map[string]*corev1.Namespace
	networks   map[string]*v1alpha1.Network
	routers    map[string]*v1alpha1.Router
	// selecting are the Networks that may select namespaces, sorted by name: few of those that
	// there are.
	selecting []*v1alpha1.Network
	routerOf  map[string]string // by namespace, of those that Services have asked for
	// stale says that Routers of namespaces may be others.
	stale bool
	// sources are what decides about external IPs beside Networks and Routers; external is made of
	// all, and nil if no Service has asked since these changed.
	sources  func() translate.ExternalIPSources
	external *translate.ExternalIPs
}

func newServices(o Settings, sources func() translate.ExternalIPSources) *services {
	s := &services{
		Settings: o, namespaces: map[string]*corev1.Namespace{}, networks: map[string]*v1alpha1.Network{},
		routers: map[string]*v1alpha1.Router{}, routerOf: map[string]string{}, sources: sources,
	}
	s.set = translate.NewServiceSet(translate.ServiceView{Router: s.router, ExternalIPRefused: s.refused})
	return s
}

func (s *services) change(obj client.Object, gone bool) {
	switch o := obj.(type) {
	case *corev1.Service:
		if gone {
			s.set.DeleteService(o.Namespace, o.Name)
		} else {
			s.set.SetService(o)
		}
	case *discoveryv1.EndpointSlice:
		if gone {
			s.set.DeleteEndpointSlice(o.Namespace, o.Name)
		} else {
			s.set.SetEndpointSlice(o)
		}
	}
}

func (s *services) setNamespace(name string, o *corev1.Namespace) {
	set(s.namespaces, name, o)
	s.check(name)
}

func (s *services) setRouter(name string, o *v1alpha1.Router) {
	set(s.routers, name, o)
	s.stale = true
	s.externalIPsChanged()
}

func (s *services) setNetwork(name string, o *v1alpha1.Network) {
	set(s.networks, name, o)
	s.selecting = slices.DeleteFunc(s.selecting, func(n *v1alpha1.Network) bool { return n.Name == name })
	if o != nil && o.Spec.NamespaceSelector != nil {
		s.selecting = append(s.selecting, o)
		slices.SortFunc(s.selecting, func(a, b *v1alpha1.Network) int { return cmp.Compare(a.Name, b.Name) })
	}
	s.stale = true
	s.externalIPsChanged()
}

// externalIPsChanged has Services with external IPs translated anew, because what decides about
// those has changed.
func (s *services) externalIPsChanged() {
	s.external = nil
	s.set.ExternalIPsChanged()
}

// router is translate.ServiceView.Router.
func (s *services) router(namespace string) string {
	name, ok := s.routerOf[namespace]
	if !ok {
		name = s.find(namespace)
		s.routerOf[namespace] = name
	}
	return name
}

func (s *services) find(namespace string) string {
	return translate.ServiceRouter(s.Mapping, namespace, s.namespaces[namespace], "", s.selecting,
		func(name string) bool { return s.routers[name] != nil })
}

// check looks whether a namespace's Router is another one.
func (s *services) check(namespace string) {
	old, asked := s.routerOf[namespace]
	if now := s.find(namespace); asked && now != old {
		s.routerOf[namespace] = now
		s.set.RouterChanged(namespace)
	}
}

// refused is translate.ServiceView.ExternalIPRefused. Few clusters have a Service with external
// IPs, so what decides about them is read when the first such Service asks.
func (s *services) refused(namespace string, ip netip.Addr) string {
	if s.external == nil {
		sources := s.sources()
		sources.Routers, sources.Networks = values(s.routers), values(s.networks)
		s.external = translate.NewExternalIPs(sources)
	}
	return s.external.Refuse(s.router(namespace), ip)
}

// apply brings intent to what has changed.
func (s *services) apply(tx *intent.Tx) {
	if s.stale {
		for namespace := range s.routerOf {
			s.check(namespace)
		}
		s.stale = false
	}
	changes := s.set.Changes()
	for _, v := range changes.Changed {
		tx.SetService(v)
	}
	for _, key := range changes.Gone {
		tx.DeleteService(key)
	}
}
