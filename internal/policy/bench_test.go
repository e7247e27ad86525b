// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/policy/policytest"
)

const crowdedNamespaces, crowdedNodes = 25_000, 1000

func heapMiB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkFromEmpty is 25,000 namespaces, 100,000 pods and 75,000 policies, and what 1,000 nodes
// have to know of them.
func BenchmarkFromEmpty(b *testing.B) {
	before := heapMiB()
	crowd := policytest.NewCrowd(crowdedNamespaces, crowdedNodes)
	objects := heapMiB()
	b.ReportMetric(objects-before, "MiB-objects")
	for b.Loop() {
		c := policytest.NewController()
		c.Load(crowd)
		peers := 0
		for i := range crowdedNodes {
			peers += len(c.Attach(policytest.NodeName(i)).Peers)
		}
		b.StopTimer()
		b.ReportMetric(heapMiB()-objects, "MiB-controller")
		b.ReportMetric(float64(peers), "peers")
		runtime.KeepAlive(c)
		b.StartTimer()
	}
	runtime.KeepAlive(crowd)
}

// BenchmarkPodEvent is one pod of as large a cluster that changes its labels.
func BenchmarkPodEvent(b *testing.B) {
	crowd := policytest.NewCrowd(crowdedNamespaces, crowdedNodes)
	c := policytest.NewController()
	c.Load(crowd)
	for i := range crowdedNodes {
		c.Attach(policytest.NodeName(i))
	}
	var pods []*corev1.Pod
	for i := range 1000 {
		p := crowd.Pods[i*997%len(crowd.Pods)]
		pods = append(pods, policytest.Relabelled(p), p)
	}
	i := 0
	for b.Loop() {
		c.SetPod(pods[i%len(pods)])
		if len(c.Deltas()) == 0 {
			b.Fatal("nobody hears of it")
		}
		i++
	}
}
