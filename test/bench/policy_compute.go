// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/policy/policytest"
)

// The cluster that a controller computes: what Antrea publishes for the same is 6 s and 1.6 GB.
const (
	crowdedNamespaces = 25_000
	crowdedNodes      = 1000
	podEvents         = 2000
)

const (
	computeBar, computeAim   = 6000, 3000
	heapBar, heapAim         = 1600, 800
	podEventBar, podEventAim = 1, 0.5
)

// measurePolicyCompute has a controller learn all of a large cluster and compute what each of its
// nodes has to know, and then takes the time of single pods that change their labels. No node is
// connected, nothing is sent.
func measurePolicyCompute(context.Context) ([]Result, error) {
	crowd := policytest.NewCrowd(crowdedNamespaces, crowdedNodes)
	runtime.GC()
	peak := watchHeap()
	start, cpu := time.Now(), processorTime()
	c := policytest.NewController()
	c.Load(crowd)
	for i := range crowdedNodes {
		c.Attach(policytest.NodeName(i))
	}
	took, busy := time.Since(start), processorTime()-cpu
	heap := peak()

	const step = 997 // has no divisor in common with the number of pods
	var pods []*corev1.Pod
	for i := range podEvents / 2 {
		p := crowd.Pods[i*step%len(crowd.Pods)]
		pods = append(pods, policytest.Relabelled(p), p)
	}
	var each []float64
	cpu = processorTime()
	for _, p := range pods {
		start := time.Now()
		c.SetPod(p)
		c.Deltas()
		each = append(each, milliseconds(time.Since(start)))
	}
	mean := milliseconds(processorTime()-cpu) / float64(len(pods))
	runtime.KeepAlive(crowd)
	return []Result{
		absolute("policy-compute", "ms", milliseconds(took)).atMost(computeBar, computeAim),
		absolute("policy-compute-cpu", "ms", milliseconds(busy)),
		absolute("policy-compute-heap", "MB", heap).atMost(heapBar, heapAim),
		absolute("policy-pod-event", "ms", mean).atMost(podEventBar, podEventAim),
		absolute("policy-pod-event-p50", "ms", percentile(each, 0.5)),
		absolute("policy-pod-event-p99", "ms", percentile(each, 0.99)),
	}, nil
}

// heapPause is the time between two looks at the heap.
const heapPause = 20 * time.Millisecond

// watchHeap returns what tells the most that the heap has had since, in MB, what is
// to be collected included.
func watchHeap() (peak func() float64) {
	var (
		most  uint64
		watch sync.WaitGroup
		end   = make(chan struct{})
	)
	look := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	watch.Go(func() {
		tick := time.NewTicker(heapPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-end:
				return
			}
		}
	})
	return func() float64 {
		close(end)
		watch.Wait()
		look()
		return float64(most) / 1e6
	}
}

// processorTime of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
