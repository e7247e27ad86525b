// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// addresses are compared whole.
var exactly = cmp.Options{cmp.Exporter(func(reflect.Type) bool { return true })}

// mirror is the state that follows from the changes of a set.
type mirror struct {
	services map[string]intent.Service
	problems []ServiceProblem
}

func (m *mirror) follow(t *rapid.T, s *ServiceSet) {
	c := s.Changes()
	for _, v := range c.Changed {
		key := v.Namespace + "/" + v.Name
		if old, ok := m.services[key]; ok && reflect.DeepEqual(old, v) {
			t.Fatalf("%s changed, but is as before: %+v", key, v)
		}
		m.services[key] = v
	}
	for _, key := range c.Gone {
		if _, ok := m.services[key]; !ok {
			t.Fatalf("%s has gone, but was not there", key)
		}
		delete(m.services, key)
	}
	if !slices.IsSortedFunc(c.Changed, func(a, b intent.Service) int { return compareKeys(a, b) }) || !slices.IsSorted(c.Gone) {
		t.Fatalf("not sorted: %+v", c)
	}
	problems := s.Problems()
	if c.Problems == slices.Equal(problems, m.problems) {
		t.Fatalf("the problems differ: %v\nbefore: %v\nnow: %v", c.Problems, m.problems, problems)
	}
	m.problems = problems
}

func compareKeys(a, b intent.Service) int {
	return cmpStrings(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}

func cmpStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Whatever has been set and deleted in whatever order, the outcome is that of a new set with what
// is left, put in in any other order, and nothing is told twice.
func TestServiceSetAgainstNewOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services, objects := map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}
		routers := map[string]string{"shop": "default", "tenant": "blue"}
		taken := map[uint16]bool{30022: true}
		view := ServiceView{
			Node:          "n1",
			Router:        func(namespace string) string { return routers[namespace] },
			NodePortTaken: func(_ intent.Protocol, port uint16) bool { return taken[port] },
		}
		set := NewServiceSet(view)
		seen := &mirror{services: map[string]intent.Service{}}
		for _, svc := range rapid.SliceOfN(anyService, 0, 4).Draw(t, "services") {
			services[svc.Namespace+"/"+svc.Name] = svc
			set.SetService(svc)
		}
		for _, s := range rapid.SliceOfN(anySlice, 0, 4).Draw(t, "slices") {
			objects[s.Namespace+"/"+s.Name] = s
			set.SetEndpointSlice(s)
		}
		t.Repeat(map[string]func(*rapid.T){
			"service": func(t *rapid.T) {
				svc := anyService.Draw(t, "service")
				services[svc.Namespace+"/"+svc.Name] = svc
				set.SetService(svc)
			},
			"slice": func(t *rapid.T) {
				s := anySlice.Draw(t, "slice")
				objects[s.Namespace+"/"+s.Name] = s
				set.SetEndpointSlice(s)
			},
			// The same slice of the same Service, with something else in it.
			"slice again": func(t *rapid.T) {
				if len(objects) == 0 {
					t.Skip("there is none")
				}
				old := objects[rapid.SampledFrom(slices.Sorted(maps.Keys(objects))).Draw(t, "which")]
				s := old.DeepCopy()
				s.Endpoints = rapid.SliceOfN(anyEndpoint, 0, 4).Draw(t, "endpoints")
				objects[s.Namespace+"/"+s.Name] = s
				set.SetEndpointSlice(s)
			},
			"no service": func(t *rapid.T) {
				namespace, name := anyNamespace.Draw(t, "namespace"), anyName.Draw(t, "name")
				delete(services, namespace+"/"+name)
				set.DeleteService(namespace, name)
			},
			"no slice": func(t *rapid.T) {
				namespace, name := anyNamespace.Draw(t, "namespace"), anySliceName.Draw(t, "name")
				delete(objects, namespace+"/"+name)
				set.DeleteEndpointSlice(namespace, name)
			},
			"router": func(t *rapid.T) {
				namespace := anyNamespace.Draw(t, "namespace")
				routers[namespace] = rapid.SampledFrom([]string{"default", "blue", ""}).Draw(t, "router")
				set.RouterChanged(namespace)
			},
			"node port": func(t *rapid.T) {
				port := uint16(30001)
				taken[port] = !taken[port]
				set.NodePortChanged(intent.TCP, port)
				set.NodePortChanged(intent.UDP, port)
				set.NodePortChanged(intent.SCTP, port)
			},
			"list": func(t *rapid.T) {
				for name := range set.Services() {
					if services[name.String()] == nil || rapid.Bool().Draw(t, "gone") {
						delete(services, name.String())
						set.DeleteService(name.Namespace, name.Name)
					}
				}
				for name := range set.EndpointSlices() {
					if rapid.Bool().Draw(t, "gone") {
						delete(objects, name.String())
						set.DeleteEndpointSlice(name.Namespace, name.Name)
					}
				}
			},
			"": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "later") == 0 {
					return
				}
				seen.follow(t, set)
				anew := inAnyOrder(t, view, services, objects)
				if diff := cmp.Diff(anew.services, seen.services, exactly); diff != "" {
					t.Fatalf("services (-a new set +the old one):\n%s", diff)
				}
				if diff := cmp.Diff(anew.problems, seen.problems); diff != "" {
					t.Fatalf("problems (-a new set +the old one):\n%s", diff)
				}
				checkAlone(t, view, services, objects, anew)
			},
		})
		for name := range services {
			namespace, name := splitKey(name).Namespace, splitKey(name).Name
			set.DeleteService(namespace, name)
		}
		for name := range objects {
			set.DeleteEndpointSlice(splitKey(name).Namespace, splitKey(name).Name)
		}
		set.Changes()
		if n := len(set.services) + len(set.slices) + len(set.namespaces) + len(set.translator.claims) + len(set.troubled); n > 0 {
			t.Fatalf("an empty set still holds %+v", set)
		}
	})
}

