// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// The project of a Network follows the Namespaces that it selects, in whichever order both come.
func TestTenants(t *testing.T) {
	namespace := func(name, project string) *corev1.Namespace {
		o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
		if project != "" {
			o.Annotations = map[string]string{v1alpha1.KuryrProjectAnnotation: project}
		}
		return o
	}
	object := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: v1alpha1.NetworkSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "shop"}},
	}}
	red := translate.Change[intent.Network]{Set: []intent.Network{{
		Name: "red", Router: "default", Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.9.0.0/24")}},
	}}}
	store, tenants := intent.NewStore(), newTenants(translate.Projects{"q": {"shop"}})
	step := func(what, project string, undecided bool, networks translate.Change[intent.Network]) {
		t.Helper()
		_, err := store.Update(func(tx *intent.Tx) error { tenants.apply(tx, networks); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := store.State().Networks().Get("red"); !ok || n.Project != project || n.Undecided != undecided {
			t.Errorf("%s: %+v", what, n)
		}
	}
	var nothing translate.Change[intent.Network]
	tenants.setNamespace("bank", namespace("bank", "q"))
	tenants.setNetwork("red", object)
	step("without its Namespace", "", true, red)
	if bank, _ := store.State().Tenants().Get("bank"); bank.Project != "" || bank.Denied != `"q"` {
		t.Errorf("a namespace that may not: %+v", bank)
	}
	tenants.setNamespace("shop", namespace("shop", ""))
	step("of a Namespace without a project", "", false, nothing)
	tenants.setNamespace("shop", namespace("shop", "q"))
	step("of one with a project", "q", false, nothing)
	step("that is translated anew", "q", false, red)
	tenants.setNamespace("shop", nil)
	step("of a Namespace that is gone", "", true, nothing)
	if _, there := store.State().Tenants().Get("shop"); there {
		t.Error("a Namespace that is gone is still a tenant")
	}

	// A namespace that asks for a project where none is allowed is still reported.
	closed, empty := newTenants(translate.Projects{}), intent.NewStore()
	closed.setNamespace("shop", namespace("shop", "q"))
	closed.setNetwork("red", object)
	c, err := empty.Update(func(tx *intent.Tx) error { closed.apply(tx, red); return nil })
	n, _ := c.Networks().Get("red")
	if shop, _ := c.Tenants().Get("shop"); err != nil || n.Project != "" || n.Undecided || shop.Denied != `"q"` {
		t.Errorf("no project is allowed: %+v, %+v, %v", n, shop, err)
	}

	off, none := newTenants(nil), intent.NewStore()
	off.setNamespace("shop", namespace("shop", "q"))
	off.setNetwork("red", object)
	s, err := none.Update(func(tx *intent.Tx) error { off.apply(tx, red); return nil })
	if n, _ := s.Networks().Get("red"); err != nil || n.Project != "" || n.Undecided || s.Tenants().Len() != 0 {
		t.Errorf("a backend without projects: %+v, %v", n, err)
	}
}
