// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

var anyNodeObject = rapid.Custom(func(t *rapid.T) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: draw(t, rapid.SampledFrom([]string{"n1", "n2", "n3", "n4", "n5", "n6"}), "name"), CreationTimestamp: anyTime(t),
	}}
	addresses := often([]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"}, "192.0.2.65", "10.244.1.9", "::ffff:192.0.2.1", "fe80::1%eth0", "x")
	for _, a := range list(t, addresses, 2, "addresses") {
		kind := draw(t, often([]corev1.NodeAddressType{corev1.NodeInternalIP}, corev1.NodeHostName), "type")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind, Address: a})
	}
	podCIDRs := often([]string{"10.244.1.0/24", "10.244.2.0/24", "fd00:1::/64"}, "10.244.0.0/16", "10.244.1.128/25", "192.0.2.64/26", "fd00::/16", "x")
	if n.Spec.PodCIDRs = list(t, podCIDRs, 2, "podCIDRs"); draw(t, rapid.Bool(), "podCIDR") {
		n.Spec.PodCIDR = draw(t, podCIDRs, "podCIDR")
	}
	if mtu := draw(t, often([]string{""}, "1450", "x"), "MTU"); mtu != "" {
		n.Annotations = map[string]string{v1alpha1.AnnotationMTU: mtu}
	}
	return n
})

// Whatever changes come, and in whatever order, what follows them is what a translation
// of all nodes makes.
func TestNodeSetEqualsFullTranslation(t *testing.T) {
	chains := 0
	rapid.Check(t, func(t *rapid.T) {
		objects, got := map[string]*corev1.Node{}, map[string]intent.Node{}
		s := NewNodeSet()
		var problems []Problem
		for range draw(t, rapid.IntRange(1, 20), "steps") {
			for range draw(t, rapid.IntRange(0, 3), "changes") {
				n := draw(t, anyNodeObject, "node")
				put(objects, n.Name, n, draw(t, often([]bool{false}, true), "gone"), s.Set)
			}
			c, others := s.Changes()
			if len(c.Set) > 2 && len(c.Set) < len(objects) {
				chains++
			}
			follow(got, c, func(n intent.Node) string { return n.Name })
			want, wantProblems := Nodes(inOrder(objects))
			all := slices.Collect(func(yield func(intent.Node) bool) {
				for _, n := range inOrder(pointers(got)) {
					if !yield(*n) {
						return
					}
				}
			})
			if diff := cmp.Diff(want, all, tableOptions); diff != "" {
				t.Fatalf("(-all together +one by one):\n%s", diff)
			}
			now := s.Problems()
			if diff := cmp.Diff(wantProblems, now, tableOptions); diff != "" {
				t.Fatalf("problems (-all together +one by one):\n%s", diff)
			}
			if !others && !slices.Equal(problems, now) {
				t.Fatalf("other problems are not reported: %v, %v", problems, now)
			}
			problems = now
		}
	})
	if chains == 0 {
		t.Error("no change touched others by way of others, and left some alone")
	}
}

func pointers[T any](m map[string]T) map[string]*T {
	p := make(map[string]*T, len(m))
	for key, o := range m {
		p[key] = &o
	}
	return p
}

// A change of one node among many leaves the others alone, but those that want the same.
func TestNodeSetTouches(t *testing.T) {
	s := NewNodeSet()
	set := func(i, of int) {
		name := fmt.Sprint("n", i)
		s.Set(name, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(i), 0)},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", of), fmt.Sprintf("fd00:%d::/64", of)}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)}}},
		})
	}
	for i := range 200 {
		set(i, i)
	}
	if c, _ := s.Changes(); len(c.Set) != 200 {
		t.Fatalf("%d nodes at first", len(c.Set))
	}
	for _, tc := range []struct {
		what   string
		change func()
		want   int
	}{
		{"nothing", func() {}, 0},
		{"the same again", func() { set(7, 7) }, 1},
		{"what another one has", func() { set(7, 9) }, 2},
		{"no longer", func() { set(7, 7) }, 2},
		{"gone", func() { s.Set("n7", nil) }, 1},
	} {
		tc.change()
		if c, _ := s.Changes(); len(c.Set)+len(c.Gone) != tc.want {
			t.Errorf("%s: %d nodes are touched, want %d", tc.what, len(c.Set)+len(c.Gone), tc.want)
		}
	}
}
