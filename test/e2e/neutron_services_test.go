// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testNeutronServices has Services with endpoints that are written by hand, or never get ready.
func testNeutronServices(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	apply(ctx, t, servicesManifest)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "namespace", servicesNamespace) })
	pitch = newField(ctx, t)
	t.Run("not ready", testNotReady)
	t.Run("without selector", testWithoutSelector)
}

// testServiceVariables has a container reach a Service by the environment variables that kubelet
// makes of the Services of its namespace.
func testServiceVariables(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	const key, name = namespace + "/variables", "variables"
	makePod(ctx, t, sleeper(key, worker1))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, key) })
	if err := world.waitReady(ctx, key); err != nil {
		t.Fatal(err)
	}
	out, err := world.Kubectl(ctx, "-n", namespace, "exec", name, "--", "env")
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]string{
		"WEB_SERVICE_HOST": world.serviceAddress(ctx, t, "web", ipv4).String(), "WEB_SERVICE_PORT": "80",
		"WEB1_SERVICE_HOST": world.serviceAddress(ctx, t, "web1", ipv4).String(),
	} {
		if !strings.Contains("\n"+string(out), "\n"+variable+"="+want+"\n") {
			t.Errorf("%s is not %s in the environment:\n%s", variable, want, out)
		}
	}
	err = eventually(ctx, func() error {
		out, err := world.Kubectl(ctx, "-n", namespace, "exec", name, "--", "sh", "-c",
			`curl -sS --max-time 5 "http://$WEB1_SERVICE_HOST:$WEB1_SERVICE_PORT/hostname"`)
		if err == nil && strings.TrimSpace(string(out)) != "web1" {
			err = fmt.Errorf("%q answers, want web1", out)
		}
		return err
	})
	if err != nil {
		t.Errorf("by the variables of web1: %v", err)
	}
}
