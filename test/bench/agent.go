// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/test/lab"
)

// wide are ranges for more pods than usual.
func wide(node int) []string {
	return []string{fmt.Sprintf("10.%d.0.0/20", 100+node), fmt.Sprintf("fd00:%d::/64", node)}
}

// measureAgent plugs in more and more pods, reads the agent's resident memory,
// and then starts the agent again on a switch without flows.
func measureAgent(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, PodCIDRs: wide})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	var results []Result
	pods := 0
	for _, want := range []int{0, 100, 450} {
		if err := addPods(ctx, n, pods, want); err != nil {
			return nil, err
		}
		pods = want
		rss, err := residentMiB(n.AgentPID())
		if err != nil {
			return nil, err
		}
		results = append(results, absolute(fmt.Sprintf("agent-rss-%d", want), "MiB", rss))
	}
	n.KillAgent()
	if _, err := n.OVS.Ofctl(ctx, "del-flows", "br-int"); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := n.StartAgent(ctx); err != nil {
		return nil, err
	}
	took := milliseconds(time.Since(start))
	return append(results, absolute(fmt.Sprintf("agent-start-%d", pods), "ms", took)), n.Check(ctx)
}

// addPods plugs pods number from to number to, eight at a time, and returns the last error.
func addPods(ctx context.Context, n *lab.Node, from, to int) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		last error
		work = make(chan int)
	)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				if _, err := n.AddPod(ctx, fmt.Sprintf("many-%d", i)); err != nil {
					mu.Lock()
					last = err
					mu.Unlock()
				}
			}
		})
	}
	for i := from; i < to; i++ {
		work <- i
	}
	close(work)
	wg.Wait()
	return last
}

// residentMiB reads how much memory a process has.
func residentMiB(pid int) (float64, error) { return memoryMiB(pid, "VmRSS") }

// peakMiB reads how much memory a process has had at most.
func peakMiB(pid int) (float64, error) { return memoryMiB(pid, "VmHWM") }

func memoryMiB(pid int, name string) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, name+": %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("process %d: no %s in its status", pid, name)
}
