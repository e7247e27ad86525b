// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"
	"slices"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
)

//go:embed testdata/services.yaml
var servicesManifest string

const servicesNamespace = "services"

// field is where the tests of Services play: looked up once, since they run at the same time.
type field struct {
	echo1, echo2     place // the servers, one on each worker; only in TestServices
	client1, client2 place // pods, one on each worker
	host1, host2     place // processes of the workers
	cp, fabric       place // of the control plane's machine, and outside of the cluster
	red, blue        place // pods of tenants
}

var pitch field

func newField(ctx context.Context, t *testing.T) field {
	t.Helper()
	return field{
		client1: world.pod(ctx, t, "client1"), client2: world.pod(ctx, t, "client2"),
		host1: world.machine(ctx, t, worker1), host2: world.machine(ctx, t, worker2),
		cp: world.machine(ctx, t, control), fabric: world.machine(ctx, t, "fabric"),
		red: world.tenant(ctx, t, "red/client1"), blue: world.tenant(ctx, t, "blue/shop1"),
	}
}

// TestServices is all tests of Services without kube-proxy. Those that follow each
// other disturb the cluster.
func TestServices(t *testing.T) {
	ctx := within(t, 12*time.Minute)
	useServices(ctx, t, sandbox.NativeServices)
	apply(ctx, t, servicesManifest)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "namespace", servicesNamespace) })
	if err := world.waitReady(ctx, "services/echo1", "services/echo2", "services/hosted", "services/leaving"); err != nil {
		t.Fatal(err)
	}
	pitch = newField(ctx, t)
	pitch.echo1, pitch.echo2 = world.pod(ctx, t, "services/echo1"), world.pod(ctx, t, "services/echo2")
	apply(ctx, t, servicesPool)
	t.Run("all kinds", func(t *testing.T) {
		for _, s := range []step{
			{"no kube-proxy", testNoKubeProxy},
			{"ClusterIP", testClusterIP},
			{"one family", testOneFamily},
			{"NodePort", testNodePort},
			{"external IPs", testExternalIPs},
			{"ExternalName and headless", testNamesOnly},
			{"LoadBalancer", testLoadBalancer},
			{"source ranges", testSourceRanges},
			{"mode Proxy", testModeProxy},
			{"affinity", testAffinity},
			{"internal policy Local", testInternalLocal},
			{"external policy Local", testExternalLocal},
			{"nearest zone", testNearestZone},
			{"not ready", testNotReady},
			{"terminating", testTerminating},
			{"without selector", testWithoutSelector},
			{"host network", testHostNetwork},
			{"nobody there", testNobodyThere},
			{"stale UDP", testStaleUDP},
			{"tenants", testTenantsServices},
			{"refused", testRefusedServices},
		} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t)
			})
		}
	})
	if t.Failed() {
		world.report(t)
	}
	removePods(ctx, t, servicesNamespace+"/unready") // what follows waits for all pods
	inOrder(t, []step{
		{"agent restarted", testServicesRestart},
		{"node lost", testNodeLost},
	})
}

// useServices has Services balanced by Coelan or by kube-proxy, on all nodes: agents start anew. No
// packet between pods, or from them to the outside, may be lost by it.
func useServices(ctx context.Context, t *testing.T, mode sandbox.Services) {
	t.Helper()
	if world.Services == mode {
		return
	}
	routes := slices.DeleteFunc(podRoutes(ctx, t), func(r route) bool { return r.way == toService })
	tr := startTraffic(ctx, t, routes...)
	began := time.Now()
	s, err := sandbox.Up(ctx, sandbox.Spec{Name: world.Name, Services: mode}, sandbox.Install{}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	world.Sandbox = s
	tr.settle(ctx, t)
	took := time.Since(began)
	outcomes := tr.stop(t)
	allow(t, outcomes, 0)
	measured.add(t, "Services by "+world.Balancer()+" from now on", took, outcomes)
}
