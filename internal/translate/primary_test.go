// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
)

func network(name string, age int, role v1alpha1.NetworkRole, node string, selector map[string]string) *v1alpha1.Network {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))},
		Spec:       v1alpha1.NetworkSpec{Role: role, Node: node},
	}
	if selector != nil {
		n.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return n
}

// madeFor is the oldest Network, made by the controller.
func madeFor(namespace string, selector map[string]string, deleted bool) *v1alpha1.Network {
	n := network("ns-"+namespace, 9, v1alpha1.Primary, "", selector)
	n.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController, v1alpha1.LabelNamespace: namespace}
	if deleted {
		n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1001, 0)}
	}
	return n
}

func TestPrimaryNetwork(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tenant": "red"}}}
	red := map[string]string{"tenant": "red"}
	for _, tc := range []struct {
		name      string
		mapping   config.Mapping
		namespace *corev1.Namespace
		networks  []*v1alpha1.Network
		want      string
		problem   string
	}{
		{"flat", config.MapFlat, shop, nil, "default", ""},
		{"by namespace", config.MapNamespace, shop, nil, "ns-shop-n1", ""},
		{"by namespace, not known yet", config.MapNamespace, nil, nil, "ns-shop-n1", ""},
		{"selected", config.MapFlat, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "", red)}, "red", ""},
		{"selected wins over namespace", config.MapNamespace, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "", red)}, "red", ""},
		{"namespace not known", config.MapFlat, nil, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "", red)}, "default", ""},
		{"secondary", config.MapFlat, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Secondary, "", red)}, "default", ""},
		{"of others", config.MapFlat, shop, []*v1alpha1.Network{network("blue", 1, v1alpha1.Primary, "", map[string]string{"tenant": "blue"})}, "default", ""},
		{"without selector", config.MapFlat, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "", nil)}, "default", ""},
		{"on another node", config.MapFlat, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "n2", red)}, "default", ""},
		{"the default's own selector", config.MapFlat, shop, []*v1alpha1.Network{network("default", 1, v1alpha1.Primary, "", red)}, "default", ""},
		{"made for the namespace", config.MapNamespace, shop, []*v1alpha1.Network{madeFor("shop", red, false)}, "ns-shop", ""},
		{"made for it, being deleted", config.MapNamespace, shop, []*v1alpha1.Network{madeFor("shop", red, true)}, "ns-shop-n1", ""},
		{"made for it, in another mapping now", config.MapFlat, shop, []*v1alpha1.Network{madeFor("shop", red, true)}, "default", ""},
		{"made for another one", config.MapNamespace, shop, []*v1alpha1.Network{madeFor("bank", map[string]string{"tenant": "blue"}, false)}, "ns-shop-n1", ""},
		{
			"selected wins over made", config.MapNamespace, shop,
			[]*v1alpha1.Network{madeFor("shop", red, false), network("red", 1, v1alpha1.Primary, "", red)}, "red", "",
		},
		{
			"two", config.MapFlat, shop,
			[]*v1alpha1.Network{network("b", 1, v1alpha1.Primary, "", red), network("c", 5, v1alpha1.Primary, "", red), network("a", 5, v1alpha1.Primary, "", red)},
			"a", "namespace shop: metadata.labels: several primary networks select it: a, the oldest, has its pods; not c, b",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problem := PrimaryNetwork(tc.mapping, "shop", tc.namespace, "n1", tc.networks)
			text := ""
			if problem != nil {
				text = problem.Error()
			}
			if got != tc.want || text != tc.problem {
				t.Errorf("got %q, problem %q, want %q, %q", got, text, tc.want, tc.problem)
			}
		})
	}
}

// Services of a namespace that gets its first pod stay where they are until its Network is in the
// Router, and those of one that a user's Network selects are known when that has joined a Router.
func TestServiceRouter(t *testing.T) {
	red := map[string]string{"tenant": "red"}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: red}}
	isolated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{
		"tenant": "red", v1alpha1.LabelIsolated: "true",
	}}}
	joined := network("red", 1, v1alpha1.Primary, "", red)
	joined.Status.Router = "r"
	for _, tc := range []struct {
		name      string
		mapping   config.Mapping
		namespace *corev1.Namespace
		networks  []*v1alpha1.Network
		routers   string
		want      string
	}{
		{"not known", config.MapNamespace, nil, nil, "", ""},
		{"flat", config.MapFlat, shop, nil, "", "default"},
		{"no pods", config.MapNamespace, shop, nil, "", "default"},
		{"no pods, isolated", config.MapNamespace, isolated, nil, "", "ns-shop"},
		{"pods", config.MapNamespace, shop, nil, "ns-shop", "ns-shop"},
		{"a Network, before its Router is known", config.MapNamespace, shop, []*v1alpha1.Network{madeFor("shop", red, false)}, "", "default"},
		{"a Network that has not joined yet", config.MapNamespace, shop, []*v1alpha1.Network{madeFor("shop", red, false)}, "ns-shop", "ns-shop"},
		{"a Network, isolated", config.MapNamespace, isolated, []*v1alpha1.Network{madeFor("shop", red, false)}, "", "ns-shop"},
		{"a user's Network", config.MapNamespace, shop, []*v1alpha1.Network{joined}, "ns-shop", "r"},
		{"a user's Network that has not joined yet", config.MapFlat, shop, []*v1alpha1.Network{network("red", 1, v1alpha1.Primary, "", red)}, "red", ""},
	} {
		exists := func(router string) bool { return router == tc.routers }
		if got := ServiceRouter(tc.mapping, "shop", tc.namespace, "n1", tc.networks, exists); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestMayAttach(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tenant": "red"}}}
	red := map[string]string{"tenant": "red"}
	made := network("ns-bank-n1", 1, v1alpha1.Primary, "n1", nil)
	made.Labels = map[string]string{v1alpha1.LabelNamespace: "bank"}
	for _, tc := range []struct {
		name      string
		network   *v1alpha1.Network
		namespace *corev1.Namespace
		want      bool
	}{
		{"open", network("a", 1, v1alpha1.Secondary, "", nil), shop, true},
		{"open, namespace not known", network("a", 1, v1alpha1.Secondary, "", nil), nil, true},
		{"selected", network("a", 1, v1alpha1.Secondary, "", red), shop, true},
		{"selected, namespace not known", network("a", 1, v1alpha1.Secondary, "", red), nil, false},
		{"not selected", network("a", 1, v1alpha1.Secondary, "", map[string]string{"tenant": "blue"}), shop, false},
		{"on another node", network("a", 1, v1alpha1.Secondary, "n2", nil), shop, false},
		{"made for another namespace", made, shop, false},
	} {
		if got := MayAttach(tc.network, tc.namespace, "n1"); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
