// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/intent"
)

// ServiceSet is all Services and EndpointSlices, in short form: it keeps nothing of the objects
// that it is given. What comes out of it depends only on what is in it, not on the order in which
// that came. It is for one goroutine.
type ServiceSet struct {
	translator serviceTranslator
	services   map[string]*serviceEntry // by namespace/name
	// The Service of an EndpointSlice, by the slice's namespace/name.
	slices     map[string]*serviceEntry
	namespaces map[string]map[*serviceEntry]struct{}
	// external are the Services that ask for external IPs.
	external map[*serviceEntry]struct{}

	touched  []*serviceEntry // since the last Changes, each once
	troubled map[*serviceEntry]struct{}
	digest   serviceDigest
}

// serviceEntry is a Service and its EndpointSlices, of which either may be there without the other.
type serviceEntry struct {
	key     string         // namespace/name
	record  *serviceRecord // nil: not there
	slices  []*sliceRecord // by name
	touched bool

	// What Changes has last told of it.
	known    bool
	sum      uint64 // of the intent.Service
	problems []ServiceProblem
}

// ServiceChanges are how intent differs from what it was at the call before.
type ServiceChanges struct {
	Changed []intent.Service // new ones among them, sorted by namespace and name
	Gone    []string         // namespace/name, sorted
	// Problems says that Problems() differ, too.
	Problems bool
}

// NewServiceSet makes an empty set.
func NewServiceSet(view ServiceView) *ServiceSet {
	return &ServiceSet{
		translator: serviceTranslator{view: view, claims: serviceClaims{}},
		services:   map[string]*serviceEntry{}, slices: map[string]*serviceEntry{},
		namespaces: map[string]map[*serviceEntry]struct{}{}, external: map[*serviceEntry]struct{}{},
		troubled: map[*serviceEntry]struct{}{}, digest: newServiceDigest(),
	}
}

// RouterChanged says that the view's Router of one namespace is another one.
func (s *ServiceSet) RouterChanged(namespace string) {
	for e := range s.namespaces[namespace] {
		s.touch(e)
		s.touchExternal(e)
	}
}

// ExternalIPsChanged says that the view may refuse other external IPs.
func (s *ServiceSet) ExternalIPsChanged() {
	for e := range s.external {
		s.touchExternal(e)
	}
}

// touchExternal touches all that claim what is claimed as an external IP of an entry.
func (s *ServiceSet) touchExternal(e *serviceEntry) {
	if _, external := s.external[e]; !external {
		return
	}
	for what, by := range e.claims() {
		if by.field == externalClaim {
			touch(s.translator.claims[what], nil, s.touch)
		}
	}
}

// NodePortChanged says that the view's NodePortTaken of one port is another.
func (s *ServiceSet) NodePortChanged(p intent.Protocol, port uint16) {
	for _, c := range s.translator.claims[claimed{protocol: p, port: port}] {
		s.touch(c.of)
	}
}

// SetService adds or replaces a Service.
func (s *ServiceSet) SetService(svc *corev1.Service) {
	s.setRecord(s.entry(serviceKey(svc.Namespace, svc.Name), svc.Namespace), readService(svc))
}

// DeleteService removes a Service; one that is not there is fine. Its EndpointSlices stay until
// they are deleted.
func (s *ServiceSet) DeleteService(namespace, name string) {
	if e := s.services[serviceKey(namespace, name)]; e != nil {
		s.setRecord(e, nil)
	}
}

func (s *ServiceSet) setRecord(e *serviceEntry, r *serviceRecord) {
	s.translator.claims.remove(e, s.touch)
	e.record = r
	if r != nil && len(r.externalIPs) > 0 {
		s.external[e] = struct{}{}
	} else {
		delete(s.external, e)
	}
	s.translator.claims.add(e, s.touch)
	s.touch(e)
}

// SetEndpointSlice adds or replaces an EndpointSlice. Its Service may come later.
func (s *ServiceSet) SetEndpointSlice(slice *discoveryv1.EndpointSlice) {
	r := readSlice(slice)
	key := serviceKey(slice.Namespace, slice.Name)
	if old := s.slices[key]; old != nil && (r == nil || r.service != old.key) {
		s.DeleteEndpointSlice(slice.Namespace, slice.Name)
	}
	if r == nil {
		return
	}
	e := s.entry(r.service, slice.Namespace)
	e.setSlice(r)
	s.slices[key] = e
	s.touch(e)
}

