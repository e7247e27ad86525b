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

	"coelan.io/coelan/internal/sandbox"
)

// TestBackend is what a backend other than Open vSwitch alone has to do, which the other tests show
// of that one: BACKEND=ovn (or neutron) make e2e RUN='^TestBackend$'.
func TestBackend(t *testing.T) {
	if backend == sandbox.OVSBackend {
		t.Skip("the other tests are about this backend; BACKEND=ovn and BACKEND=neutron choose others")
	}
	inOrder(t, []step{
		{"reach", testReach},
		{"names", testNames},
		{"kubectl", testKubectl},
		{"check", testBackendCheck},
		{"policies", testBackendPolicies},
		{"detours", attackDetours},
		{"restarts", testBackendRestarts},
	})
}

// testBackendCheck has `coelan check` find nothing, and no object be something that OVN cannot do.
func testBackendCheck(t *testing.T) {
	world.healthy(within(t, 2*time.Minute), t)
}

// testBackendPolicies isolates servers, lets one client in, and lets all in again.
func testBackendPolicies(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	reaches := func(client string, open bool) {
		t.Helper()
		err := eventually(ctx, func() error {
			switch err := ask(ctx, t, client, "web2"); {
			case open:
				return err
			case err == nil:
				return fmt.Errorf("%s reaches web2", client)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if !open {
			if err := ask(ctx, t, client, "web2"); err == nil {
				t.Errorf("%s reaches web2 again", client)
			}
		}
	}
	fabric := world.machine(ctx, t, "fabric")
	byNodePort := func(open bool) {
		t.Helper()
		for _, node := range []string{worker1, worker2} {
			for _, f := range families {
				at := netip.AddrPortFrom(world.nodeAddress(ctx, t, node, f), 30080)
				err := eventually(ctx, func() error {
					switch _, err := get(ctx, fabric, at, "/hostname"); {
					case open:
						return err
					case err == nil:
						return fmt.Errorf("the outside reaches web1 at %s", at)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				// While a policy comes into effect nothing may pass, whatever it says.
				if !open {
					if _, err := get(ctx, fabric, at, "/hostname"); err == nil {
						t.Errorf("the outside reaches web1 at %s again", at)
					}
				}
			}
		}
	}
	reaches("client1", true)
	byNodePort(true)
	apply(ctx, t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolated, namespace: e2e}
spec:
  podSelector: {matchExpressions: [{key: server, operator: In, values: [web1, web2]}]}
  policyTypes: [Ingress]
  ingress:
    - from: [{podSelector: {matchLabels: {server: client2}}}]
      ports: [{port: 8080}]
`)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", namespace, "networkpolicy", "isolated") })
	reaches("client1", false)
	reaches("client2", true)
	byNodePort(false)
	// Its own node's processes reach it, as kubelet's probes do.
	own := world.pod(ctx, t, "web1")
	for _, f := range families {
		if _, err := get(ctx, world.machine(ctx, t, worker1), netip.AddrPortFrom(own.address(f), webPort), "/hostname"); err != nil {
			t.Errorf("the node to its own pod: %v", err)
		}
	}
	remove(ctx, t, "-n", namespace, "networkpolicy", "isolated")
	reaches("client1", true)
	byNodePort(true)
}

// testBackendRestarts kills the parts of OVN and of Coelan one after the other under traffic, and
// attaches a pod after each. Within a node no packet is lost, and between nodes none by what is
// killed on other nodes.
func testBackendRestarts(t *testing.T) {
	kill := func(machine, component string) func(context.Context) error {
		return func(ctx context.Context) error { return world.Restart(ctx, machine, component, syscall.SIGKILL) }
	}
	type restart struct {
		name string
		do   func(context.Context) error
		gap  time.Duration
	}
	restarts := []restart{
		{"agent killed", kill(worker1, sandbox.Agent), ovsGap},
		{"ovn-northd killed", kill(control, "ovn-northd"), 0},
		{"northbound database killed", kill(control, "ovn-nb"), 0},
		{"southbound database killed", kill(control, "ovn-sb"), 0},
		{"ovn-controller killed", kill(worker1, "ovn-controller"), ovsGap},
		{"controllers killed", world.killControllers, 0},
	}
	if backend == sandbox.NeutronBackend {
		restarts = append(restarts, restart{"neutron-server killed", kill(control, "neutron-server"), 0},
			restart{"Neutron's database killed", kill(control, "mariadb"), 0})
	}
	for _, r := range restarts {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 4*time.Minute)
			tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			makePod(ctx, t, webServer("later", worker1))
			if err := world.waitReady(ctx, "later"); err != nil {
				t.Error(err)
			}
			tr.settle(ctx, t)
			undisturbed(t, tr, r.gap)
			removePods(ctx, t, "later")
			world.healthy(ctx, t)
		})
	}
}

// killControllers ends all controllers without notice. Others take their place.
func (c *cluster) killControllers(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "-n", agents, "delete", "pod", "--force", "--grace-period=0", "--wait=false",
		"-l", "app.kubernetes.io/component=controller")
	return err
}

// undisturbed ends traffic and reports what it has lost: on one node nothing may be, and between
// nodes an interruption is allowed to last for the gap; with 0 nothing may be lost there, either.
func undisturbed(t *testing.T, tr *traffic, gap time.Duration) {
	t.Helper()
	near, far := map[string]outcome{}, map[string]outcome{}
	for way, o := range tr.stop(t) {
		if strings.HasPrefix(way, sameNode) {
			near[way] = o
		} else {
			far[way] = o
		}
	}
	allow(t, near, 0)
	allow(t, far, gap)
}
