// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func TestPhysicalNetworksOfANode(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, ",": nil, "office": {"office"}, "office,lab": {"lab", "office"}, ",lab,,office,lab": {"lab", "office"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", Annotations: map[string]string{v1alpha1.AnnotationPhysicalNetworks: text},
		}}
		nodes, _ := Nodes([]*corev1.Node{n})
		if diff := cmp.Diff(want, nodes[0].PhysicalNetworks); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		n.Annotations = nil
		if nodes, _ := Nodes([]*corev1.Node{n}); nodes[0].PhysicalNetworks != nil {
			t.Errorf("no annotation: %v", nodes[0].PhysicalNetworks)
		}
	}
}

func TestNodeMTU(t *testing.T) {
	for text, want := range map[string]struct {
		mtu      int
		problems int
	}{
		"": {0, 1}, "1450": {1450, 0}, "0": {0, 0}, "-1": {0, 1}, "1450 ": {0, 1}, "65536": {0, 1}, "many": {0, 1},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AnnotationMTU: text}},
			Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.33.11"}}},
		}
		nodes, problems := Nodes([]*corev1.Node{n})
		if nodes[0].MTU != want.mtu || len(problems) != want.problems {
			t.Errorf("%q: %d, problems %v", text, nodes[0].MTU, problems)
		}
		delete(n.Annotations, v1alpha1.AnnotationMTU)
		if nodes, problems := Nodes([]*corev1.Node{n}); nodes[0].MTU != 0 || len(problems) > 0 {
			t.Errorf("no annotation: %d, problems %v", nodes[0].MTU, problems)
		}
	}
}
