// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/sandbox"
)

// testReboots cuts the power of a worker, and then twice of the whole cluster. Pods of other nodes
// notice nothing of the first; after all of them all pods reach each other again.
func testReboots(t *testing.T) {
	t.Run("one node", func(t *testing.T) {
		ctx := within(t, 4*time.Minute)
		routes := []route{
			{way: sameNode, from: world.pod(ctx, t, "client2"), to: world.pod(ctx, t, "web2")},
			{way: toOutside, from: world.pod(ctx, t, "client2"), to: world.machine(ctx, t, "fabric")},
		}
		tr := startTraffic(ctx, t, routes...)
		took := reboot(ctx, t, worker1)
		outcomes := tr.stop(t)
		allow(t, outcomes, 0)
		measured.add(t, "node rebooted; traffic of another", took, outcomes)
	})
	for _, name := range []string{"all nodes rebooted", "all nodes rebooted again"} {
		t.Run(name, func(t *testing.T) {
			took := reboot(within(t, 6*time.Minute), t, sandbox.All)
			measured.add(t, name, took, nil)
		})
	}
}

// reboot returns how long it took until all pods that went down ran again and all
// pods reached each other.
func reboot(ctx context.Context, t *testing.T, node string) time.Duration {
	t.Helper()
	before := containerIDs(ctx, t)
	began := time.Now()
	if err := world.Restart(ctx, node, sandbox.Node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, name := range podNames {
		gone := node == sandbox.All || strings.HasSuffix(name, strings.TrimPrefix(node, "worker"))
		if _, err := world.waitPod(ctx, name, func(p *corev1.Pod) bool {
			return ready(p) && (!gone || containerID(p) != before[name])
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := eventually(ctx, func() error { return allReach(ctx, t) }); err != nil {
		t.Errorf("after the reboot of %s: %v", node, err)
	}
	took := time.Since(began)
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s"); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
	testReach(t)
	return took
}

func containerID(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

func containerIDs(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for _, name := range podNames {
		p, err := world.waitPod(ctx, name, ready)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = containerID(p)
	}
	return ids
}

// allReach returns the first error of the pods' ways.
func allReach(ctx context.Context, t *testing.T) error {
	t.Helper()
	for _, f := range families {
		for _, w := range ways(ctx, t, f) {
			if _, err := clientOf(ctx, w.from, w.server); err != nil {
				return err
			}
		}
	}
	return nil
}
