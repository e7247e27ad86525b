// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// shared is a tenant with a Router that exchanges routes with the Router default: one address space
// with the cluster's pods.
const shared = `
apiVersion: coelan.io/v1alpha1
kind: Router
metadata: {name: green}
spec: {importRouteTargets: ["64512:1"], exportRouteTargets: ["64512:1"]}
---
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: green}
spec:
  role: Primary
  router: green
  namespaceSelector: {matchLabels: {tenant: green}}
  subnets: [{cidr: 10.52.0.0/16}, {cidr: "fd00:52::/64"}]
`

// testShared has pods on a Network of their own that all pods and nodes reach, as Kubernetes
// requires of pods: by the addresses that they have, from pods and nodes, and themselves Services,
// nodes and the outside.
func testShared(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	t.Cleanup(func() {
		remove(context.WithoutCancel(ctx), t, "networks.coelan.io", "green")
		remove(context.WithoutCancel(ctx), t, "routers.coelan.io", "green")
	})
	apply(ctx, t, shared)
	makeNamespace(ctx, t, "green", "tenant: green")
	makePod(ctx, t, webServer("green/web1", worker1))
	makePod(ctx, t, webServer("green/web2", worker2))
	if err := world.waitReady(ctx, "green/web1", "green/web2"); err != nil {
		t.Fatal(err)
	}
	green1, green2 := world.pod(ctx, t, "green/web1"), world.pod(ctx, t, "green/web2")
	if !slices.Equal(green1.addresses, green1.on(t, "eth0")) || !netip.MustParsePrefix("10.52.0.0/16").Contains(green1.address(ipv4)) {
		t.Errorf("podIPs %v, eth0 has %v", green1.addresses, green1.on(t, "eth0"))
	}
	for _, f := range families {
		port := func(p place, number uint16) netip.AddrPort { return netip.AddrPortFrom(p.address(f), number) }
		service := netip.AddrPortFrom(world.serviceAddress(ctx, t, "web2", f), 80)
		client1, web1, host1 := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web1"), world.pod(ctx, t, "host1")
		node1, node2 := world.machine(ctx, t, worker1), world.machine(ctx, t, worker2)
		for _, w := range []way{
			{name: "in the Network", from: green1, server: port(green2, webPort), seen: green1.address(f)},
			{name: "from the default network, same node", from: client1, server: port(green1, webPort), seen: client1.address(f)},
			{name: "from the default network, other node", from: client1, server: port(green2, webPort), seen: client1.address(f)},
			{name: "to the default network, same node", from: green1, server: port(web1, webPort), seen: green1.address(f)},
			{name: "to the default network, other node", from: green2, server: port(web1, webPort), seen: green2.address(f)},
			{name: "from its node", from: node1, server: port(green1, webPort)},
			{name: "from another node", from: node2, server: port(green1, webPort)},
			{name: "to its node", from: green1, server: port(host1, 8082), seen: green1.address(f)},
			{name: "to the outside", from: green1, server: netip.AddrPortFrom(outside(f), 80), seen: node1.address(f)},
			// With kube-proxy, a client outside of its clusterCIDR is hidden behind the node.
			{name: "to a Service", from: green1, server: service, service: true},
		} {
			t.Run(string(f)+" "+w.name, func(t *testing.T) { w.check(ctx, t) })
		}
		closed(ctx, t, world.tenant(ctx, t, "red/client1"), port(green1, webPort))
	}
}