// DeleteEndpointSlice removes an EndpointSlice; one that is not there is fine.
func (s *ServiceSet) DeleteEndpointSlice(namespace, name string) {
	key := serviceKey(namespace, name)
	e := s.slices[key]
	if e == nil {
		return
	}
	delete(s.slices, key)
	at, _ := slices.BinarySearchFunc(e.slices, name, (*sliceRecord).compareName)
	e.slices = slices.Delete(e.slices, at, at+1)
	s.touch(e)
}

// Services yields what SetService has added, in any order: after a new list, those that it
// does not hold are to be deleted, which may be done while iterating. Services that are not
// balanced are among them.
func (s *ServiceSet) Services() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for _, e := range s.services {
			if e.record != nil && !yield(e.name()) {
				return
			}
		}
	}
}

// EndpointSlices yields what SetEndpointSlice has added and is of use, as Services does.
func (s *ServiceSet) EndpointSlices() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for key := range s.slices {
			if !yield(splitKey(key)) {
				return
			}
		}
	}
}

// Changes is how intent differs from what it was at the last call, or from nothing. It costs as
// much as what was changed meanwhile.
func (s *ServiceSet) Changes() ServiceChanges {
	var c ServiceChanges
	slices.SortFunc(s.touched, func(a, b *serviceEntry) int { return cmp.Compare(a.key, b.key) })
	for _, e := range s.touched {
		e.touched = false
		v, ok := s.translator.service(e)
		switch {
		case ok:
			if sum := s.digest.sum(&v); !e.known || sum != e.sum {
				e.known, e.sum = true, sum
				c.Changed = append(c.Changed, v)
			}
		case e.known:
			e.known = false
			c.Gone = append(c.Gone, e.key)
		}
		c.Problems = s.setProblems(e) || c.Problems
		if e.record == nil && len(e.slices) == 0 {
			s.forget(e)
		}
	}
	clear(s.touched) // the entries in it may be gone
	s.touched = s.touched[:0]
	return c
}

func (s *ServiceSet) setProblems(e *serviceEntry) (changed bool) {
	if slices.Equal(e.problems, s.translator.problems) {
		return false
	}
	e.problems = slices.Clone(s.translator.problems)
	if len(e.problems) > 0 {
		s.troubled[e] = struct{}{}
	} else {
		delete(s.troubled, e)
	}
	return true
}

// Problems are those of all Services, as of the last call of Changes, sorted.
func (s *ServiceSet) Problems() []ServiceProblem {
	var list []ServiceProblem
	for e := range s.troubled {
		list = append(list, e.problems...)
	}
	slices.SortFunc(list, compareServiceProblems)
	return list
}

func (s *ServiceSet) touch(e *serviceEntry) {
	if !e.touched {
		e.touched = true
		s.touched = append(s.touched, e)
	}
}

func (s *ServiceSet) entry(key, namespace string) *serviceEntry {
	e := s.services[key]
	if e == nil {
		e = &serviceEntry{key: key}
		s.services[key] = e
		if s.namespaces[namespace] == nil {
			s.namespaces[namespace] = map[*serviceEntry]struct{}{}
		}
		s.namespaces[namespace][e] = struct{}{}
	}
	return e
}

func (s *ServiceSet) forget(e *serviceEntry) {
	namespace := e.name().Namespace
	delete(s.services, e.key)
	delete(s.namespaces[namespace], e)
	if len(s.namespaces[namespace]) == 0 {
		delete(s.namespaces, namespace)
	}
}

func serviceKey(namespace, name string) string { return namespace + "/" + name }

func splitKey(key string) types.NamespacedName {
	namespace, name, _ := strings.Cut(key, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (e *serviceEntry) name() types.NamespacedName { return splitKey(e.key) }

// setSlice adds or replaces an EndpointSlice.
func (e *serviceEntry) setSlice(r *sliceRecord) {
	at, found := slices.BinarySearchFunc(e.slices, r.name, (*sliceRecord).compareName)
	if found {
		e.slices[at] = r
	} else {
		e.slices = slices.Insert(e.slices, at, r)
	}
}
