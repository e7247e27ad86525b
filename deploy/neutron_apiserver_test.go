// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rendered is a file with what the chart makes of values.
func rendered(t *testing.T, values string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "-C", "../build/helm", "run", ".", "../../deploy/helm/coelan", "-")
	command.Stdin, command.Stderr = strings.NewReader(values), os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "coelan.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// With the backend neutron a controller writes one annotation of nodes, and nothing else of them.
func TestControllerOfNeutron(t *testing.T) {
	c := newCluster(t, rendered(t, `{"config": {"encapsulation": "geneve", "backend": {"type": "neutron"}},
		"neutron": {"endpoint": "http://192.0.2.1:9696/", "project": "p"}}`))
	controller, n := c.holder("coelan-controller", "worker1"), node("worker1")
	const denied = "a controller changes nothing of a node but"
	// Taking away what is not there changes nothing, so it would not be refused.
	if err := patch(n, annotations(map[string]any{"coelan.io/mtu": "1"}), "status")(t.Context(), c.admin); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	// Until the API server knows the policy, it takes all.
	for i := 1000; ; i++ {
		err := patch(n, annotations(map[string]any{"coelan.io/mtu": strconv.Itoa(i)}), "status")(ctx, controller)
		if refused(err, denied) {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the policy is not enforced: %v", err)
		}
	}
	own := annotations(map[string]any{"coelan.io/neutron-port": "u1"})
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{"zone": "a"}}}
	ready := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}
	for name, tc := range map[string]struct {
		do     write
		denied string
	}{
		"its annotation":      {patch(n, own, "status"), ""},
		"another annotation":  {patch(n, annotations(map[string]any{"coelan.io/network-config": "x"}), "status"), denied},
		"its annotation away": {patch(n, annotations(map[string]any{"coelan.io/neutron-port": nil}), "status"), ""},
		"another one away":    {patch(n, annotations(map[string]any{"coelan.io/mtu": nil}), "status"), denied},
		"a label":             {patch(n, labels, "status"), denied},
		"a condition":         {patch(n, ready, "status"), denied},
		"past the status":     {patch(n, own), "cannot patch resource"},
	} {
		t.Run(name, func(t *testing.T) {
			switch err := tc.do(t.Context(), controller); {
			case tc.denied == "" && err != nil:
				t.Error(err)
			case tc.denied != "" && (err == nil || !strings.Contains(err.Error(), tc.denied)):
				t.Errorf("%v, want a refusal: %s", err, tc.denied)
			}
		})
	}
	// The policy concerns controllers alone.
	if err := patch(n, ready, "status")(t.Context(), c.admin); err != nil {
		t.Error(err)
	}
}
