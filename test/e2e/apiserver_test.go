// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// apiPause is how long the API server is away.
const apiPause = 30 * time.Second

// testWithoutAPIServer takes the API server away for half a minute. Traffic must not notice, not
// even that the agent of its node is killed meanwhile. A pod gets a new sandbox from its kubelet if
// that dies meanwhile, as one that is made afterward gets its first. These pods are on a node where
// no traffic is: with each new interface the userspace datapath of Open vSwitch forgets the routes
// of its tunnels for a moment.
func testWithoutAPIServer(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	makePod(ctx, t, sleeper("victim", control))
	old, err := world.waitPod(ctx, "victim", ready)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := world.AgentPod(ctx, worker1)
	if err != nil {
		t.Fatal(err)
	}
	kill := func(node, id string) {
		if _, err := world.Exec(ctx, node, "ctr", "tasks", "kill", "--signal", strconv.Itoa(int(syscall.SIGKILL)), id); err != nil {
			t.Error(err)
		}
	}
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	if err := world.Stop(ctx, control, "kube-apiserver", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	back := time.NewTimer(apiPause)
	defer back.Stop()
	kill(worker1, strings.TrimPrefix(containerID(agent), "containerd://"))
	out, err := world.Exec(ctx, control, "ctr", "containers", "list", "-q",
		`labels."io.kubernetes.pod.uid"==`+string(old.UID)+`,labels."io.cri-containerd.kind"==sandbox`)
	if err != nil {
		t.Fatal(err)
	}
	kill(control, strings.TrimSpace(string(out)))
	select {
	case <-back.C:
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	if err := world.Start(ctx, control, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	again, err := world.waitPod(ctx, "victim", func(p *corev1.Pod) bool { return ready(p) && containerID(p) != containerID(old) })
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	// kubelet asks for news at growing intervals when it could not: it may see this pod
	// only a minute later.
	makePod(ctx, t, sleeper("late", control))
	if err := world.waitReady(ctx, "late"); err != nil {
		t.Error(err)
	}
	if started := again.Status.ContainerStatuses[0].State.Running.StartedAt; started.After(began) {
		t.Errorf("the pod whose sandbox died started %s after the API server was back, want before", started.Sub(began))
	}
	// Nothing tells when the controllers have seen the new pod and its node knows its policies.
	patient, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, name := range []string{"late", "victim"} {
		if err := eventually(patient, func() error { return ask(patient, t, name, "web2") }); err != nil {
			t.Error(err)
		}
	}
	tr.settle(ctx, t)
	outcomes := tr.stop(t)
	allow(t, outcomes, 0)
	world.healthy(ctx, t)
	measured.add(t, "API server away for 30 s, agent killed meanwhile", took, outcomes)
	removePods(ctx, t, "late", "victim")
}