func inAnyOrder(t *rapid.T, view ServiceView, services map[string]*corev1.Service, objects map[string]*discoveryv1.EndpointSlice) *mirror {
	set := NewServiceSet(view)
	var puts []func()
	for _, svc := range services {
		puts = append(puts, func() { set.SetService(svc) })
	}
	for _, s := range objects {
		puts = append(puts, func() { set.SetEndpointSlice(s) })
	}
	order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Perm(len(puts))
	for _, i := range order {
		puts[i]()
	}
	m := &mirror{services: map[string]intent.Service{}}
	m.follow(t, set)
	return m
}

// checkAlone compares Services that no other one has taken anything from with what they are by
// themselves, and checks what is true of each.
func checkAlone(
	t *rapid.T, view ServiceView, services map[string]*corev1.Service, objects map[string]*discoveryv1.EndpointSlice, all *mirror,
) {
	list := slices.Collect(maps.Values(objects))
	for key, svc := range services {
		v, ok, problems := Service(svc, list, view)
		if ok {
			checkService(t, v)
		}
		lost := slices.ContainsFunc(all.problems, func(p ServiceProblem) bool { return p.Service.String() == key && p.Reason == Overlap })
		got, there := all.services[key]
		if there {
			checkService(t, got)
		}
		if lost {
			continue
		}
		if diff := cmp.Diff(v, got, exactly); ok != there || diff != "" {
			t.Fatalf("%s alone: %v, among others: %v\n%s", key, ok, there, diff)
		}
		var told []Problem
		for _, p := range all.problems {
			if p.Service.String() == key {
				told = append(told, p.Problem)
			}
		}
		if !slices.Equal(problems, told) {
			t.Fatalf("%s has problems alone:\n%v\namong others:\n%v", key, problems, told)
		}
	}
}

// Two Services that want the same get it one after the other, and the loser is reported.
func TestConflictEnds(t *testing.T) {
	old, _ := web()
	old.Spec.ExternalIPs = []string{"198.51.100.1"}
	young := old.DeepCopy()
	young.Name, young.UID, young.Spec.ClusterIP, young.Spec.ClusterIPs = "young", "u2", "10.96.0.11", []string{"10.96.0.11"}
	set := NewServiceSet(ServiceView{})
	step := func(what string, changed []string, problems int) {
		t.Helper()
		c := set.Changes()
		var got []string
		for _, v := range c.Changed {
			got = append(got, v.Name+": "+showPorts(v))
		}
		if diff := cmp.Diff(changed, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if n := len(set.Problems()); n != problems {
			t.Errorf("%s: %d problems, want %d: %v", what, n, problems, set.Problems())
		}
	}
	const (
		oldHas   = "web: TCP 80 10.96.0.10 external 198.51.100.1 unserved"
		oldLacks = "web: TCP 80 10.96.0.10 unserved"
		has      = "young: TCP 80 10.96.0.11 external 198.51.100.1 unserved"
		lacks    = "young: TCP 80 10.96.0.11 unserved"
	)
	set.SetService(young)
	step("the younger comes first", []string{has}, 0)
	set.SetService(old)
	step("the older comes", []string{oldHas, lacks}, 1)
	set.SetService(old)
	step("nothing changes", nil, 1)
	set.DeleteService("shop", "web")
	step("the older goes", []string{has}, 0)
	set.SetService(old)
	step("and comes back", []string{oldHas, lacks}, 1)
	set.SetService(young)
	step("the younger is written again", nil, 1)
	other := old.DeepCopy()
	other.Spec.ExternalIPs = nil
	set.SetService(other)
	step("the older gives it up", []string{oldLacks, has}, 0)
}
