// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
)

// openStackServers are what Neutron and Octavia on OVN are made of, on the control plane's node.
var openStackServers = []string{
	"ovn-nb", "ovn-sb", "ovn-northd", "mariadb", "neutron-server", "octavia-driver-agent", "octavia-api",
}

// TestOpenStackReboots kills what Neutron and Octavia are made of under traffic, while pods come
// and go: BACKEND=neutron make e2e RUN='^TestOpenStackReboots$'. Running pods lose no packet, new
// ones start, a load balancer serves, and nothing is there twice, or left over.
func TestOpenStackReboots(t *testing.T) {
	if backend != sandbox.NeutronBackend {
		t.Skip("BACKEND=neutron chooses the backend that this is about")
	}
	makeBalanced(within(t, 30*time.Minute), t)
	inOrder(t, []step{
		{"each", func(t *testing.T) {
			underOpenStackReboots(t, func(ctx context.Context) error {
				for _, server := range openStackServers {
					if err := world.Restart(ctx, control, server, syscall.SIGKILL); err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{"all together", func(t *testing.T) {
			underOpenStackReboots(t, func(ctx context.Context) error {
				for _, server := range openStackServers {
					if err := world.Stop(ctx, control, server, syscall.SIGKILL); err != nil {
						return err
					}
				}
				for _, server := range openStackServers {
					if err := world.Start(ctx, control, server); err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{"control plane", func(t *testing.T) {
			underOpenStackReboots(t, func(ctx context.Context) error {
				return world.Restart(ctx, control, sandbox.Node, syscall.SIGKILL)
			})
		}},
	})
}

// underOpenStackReboots has pods come before a fault and after it, and go.
func underOpenStackReboots(t *testing.T, fault func(context.Context) error) {
	ctx := within(t, 8*time.Minute)
	awaitReadyPorts(ctx, t)
	clients := []place{world.pod(ctx, t, "client1"), world.pod(ctx, t, "client2")}
	address := awaitBalanced(ctx, t, clients, octaviaServers...)
	before, err := openStackPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := openStackResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	var names []string
	come := func(when string) {
		for i := range 6 {
			names = append(names, fmt.Sprintf("%s%d", when, i))
			makePod(ctx, t, webServer(names[len(names)-1], []string{worker1, worker2}[i%2]))
		}
	}
	clean := sync.OnceFunc(func() { removePods(context.WithoutCancel(ctx), t, names...) })
	t.Cleanup(clean)
	come("before")
	if err := fault(ctx); err != nil {
		t.Fatal(err)
	}
	come("after")
	if err := world.waitReady(ctx, names...); err != nil {
		t.Error(err)
	}
	pods := map[netip.Addr]string{}
	for _, name := range names {
		for _, a := range world.pod(ctx, t, name).addresses {
			pods[a] = name
		}
		if err := ask(ctx, t, "client1", name); err != nil {
			t.Error(err)
		}
	}
	if err := eventually(ctx, func() error { return portsOf(ctx, pods, before) }); err != nil {
		t.Error(err)
	}
	clean()
	if err := eventually(ctx, func() error {
		now, err := openStackPorts(ctx)
		if left := slices.DeleteFunc(plugged(now), func(a netip.Addr) bool {
			return pods[a] == "" || slices.Contains(plugged(before), a)
		}); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("ports of pods that are gone are plugged: %v", left))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	tr.settle(ctx, t)
	undisturbed(t, tr, 0)
	if now := awaitBalanced(ctx, t, clients, octaviaServers...); now != address {
		t.Errorf("the load balancer had the address %s, now %s", address, now)
	}
	if err := eventually(ctx, func() error { return sameResources(ctx, resources) }); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
}

// plugged are the addresses of ports that OVN has connected.
func plugged(ports []openStackPort) []netip.Addr {
	addresses := map[netip.Addr]bool{}
	for _, p := range ports {
		for _, fixed := range p.Listed {
			if p.Status == "ACTIVE" {
				addresses[fixed.Address] = true
			}
		}
	}
	return slices.Collect(maps.Keys(addresses))
}
