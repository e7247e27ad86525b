// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// many is a cluster of 1,000 Networks in 100 Routers, of which some are private, some share the
// cluster's addresses and import more, and all of a third kind import each other.
func many() Cluster {
	var c Cluster
	for i := range 100 {
		r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%d", i)}}
		switch i % 3 {
		case 0:
			r.Spec.ImportRouteTargets = []string{"64512:1", fmt.Sprintf("64512:%d", i+1)}
			r.Spec.ExportRouteTargets = []string{"64512:1"}
		case 1:
			r.Spec.ImportRouteTargets = []string{"64512:9999"}
			r.Spec.ExportRouteTargets = []string{"64512:9999", fmt.Sprintf("64512:%d", i)}
		}
		c.Routers = append(c.Routers, r)
	}
	for i := range 1000 {
		c.Networks = append(c.Networks, &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)},
			Spec: v1alpha1.NetworkSpec{
				Type: v1alpha1.Overlay, Router: fmt.Sprintf("r%d", i%100),
				Subnets: []v1alpha1.Subnet{{CIDR: fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)}},
			},
		})
	}
	for i := range 500 {
		c.Nodes = append(c.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i)},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", 100+i/250, i%250)}},
		})
	}
	return c
}

func BenchmarkAllocate(b *testing.B) {
	c := many()
	for b.Loop() {
		a := Allocate(c, Numbers{VNIs: DefaultVNIs})
		if v := a.Networks["n999"]; !v.Ready() {
			b.Fatalf("%+v", v)
		}
	}
}
