// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/sandbox"
)

// ovsGap is the longest interruption by a restart of Open vSwitch.
const ovsGap = 2 * time.Second

// testRestarts restarts parts of the first worker, or the agents of all nodes, under traffic. No pod may be restarted
// by it.
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
		{name: "agents rolled", do: roll},
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

// roll replaces the agents of all nodes, as an upgrade does.
func roll(ctx context.Context) error {
	_, err := world.Kubectl(ctx, "-n", agents, "rollout", "restart", "daemonset/coelan-agent")
	if err == nil {
		_, err = world.Kubectl(ctx, "-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s")
	}
	return err
}
