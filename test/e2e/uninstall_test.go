// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

// TestUninstall removes Coelan as docs/operate/install.md says and looks for what it left.
func TestUninstall(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	deploy := filepath.Join(filepath.Dir(world.program), "../deploy")
	for _, args := range [][]string{
		{"delete", "namespace", namespace, "--timeout=120s"},
		{"apply", "-f", filepath.Join(deploy, "uninstall.yaml")},
		{"-n", agents, "rollout", "status", "daemonset/coelan-agent", "--timeout=120s"},
		{"-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s"},
	} {
		if _, err := world.Kubectl(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range world.Nodes() {
		for _, left := range []struct{ name, command string }{
			{"bridge", "ovs-vsctl br-exists br-int && echo br-int || true"},
			{"interfaces", "ip -br link | grep -E '^(co[0-9a-f]{12}|coelan|br-int)' || true"},
			{"routes", "{ ip route; ip -6 route; } | grep -E '^(10\\.244\\.|fd00:10:244:)' || true"},
			{"nftables", "nft list tables | grep -w 'coelan$' || true"},
			{"CNI configuration", "ls /etc/cni/net.d | grep coelan || true"},
			{"CNI plugin", "ls /opt/cni/bin | grep coelan || true"},
			{"state", "ls -A /var/lib/coelan | grep -vx api-server || true"},
			{"sockets", "ls -A /run/coelan || true"},
		} {
			out, err := world.Exec(ctx, node, "bash", "-c", left.command)
			if err != nil || len(out) > 0 {
				t.Errorf("%s: %s left behind: %s%v", node, left.name, out, err)
			}
		}
	}
	if _, err := world.Kubectl(ctx, "delete", "-f", filepath.Join(deploy, "coelan.yaml"), "--timeout=120s"); err != nil {
		t.Error(err)
	}
}
