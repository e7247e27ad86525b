// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/sandbox"
)

// odlConfig is a configuration that runtimes take before the one that the agent installs.
const odlConfig = "/etc/cni/net.d/00-odl.conf"

// firstOfRange ends the first address that host-local gives by it.
const firstOfRange = 200

// TestCNIConfigurations has both workers' runtimes call odlovs-cni, as nodes of COE do, with
// addresses of the plugin host-local.
func TestCNIConfigurations(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	ranges := map[string]netip.Prefix{}
	for _, node := range world.WorkerNames() {
		ranges[node] = useODL(ctx, t, node)
	}
	for name, node := range map[string]string{"odl1": worker1, "odl2": worker2} {
		odlPod(ctx, t, name, node, ranges[node])
	}
	check := func() {
		t.Helper()
		for _, way := range [][2]string{
			{"odl1", "odl2"}, {"odl1", "web1"}, {"odl1", "web2"}, {"web1", "odl1"}, {"client2", "odl1"},
		} {
			from, to := world.pod(ctx, t, way[0]), world.pod(ctx, t, way[1])
			at := netip.AddrPortFrom(to.address(ipv4), webPort)
			if seen, err := clientOf(ctx, from, at); err != nil || seen != from.address(ipv4) {
				t.Errorf("%s to %s: seen as %s, %v; want %s", way[0], way[1], seen, err, from.address(ipv4))
			}
		}
	}
	check()
	if err := world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	check()
	removePods(ctx, t, "odl1", "odl2")
	for _, node := range world.WorkerNames() {
		out, err := world.Exec(ctx, node, "sh", "-c", "ls /var/lib/cni/networks/odl-cni | grep '^10' || true")
		if err != nil || strings.TrimSpace(string(out)) != "" {
			t.Errorf("%s: addresses of no pod: %s%v", node, out, err)
		}
	}
	world.healthy(ctx, t)
}

// useODL has a node's runtime call odlovs-cni until the test ends, and returns the node's range.
func useODL(ctx context.Context, t *testing.T, node string) netip.Prefix {
	t.Helper()
	n, err := world.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var of netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			of = p
		}
	}
	start := of.Addr().As4()
	start[3] = firstOfRange
	config := fmt.Sprintf(`{"cniVersion":"0.4.0","name":"odl-cni","type":"odlovs-cni","mgrPort":6640,"ovsBridge":"br-int",`+
		`"ipam":{"type":"host-local","subnet":%q,"rangeStart":%q,"routes":[{"dst":"0.0.0.0/0"}],"gateway":%q}}`,
		of, netip.AddrFrom4(start), world.gateway(ctx, t, node, ipv4))
	if _, err := world.Exec(ctx, node, "sh", "-ec", "echo '"+config+"' >"+odlConfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := world.Exec(context.WithoutCancel(ctx), node, "rm", "-f", odlConfig); err != nil {
			t.Error(err)
		}
	})
	return of
}

// odlPod makes a pod, as soon as the node's runtime has read the configuration.
func odlPod(ctx context.Context, t *testing.T, name, node string, of netip.Prefix) {
	t.Helper()
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, name) })
	for {
		makePod(ctx, t, webServer(name, node))
		if err := world.waitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
		a := world.pod(ctx, t, name).address(ipv4)
		if of.Contains(a) && a.As4()[3] >= firstOfRange {
			return
		}
		removePods(ctx, t, name)
	}
}
