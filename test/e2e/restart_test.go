// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"coelan.io/coelan/internal/sandbox"
)

// ovsGap is the longest interruption by a restart of Open vSwitch.
const ovsGap = 2 * time.Second

// testRestarts restarts parts of the first worker, or the agents of all nodes, under traffic. No
// pod may be restarted by it.
func testRestarts(t *testing.T) {
	restart := func(component string, signal syscall.Signal) func(context.Context) error {
		return func(ctx context.Context) error { return world.Restart(ctx, worker1, component, signal) }
	}
	for _, r := range []struct {
		name string
		do   func(context.Context) error
		// gap is the longest interruption allowed; 0: not one packet may be lost.
		gap time.Duration
	}{
		{name: "agent killed (SIGKILL)", do: restart(sandbox.Agent, syscall.SIGKILL)},
		{name: "agents rolled", do: world.roll},
		{name: "agent stuck", do: stick},
		{name: "ovs-vswitchd killed (SIGKILL)", do: restart("ovs-vswitchd", syscall.SIGKILL), gap: ovsGap},
		{name: "ovsdb-server and ovs-vswitchd killed", do: restart(sandbox.OVS, syscall.SIGKILL), gap: ovsGap},
		{name: "ovsdb-server and ovs-vswitchd stopped and started", do: restart(sandbox.OVS, syscall.SIGTERM), gap: ovsGap},
	} {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 4*time.Minute)
			before := world.containers(ctx, t)
			tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
			began := time.Now()
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			tr.settle(ctx, t)
			took := time.Since(began)
			outcomes := tr.stop(t)
			allow(t, outcomes, r.gap)
			world.healthy(ctx, t)
			if diff := cmp.Diff(before, world.containers(ctx, t)); diff != "" {
				t.Errorf("containers (-before +after): %s", diff)
			}
			measured.add(t, r.name, took, outcomes)
		})
	}
}

// stick stops worker1's agent without ending it, and waits until kubelet has started it anew
// because its liveness probe fails. Kubelet takes two minutes for that by itself, so the agent has
// another probe for as long.
func stick(ctx context.Context) (err error) {
	var before appsv1.DaemonSetSpec
	change := func(ctx context.Context, change func(*appsv1.DaemonSetSpec)) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			api := world.api.AppsV1().DaemonSets(agents)
			d, err := api.Get(ctx, "coelan-agent", metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(&d.Spec)
			_, err = api.Update(ctx, d, metav1.UpdateOptions{})
			return err
		})
	}
	second := int64(1)
	if err := change(ctx, func(d *appsv1.DaemonSetSpec) {
		d.DeepCopyInto(&before)
		d.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		probe := d.Template.Spec.Containers[0].LivenessProbe
		probe.PeriodSeconds, probe.TimeoutSeconds, probe.FailureThreshold = 1, 2, 2
		probe.TerminationGracePeriodSeconds = &second
	}); err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, change(ctx, func(d *appsv1.DaemonSetSpec) { *d = before }))
		if err == nil {
			_, err = world.Kubectl(ctx, "-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s")
		}
	}()
	if err := world.Stop(ctx, worker1, sandbox.Agent, syscall.SIGTERM); err != nil {
		return err
	}
	if err := world.Start(ctx, worker1, sandbox.Agent); err != nil {
		return err
	}
	return world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGSTOP)
}

// roll replaces the agents of all nodes, as an upgrade does.
func (c *cluster) roll(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "-n", agents, "rollout", "restart", "daemonset/coelan-agent")
	if err == nil {
		_, err = c.Kubectl(ctx, "-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s")
	}
	return err
}
