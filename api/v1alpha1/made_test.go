// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
)

// What Coelan makes by itself is accepted as users' objects are, also with the longest
// names that there are.
func TestObjectsOfTheControllerAreAccepted(t *testing.T) {
	routers, networks := load(t, "routers"), load(t, "networks")
	check := func(s server, o runtime.Object, name string) {
		t.Helper()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(s.kind))
		if errs := s.strategy.Validate(t.Context(), u); len(errs) > 0 {
			t.Errorf("%s %s: %v", s.kind, name, errs.ToAggregate())
		}
	}
	var nodes []*corev1.Node
	var namespaces []*corev1.Namespace
	var pods []*corev1.Pod
	for _, node := range []string{"a", strings.Repeat("node.", 50) + "n"} {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}}},
		})
	}
	for _, ns := range []string{"red", strings.Repeat("x", 63)} {
		labels := map[string]string{v1alpha1.LabelIsolated: "true"}
		if ns == "red" {
			labels = nil
		}
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}})
		for _, n := range nodes {
			pods = append(pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: corev1.PodSpec{NodeName: n.Name},
			})
		}
	}
	network, router := allocate.DefaultObjects()
	madeRouters, madeNetworks := allocate.NamespaceObjects(pods, namespaces, nodes, nil, false)
	if len(madeRouters) != 2 || len(madeNetworks) != 4 {
		t.Fatalf("%d Routers and %d Networks, want one for each namespace, and for each node", len(madeRouters), len(madeNetworks))
	}
	tenant := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 63), UID: "u"}}
	tenant.Spec.Type = v1alpha1.Overlay
	for _, n := range append(madeNetworks, network) {
		check(networks, n, n.Name)
	}
	missing := allocate.MissingRouters([]*v1alpha1.Network{tenant}, nil)
	if len(missing) != 1 {
		t.Fatalf("Routers %v, want that of the Network without one", missing)
	}
	for _, r := range append(append(madeRouters, router), missing...) {
		check(routers, r, r.Name)
	}
}
