// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// reporting is a node that says so.
func reporting(t *testing.T, name string, r Report) *corev1.Node {
	t.Helper()
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	n := node(name, nil)
	n.Annotations = map[string]string{v1alpha1.AnnotationNetworkConfig: text}
	return n
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func applied(generation int64, at time.Time) *Applied {
	return &Applied{Name: "c", UID: "c-uid", Generation: generation, Time: at}
}

func TestStatus(t *testing.T) {
	c := object("c", 1, selecting(nil))
	c.Generation = 2
	old := object("old", 2, named("busy"))
	young := object("young", 1, named("busy"))
	other := &Applied{Name: "c", UID: "of one that was deleted", Generation: 2, Time: noon}
	refused := &Refused{Name: "c", UID: "c-uid", Generation: 2, Message: "no card"}
	all := []*v1alpha1.NodeNetworkConfig{c, old, young}
	for _, tc := range []struct {
		name   string
		about  *v1alpha1.NodeNetworkConfig
		nodes  []*corev1.Node
		want   string // nodes by the status
		counts [2]int32
		reason string
		part   string
	}{
		{"no node", c, nil, "", [2]int32{0, 0}, v1alpha1.ReasonNoNode, "none has that name or these labels"},
		{"not heard of", c, []*corev1.Node{node("a", nil)}, "a 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, "0 of 1 nodes run with it; node a has not applied it yet"},
		{"nonsense", c, []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.AnnotationNetworkConfig: `{"applied":7`}}}},
			"a 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, ""},
		{"too much", c, []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
			v1alpha1.AnnotationNetworkConfig: `{"applied":{"uid":"c-uid","generation":2}}` + strings.Repeat(" ", 5000)}}}},
			"a 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, ""},
		{"another object of the name", c, []*corev1.Node{reporting(t, "a", Report{Applied: other})}, "a 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, ""},
		{"as it was", c, []*corev1.Node{reporting(t, "a", Report{Applied: applied(1, noon)})}, "a 1 ", [2]int32{1, 0}, v1alpha1.ReasonPending, "not applied it yet"},
		{"refused", c, []*corev1.Node{
			reporting(t, "a", Report{Applied: applied(2, noon)}), reporting(t, "b", Report{Applied: applied(1, noon), Refused: refused}), node("c", nil),
		}, "b 1 no card, c 0 , a 2 ", [2]int32{3, 1}, v1alpha1.ReasonRefusedByNodes, "1 of 3 nodes run with it, 1 refuse it, such as b: no card"},
		{"refused before", c, []*corev1.Node{reporting(t, "a", Report{Refused: &Refused{Name: "c", UID: "c-uid", Generation: 1, Message: "no card"}})},
			"a 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, "not applied it yet"},
		{"asked from elsewhere", c, []*corev1.Node{reporting(t, "a", Report{Problem: "192.0.2.9 is not an address of node a"})},
			"a 0 192.0.2.9 is not an address of node a", [2]int32{1, 0}, v1alpha1.ReasonPending, "node a: 192.0.2.9 is not an address of node a"},
		{"asked from elsewhere later", c, []*corev1.Node{reporting(t, "a", Report{Applied: applied(2, noon), Problem: "192.0.2.9 is not"})},
			"a 2 ", [2]int32{1, 1}, v1alpha1.ReasonReady, "1 of 1 nodes run with it"},
		{"all", c, []*corev1.Node{reporting(t, "b", Report{Applied: applied(2, noon)}), reporting(t, "a", Report{Applied: applied(2, noon.Add(-time.Hour))})},
			"a 2 , b 2 ", [2]int32{2, 2}, v1alpha1.ReasonReady, "2 of 2 nodes run with it"},
		{"conflict", young, []*corev1.Node{node("busy", nil)}, "", [2]int32{0, 0}, v1alpha1.ReasonNodesTaken,
			"node busy has nodenetworkconfig old, which is older than young"},
		{"no conflict", old, []*corev1.Node{node("busy", nil)}, "busy 0 ", [2]int32{1, 0}, v1alpha1.ReasonPending, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, condition := Status(tc.about, tc.nodes, Choose(tc.nodes, all))
			var got []string
			for _, n := range s.Nodes {
				got = append(got, fmt.Sprintf("%s %d %s", n.Name, n.AppliedGeneration, n.Message))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if s.SelectedNodes != tc.counts[0] || s.AppliedNodes != tc.counts[1] {
				t.Errorf("%d selected, %d applied, want %v", s.SelectedNodes, s.AppliedNodes, tc.counts)
			}
			ready := condition.Status == metav1.ConditionTrue
			if condition.Reason != tc.reason || ready != (tc.reason == v1alpha1.ReasonReady) || !strings.Contains(condition.Message, tc.part) ||
				condition.ObservedGeneration != tc.about.Generation || condition.Message == "" {
				t.Errorf("condition %+v", condition)
			}
		})
	}
	s, _ := Status(c, []*corev1.Node{reporting(t, "a", Report{Applied: applied(2, noon)})}, Choose([]*corev1.Node{node("a", nil)}, all))
	if s.LastAppliedTime == nil || !s.LastAppliedTime.Time.Equal(noon) {
		t.Errorf("last applied at %v", s.LastAppliedTime)
	}
}

// What a status names is bounded, and begins with the nodes that need attention.
func TestStatusIsBounded(t *testing.T) {
	c := object("c", 1, selecting(nil))
	var nodes []*corev1.Node
	for i := range 5000 {
		nodes = append(nodes, reporting(t, fmt.Sprintf("node-%04d", i), Report{Applied: &Applied{UID: "c-uid", Generation: 1, Time: noon}}))
	}
	nodes[4711] = reporting(t, "node-4711", Report{Refused: &Refused{UID: "c-uid", Generation: 1, Message: "no card"}})
	s, condition := Status(c, nodes, Choose(nodes, []*v1alpha1.NodeNetworkConfig{c}))
	if len(s.Nodes) != v1alpha1.MaxNodesInStatus || s.Nodes[0].Name != "node-4711" || s.SelectedNodes != 5000 || s.AppliedNodes != 4999 {
		t.Errorf("%d nodes, first %+v, %d selected, %d applied", len(s.Nodes), s.Nodes[0], s.SelectedNodes, s.AppliedNodes)
	}
	if !strings.Contains(condition.Message, "such as node-4711: no card") {
		t.Errorf("%+v", condition)
	}
}

func TestReportIsBounded(t *testing.T) {
	long := strings.Repeat("ä\n", 2000)
	text, err := Report{Problem: long, Refused: &Refused{Message: long}}.Encode()
	if err != nil || len(text) > 2048 || !utf8.ValidString(text) || strings.Contains(text, `\n`) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if text, err := (Report{}).Encode(); err != nil || text != "{}" {
		t.Errorf("of nothing: %s, %v", text, err)
	}
	n := node("a", nil)
	n.Annotations = map[string]string{v1alpha1.AnnotationNetworkConfig: `{"problem":"` + strings.Repeat("x", 4000) + `"}`}
	if got := len(ReportOf(n).Problem); got > MaxMessage {
		t.Errorf("a message of %d bytes is read", got)
	}
}
