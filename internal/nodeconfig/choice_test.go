// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

func node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// object is a configuration that is so many seconds old.
func object(name string, age int, spec v1alpha1.NodeNetworkConfigSpec) *v1alpha1.NodeNetworkConfig {
	return &v1alpha1.NodeNetworkConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name + "-uid"), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9-age), 0)),
		},
		Spec: spec,
	}
}

func named(node string) v1alpha1.NodeNetworkConfigSpec {
	return v1alpha1.NodeNetworkConfigSpec{NodeName: node}
}

func selecting(labels map[string]string) v1alpha1.NodeNetworkConfigSpec {
	return v1alpha1.NodeNetworkConfigSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

func TestChoose(t *testing.T) {
	rack := func(n string) map[string]string { return map[string]string{"rack": n} }
	nodes := []*corev1.Node{node("a", rack("1")), node("b", rack("1")), node("c", rack("2"))}
	bad := v1alpha1.NodeNetworkConfigSpec{NodeSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: "Near", Values: []string{"1"}}},
	}}
	for _, tc := range []struct {
		name    string
		configs []*v1alpha1.NodeNetworkConfig
		want    map[string]string // by node
		taken   map[string][]Taken
	}{
		{"none", nil, map[string]string{}, map[string][]Taken{}},
		{"of no node", []*v1alpha1.NodeNetworkConfig{object("x", 1, named("z")), object("y", 1, selecting(rack("9")))}, map[string]string{}, map[string][]Taken{}},
		{"a selector that is invalid selects nothing", []*v1alpha1.NodeNetworkConfig{object("x", 2, bad), object("y", 1, selecting(rack("1")))},
			map[string]string{"a": "y", "b": "y"}, map[string][]Taken{}},
		{"a younger name before an older selector", []*v1alpha1.NodeNetworkConfig{object("all", 9, selecting(nil)), object("x", 1, named("a"))},
			map[string]string{"a": "x", "b": "all", "c": "all"}, map[string][]Taken{}},
		{"the oldest of selectors", []*v1alpha1.NodeNetworkConfig{object("young", 1, selecting(rack("1"))), object("old", 2, selecting(nil))},
			map[string]string{"a": "old", "b": "old", "c": "old"}, map[string][]Taken{"young": {{"a", "old"}, {"b", "old"}}}},
		{"the oldest of names", []*v1alpha1.NodeNetworkConfig{object("young", 1, named("a")), object("old", 2, named("a"))},
			map[string]string{"a": "old"}, map[string][]Taken{"young": {{"a", "old"}}}},
		{"of one age by name", []*v1alpha1.NodeNetworkConfig{object("b", 1, named("a")), object("a", 1, named("a")), object("c", 1, named("a"))},
			map[string]string{"a": "a"}, map[string][]Taken{"b": {{"a", "a"}}, "c": {{"a", "a"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 5 {
				rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
				rand.Shuffle(len(tc.configs), func(i, j int) { tc.configs[i], tc.configs[j] = tc.configs[j], tc.configs[i] })
				choice, got := Choose(nodes, tc.configs), map[string]string{}
				for n, c := range choice.Of {
					got[n] = c.Name
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("chosen (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.taken, choice.Taken); diff != "" {
					t.Errorf("taken (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// One that is being deleted holds no longer.
func TestDeletedIsNotChosen(t *testing.T) {
	gone := object("gone", 2, selecting(nil))
	gone.DeletionTimestamp = &metav1.Time{}
	choice := Choose([]*corev1.Node{node("a", nil)}, []*v1alpha1.NodeNetworkConfig{gone, object("next", 1, selecting(nil))})
	if got := choice.Of["a"]; got == nil || got.Name != "next" || len(choice.Taken) > 0 {
		t.Errorf("%+v", choice)
	}
}

func BenchmarkChoose(b *testing.B) {
	var nodes []*corev1.Node
	for i := range 5000 {
		nodes = append(nodes, node(fmt.Sprintf("node-%d", i), map[string]string{"rack": fmt.Sprint(i % 100)}))
	}
	var configs []*v1alpha1.NodeNetworkConfig
	for i := range 100 {
		configs = append(configs, object(fmt.Sprintf("rack-%d", i), i, selecting(map[string]string{"rack": fmt.Sprint(i)})))
	}
	for b.Loop() {
		Choose(nodes, configs)
	}
}
