// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// tenantsWorld is the Namespaces and Networks of a cluster, and tenants that follow their changes.
type tenantsWorld struct {
	namespaces map[string]*corev1.Namespace
	networks   map[string]*v1alpha1.Network
	intent     map[string]struct{} // names of the Networks that intent has
	tenants    *tenants
	store      *intent.Store
}

func newTenantsWorld(allowed translate.Projects) *tenantsWorld {
	return &tenantsWorld{
		namespaces: map[string]*corev1.Namespace{}, networks: map[string]*v1alpha1.Network{},
		intent: map[string]struct{}{}, tenants: newTenants(allowed), store: intent.NewStore(),
	}
}

// setNamespace adds or replaces a Namespace; without labels it is gone.
func (w *tenantsWorld) setNamespace(name, project string, l map[string]string) {
	var o *corev1.Namespace
	if l != nil {
		o = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}
	}
	if project != "" {
		o.Annotations = map[string]string{v1alpha1.KuryrProjectAnnotation: project}
	}
	set(w.namespaces, name, o)
	w.tenants.setNamespace(name, o)
}

// setNetwork adds or replaces a Network; nil: it is gone.
func (w *tenantsWorld) setNetwork(name string, o *v1alpha1.Network) {
	set(w.networks, name, o)
	w.tenants.setNetwork(name, o)
}

func selecting(name string, s *metav1.LabelSelector) *v1alpha1.Network {
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NetworkSpec{NamespaceSelector: s},
	}
}

func (w *tenantsWorld) apply() *intent.State {
	var c translate.Change[intent.Network]
	network := func(name string) intent.Network {
		return intent.Network{Name: name, Subnets: []intent.NetworkSubnet{{}}}
	}
	for name := range w.intent {
		if w.networks[name] == nil {
			c.Gone = append(c.Gone, network(name))
			delete(w.intent, name)
		}
	}
	for name := range w.networks {
		if _, ok := w.intent[name]; !ok {
			c.Set = append(c.Set, network(name))
			w.intent[name] = struct{}{}
		}
	}
	s, err := w.store.Update(func(tx *intent.Tx) error { w.tenants.apply(tx, c); return nil })
	if err != nil {
		panic(err) // the function above returns none
	}
	return s
}

// After any changes of Namespaces and Networks, the projects are those of a program that starts
// with what there is then.
func TestTenantsFollowChanges(t *testing.T) {
	allowed := translate.Projects{"q": {translate.EveryNamespace}, "r": {translate.EveryNamespace}}
	selectors := map[string]*metav1.LabelSelector{
		"none": nil, "all": {}, "invalid": {MatchLabels: map[string]string{"color": "-"}},
		"red":  {MatchLabels: map[string]string{"color": "red"}},
		"blue": {MatchLabels: map[string]string{"color": "blue"}},
	}
	rapid.Check(t, func(t *rapid.T) {
		one := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
		w := newTenantsWorld(allowed)
		t.Repeat(map[string]func(*rapid.T){
			"Namespace": func(*rapid.T) {
				l := map[string]string{"color": one("color", "red", "blue")}
				w.setNamespace(one("name", "1", "2", "3"), one("project", "q", "r", "denied"), l)
			},
			"Network": func(*rapid.T) {
				name := one("name", "1", "2")
				w.setNetwork(name, selecting(name, selectors[one("selector", slices.Sorted(maps.Keys(selectors))...)]))
			},
			"no Namespace": func(*rapid.T) { w.setNamespace(one("name", "1", "2", "3"), "", nil) },
			"no Network":   func(*rapid.T) { w.setNetwork(one("name", "1", "2"), nil) },
			"apply": func(t *rapid.T) {
				fresh := newTenantsWorld(allowed)
				for name, o := range w.networks {
					fresh.setNetwork(name, o)
				}
				for name, o := range w.namespaces {
					fresh.setNamespace(name, o.Annotations[v1alpha1.KuryrProjectAnnotation], o.Labels)
				}
				if got, want := w.apply(), fresh.apply(); !intent.Diff(want, got).Empty() {
					t.Fatalf("Networks %+v, want %+v; tenants %+v, want %+v",
						slices.Collect(got.Networks().All()), slices.Collect(want.Networks().All()),
						slices.Collect(got.Tenants().All()), slices.Collect(want.Tenants().All()))
				}
			},
		})
	})
}

// The work that a change of a Namespace causes does not grow with the product of Networks and
// Namespaces, and makes no new State if no project follows from it.
func TestTenantsOfManyNamespaces(t *testing.T) {
	for name, allowed := range map[string]translate.Projects{
		"no project is allowed": {}, "a project is allowed": {"q": {translate.EveryNamespace}},
	} {
		w := manyTenants(200, allowed)
		before := w.store.State()
		allocations := testing.AllocsPerRun(3, func() {
			w.setNamespace("7", "", map[string]string{corev1.LabelMetadataName: "7", "new": "label"})
			w.apply()
		})
		if allocations > 200 {
			t.Errorf("%s: a change of a label makes %v allocations", name, allocations)
		}
		if now := w.store.State(); now != before {
			t.Errorf("%s: a change of a label makes State %d of %d", name, now.Revision(), before.Revision())
		}
	}
}

// manyTenants is a number of Namespaces with a Network each.
func manyTenants(number int, allowed translate.Projects) *tenantsWorld {
	w := newTenantsWorld(allowed)
	for i := range number {
		name := strconv.Itoa(i)
		l := map[string]string{corev1.LabelMetadataName: name}
		w.setNamespace(name, "", l)
		w.setNetwork(name, selecting(name, &metav1.LabelSelector{MatchLabels: l}))
	}
	w.apply()
	return w
}

// BenchmarkTenants applies a change of a Namespace's labels, where each of 2,000 has a Network.
func BenchmarkTenants(b *testing.B) {
	for name, allowed := range map[string]translate.Projects{
		"no project is allowed": {}, "a project is allowed": {"q": {translate.EveryNamespace}},
	} {
		b.Run(name, func(b *testing.B) {
			w := manyTenants(2000, allowed)
			for i := 0; b.Loop(); i++ {
				w.setNamespace("7", "", map[string]string{corev1.LabelMetadataName: "7", "revision": strconv.Itoa(i)})
				_, err := w.store.Update(func(tx *intent.Tx) error {
					w.tenants.apply(tx, translate.Change[intent.Network]{})
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
