// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
)

// testPolicyRestarts restarts what enforces policies: what is denied stays denied, and what is
// allowed loses nothing. Without any controller an agent that starts enforces what it knew, and
// pods that no controller has told it about stay closed.
func testPolicyRestarts(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	policy(ctx, t, "web", "podSelector: {matchLabels: {server: web1}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]")
	policy(ctx, t, "other", "podSelector: {matchLabels: {app: other}}, policyTypes: [Egress]")
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.client1, web(stage.web1, f), true}, {stage.friend2, web(stage.web1, f), false}, {stage.other1, web(stage.web2, f), false},
		}
	})
	t.Cleanup(func() {
		if err := rollControllers(context.WithoutCancel(ctx), "2"); err != nil {
			t.Error(err)
		}
	})
	killed := func(ctx context.Context) error {
		return world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGKILL)
	}
	for _, r := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"agent killed (SIGKILL)", killed},
		{"controllers rolled", func(ctx context.Context) error { return rollControllers(ctx, "restart") }},
		{"no controller", func(ctx context.Context) error { return rollControllers(ctx, "0") }},
		{"agent killed (SIGKILL), no controller", killed},
	} {
		t.Run(r.name, func(t *testing.T) {
			received := map[string]mailbox{"from a pod of another node": listen(t, stage.web1, floodPort), "from a pod of its node": listen(t, stage.web2, floodPort)}
			flood(ctx, t, stage.friend2, stage.web1, floodPort)
			flood(ctx, t, stage.other1, stage.web2, floodPort)
			allowed := listen(t, stage.web1, floodPort+1)
			flood(ctx, t, stage.client2, stage.web1, floodPort+1)
			tr := startTraffic(ctx, t, route{way: sameNode, from: stage.client1, to: stage.web1}, route{way: otherNode, from: stage.client2, to: stage.web1})
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			tr.settle(ctx, t)
			allow(t, tr.stop(t), 0)
			for from, m := range received {
				for f, n := range m {
					if n.Load() > 0 {
						t.Errorf("%s, %s: %d packets came through", from, f, n.Load())
					}
				}
			}
			if err := allowed.every(); err != nil {
				t.Errorf("from a pod that may send: %v", err)
			}
		})
	}
	t.Run("pod without a controller", func(t *testing.T) {
		makePod(ctx, t, sleeper("policies/late", worker1))
		t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "policies/late") })
		if err := world.waitReady(ctx, "policies/late"); err != nil {
			t.Fatal(err)
		}
		late := world.pod(ctx, t, "policies/late")
		for _, f := range families {
			web(stage.web2, f).fails(ctx, t, late, silent)
		}
		out, err := world.coelan(ctx, "trace", "policies/late", "policies/web2:8080")
		if err != nil || !strings.Contains(out, "not known yet") {
			t.Errorf("trace: %v\n%s", err, out)
		}
		if err := rollControllers(ctx, "2"); err != nil {
			t.Fatal(err)
		}
		judge(ctx, t, func(f family) []try { return []try{{late, web(stage.web2, f), true}} })
	})
}

// rollControllers starts all controllers anew, or has as many as it says.
func rollControllers(ctx context.Context, to string) error {
	args := []string{"scale", "deployment/coelan-controller", "--replicas=" + to}
	if to == "restart" {
		args = []string{"rollout", "restart", "deployment/coelan-controller"}
	}
	if _, err := world.Kubectl(ctx, append([]string{"-n", agents}, args...)...); err != nil {
		return err
	}
	if to == "0" {
		_, err := world.Kubectl(ctx, "-n", agents, "wait", "--for=delete", "pod", "-l", controllerSelector, "--timeout=90s")
		return err
	}
	_, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s")
	return err
}

// flood sends a packet every few milliseconds in both families for as long as the test runs.
func flood(ctx context.Context, t *testing.T, from, to place, port uint16) {
	t.Helper()
	for _, f := range families {
		stop, err := flow(ctx, from, to.address(f), port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
}
