// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPolicyEndpoints is 100,000 pods, each with its Port, from nothing, and one
// of them that changes.
func BenchmarkPolicyEndpoints(b *testing.B) {
	const count = 100_000
	fill := func() *Endpoints {
		e := NewEndpoints()
		e.SetNode(endpointNode("n1", "10.0.0.0/8"))
		for i := range count {
			name, uid, ip := fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
			e.SetPod(endpointPod(name, uid, nil, ip))
			e.SetPort(endpointPort(name+".eth0", "default", ofPod(name, uid, "eth0"), []string{ip}))
		}
		e.Changes()
		return e
	}
	b.Run("from empty", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fill()
		}
	})
	b.Run("one pod", func(b *testing.B) {
		e := fill()
		i := 0
		for b.Loop() {
			i++
			e.SetPod(endpointPod("p5", "u5", func(p *corev1.Pod) { p.Labels = map[string]string{"a": fmt.Sprint(i)} }, "10.0.0.5"))
			e.Changes()
			e.Problems()
		}
	})
}
