// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"runtime"
	"testing"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/policytest"
)

const crowdedNamespaces, crowdedNodes = 25_000, 1000

func heapMiB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkFromEmpty is 25,000 namespaces, 100,000 pods and 75,000 policies, and what 1,000 nodes have to know of them.
func BenchmarkFromEmpty(b *testing.B) {
	before := heapMiB()
	c := policytest.NewCrowd(crowdedNamespaces, crowdedNodes)
	objects := heapMiB()
	b.ReportMetric(objects-before, "MiB-objects")
	for b.Loop() {
		e := policy.NewEngine()
		c.Load(e)
		peers := 0
		for i := range crowdedNodes {
			peers += len(e.Attach(policytest.NodeName(i)).Peers)
		}
		b.StopTimer()
		b.ReportMetric(heapMiB()-objects, "MiB-engine")
		b.ReportMetric(float64(peers), "peers")
		runtime.KeepAlive(e)
		b.StartTimer()
	}
}

// BenchmarkPodEvent is one pod of as large a cluster that goes, and comes again.
func BenchmarkPodEvent(b *testing.B) {
	c := policytest.NewCrowd(crowdedNamespaces, crowdedNodes)
	e := policy.NewEngine()
	c.Load(e)
	for i := range crowdedNodes {
		e.Attach(policytest.NodeName(i))
	}
	i := 0
	for b.Loop() {
		p := c.Endpoints[i/2*7919%len(c.Endpoints)]
		if i%2 == 0 {
			e.DeleteEndpoint(p.Key)
		} else {
			e.SetEndpoint(p)
		}
		i++
		if len(e.Deltas()) == 0 {
			b.Fatal("nobody hears of it")
		}
	}
}
