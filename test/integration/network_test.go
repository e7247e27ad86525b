// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// subnets are those of a Network.
func subnets(cidrs ...string) []v1alpha1.Subnet {
	var list []v1alpha1.Subnet
	for _, c := range cidrs {
		list = append(list, v1alpha1.Subnet{CIDR: c})
	}
	return list
}

// primary is the spec of a Network that the namespaces of a tenant have their pods on.
func primary(tenant string, cidrs ...string) v1alpha1.NetworkSpec {
	return v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Subnets: subnets(cidrs...),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": tenant}},
	}
}

// awaitNetwork waits until all agents have received a Network. A pod that starts before
// is on Network default.
func awaitNetwork(t *testing.T, w *world, name string) {
	t.Helper()
	ctx := within(t, time.Minute)
	for _, n := range w.Nodes {
		poll(ctx, t, func() bool {
			var known []agentapi.NetworkInfo
			if err := n.Query(ctx, "/v1/networks", &known); err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(known, func(i agentapi.NetworkInfo) bool { return i.Name == name })
		}, func() { t.Errorf("the agent of %s has not heard of Network %s", n.Name, name) })
	}
}

// addPod makes a pod in a namespace.
func addPod(t *testing.T, n *lab.Node, namespace, name string) *lab.Pod {
	t.Helper()
	return addPodAs(t, n, lab.PodSpec{Namespace: namespace, Name: name})
}

func addPodAs(t *testing.T, n *lab.Node, spec lab.PodSpec) *lab.Pod {
	t.Helper()
	p, err := n.AddPodAs(within(t, time.Minute), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// own is the address of a pod's eth0 as its neighbors know it.
func own(p *lab.Pod) func(lab.Family) netip.Addr {
	return func(f lab.Family) netip.Addr { return p.Own("eth0", f) }
}

// tenants is a cluster with the tenants red and blue, which use the same subnet, and
// the pods of world.
type tenants struct {
	*world
	red, blue [3]*lab.Pod // 0 and 1 on n1, 2 on n2
}

var tenantSubnets = []string{"10.50.0.0/24", "fd00:50::/64"}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	return startTenantsWith(t, lab.Options{})
}

func startTenantsWith(t *testing.T, o lab.Options) *tenants {
	t.Helper()
	w := &tenants{world: start(t, o)}
	for _, tenant := range []string{"red", "blue"} {
		w.API.AddNamespace(tenant, map[string]string{"tenant": tenant})
		w.API.AddNetwork(tenant, primary(tenant, tenantSubnets...))
		awaitNetwork(t, w.world, tenant)
	}
	for i, n := range []*lab.Node{w.n1, w.n1, w.n2} {
		w.red[i] = addPod(t, n, "red", []string{"r0", "r1", "r2"}[i])
		w.blue[i] = addPod(t, n, "blue", []string{"b0", "b1", "b2"}[i])
	}
	return w
}

// attempt is a ping that must not be answered.
type attempt struct {
	name string
	from *lab.Host
	to   netip.Addr
}

// unreachable fails the test if an address answers. All are tried at the same time.
func unreachable(t *testing.T, attempts ...attempt) {
	t.Helper()
	var wg sync.WaitGroup
	for _, a := range attempts {
		wg.Go(func() {
			r, err := (probe.Ping{Dst: a.to, Count: 2}).Run(t.Context(), a.from)
			if err != nil || r.Sent == 0 || r.Lost() < r.Sent {
				t.Errorf("%s: %s answers %d of %d, %v", a.name, a.to, len(r.Replies), r.Sent, err)
			}
		})
	}
	wg.Wait()
}

// TestTenantsWithTheSameSubnet has two tenants with pods of the same addresses.
func TestTenantsWithTheSameSubnet(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	ctx := within(t, 5*time.Minute)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		r0, r1, r2, b0 := w.red[0], w.red[1], w.red[2], w.blue[0]
		for _, p := range []path{
			{"red on its node", r0.Host, r1.Host, own(r1), own(r0)},
			{"red to another node", r0.Host, r2.Host, own(r2), own(r0)},
			{"red back", r2.Host, r0.Host, own(r0), own(r2)},
			{"red to its node", r0.Host, w.n1.Host, w.n1.Address, r0.Address},
			{"red to its node's gateway", r0.Host, w.n1.Host, w.n1.Gateway, r0.Address},
			{"red to another node's address", r0.Host, w.n2.Host, w.n2.Address, w.n1.Address},
			{"red to the internet", r0.Host, w.Outside, lab.Internet, w.n1.Address},
			{"blue to the internet", w.blue[2].Host, w.Outside, lab.Internet, w.n2.Address},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		for _, p := range []*lab.Pod{r0, b0} {
			if err := probeTo(ctx, path{"", w.n1.Host, p.Host, p.Address, w.n1.Gateway}, f, own(p)); err != nil {
				t.Errorf("node to its pod %s: %v", p.Name, err)
			}
		}
		unreachable(t, []attempt{
			{"red to blue's node address", r0.Host, b0.Address(f)},
			{"red to blue's node address on the other node", r0.Host, w.blue[2].Address(f)},
			{"default to red's node address", w.a.Host, r0.Address(f)},
			{"default on the other node to red's node address", w.c.Host, r0.Address(f)},
			{"default to red's own address", w.a.Host, r0.Own("eth0", f)},
			{"red to default", r0.Host, w.a.Address(f)},
			{"red to default on the other node", r0.Host, w.c.Address(f)},
		}...)
	})
	w.whole(ctx, t)
}

// TestTenantsAndServices has tenants reach Services with endpoints in the default network
// and in their own. The nodes' kernels translate the services' address, and know the tenants
// by their node addresses.
func TestTenantsAndServices(t *testing.T) {
	t.Parallel()
	w := startTenantsWith(t, lab.Options{Configure: proxiedServices})
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, tc := range []struct {
			name     string
			client   *lab.Pod
			endpoint *lab.Pod
			listen   netip.Addr
		}{
			{"endpoint in the default network", w.red[0], w.b, w.b.Address(f)},
			{"endpoint in the default network on another node", w.red[0], w.c, w.c.Address(f)},
			{"own endpoint", w.red[0], w.red[1], w.red[1].Own("eth0", f)},
			{"own endpoint on another node", w.red[0], w.red[2], w.red[2].Own("eth0", f)},
		} {
			t.Run(tc.name, func(t *testing.T) {
				expose(t, w.n1, "tcp", netip.AddrPortFrom(tc.endpoint.Address(f), 8083))
				serve(t, tc.endpoint, netip.AddrPortFrom(tc.listen, 8083), probe.WhoAmI)
				got, err := probe.Seen(t.Context(), tc.client, netip.AddrPortFrom(vip[f], 80))
				if err != nil || got.Addr() != tc.client.Address(f) {
					t.Errorf("the endpoint sees %s, want %s; %v", got.Addr(), tc.client.Address(f), err)
				}
			})
		}
		t.Run("tenant's endpoint for the default network", func(t *testing.T) {
			red := w.red[1]
			expose(t, w.n1, "tcp", netip.AddrPortFrom(red.Address(f), 8083))
			serve(t, red, netip.AddrPortFrom(red.Own("eth0", f), 8083), probe.WhoAmI)
			if got, err := probe.Seen(t.Context(), w.a, netip.AddrPortFrom(vip[f], 80)); err == nil {
				t.Errorf("a pod of the default network reaches the tenant as %s", got)
			}
		})
	})
}

// TestTenantsOutliveRestarts restarts agents, also without the API server, while tenants talk.
func TestTenantsOutliveRestarts(t *testing.T) {
	t.Parallel()
	w := startTenants(t)
	ctx := within(t, 5*time.Minute)
	restartUnder := func(name string, do func() error) {
		t.Helper()
		var streams []*probe.UDPStream
		var names []string
		for f := range lab.Dual.Each {
			for _, s := range []struct {
				name     string
				from, to *lab.Host
				dst, at  netip.Addr
			}{
				{"same node", w.red[0].Host, w.red[1].Host, w.red[1].Own("eth0", f), w.red[1].Own("eth0", f)},
				{"other node", w.blue[0].Host, w.blue[2].Host, w.blue[2].Own("eth0", f), w.blue[2].Own("eth0", f)},
				{"node to tenant", w.n1.Host, w.red[0].Host, w.red[0].Address(f), w.red[0].Own("eth0", f)},
				{"tenant to outside", w.red[0].Host, w.Outside, lab.Internet(f), lab.Internet(f)},
			} {
				port := uint16(7100 + len(streams))
				udp, err := probe.StartUDP(s.from, s.to, netip.AddrPortFrom(s.dst, port), netip.AddrPortFrom(s.at, port), probeInterval)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(udp.Close)
				streams, names = append(streams, udp), append(names, f.String()+" "+s.name)
			}
		}
		settle := func() {
			for i, u := range streams {
				if err := u.Wait(ctx, 30); err != nil {
					t.Errorf("%s: %s: %v", name, names[i], err)
				}
			}
		}
		settle()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		settle()
		for i, u := range streams {
			if r := u.Stop(); len(r.Lost) > 0 {
				t.Errorf("%s: %s: lost %d packets", name, names[i], len(r.Lost))
			}
		}
	}
	restartUnder("agent", func() error { w.n1.KillAgent(); return w.n1.StartAgent(ctx) })
	w.API.Stop()
	restartUnder("agent without API server", func() error { w.n1.KillAgent(); return w.n1.StartAgent(ctx) })
	// The tenants' blocks exist, so another pod needs no controller.
	late, err := w.n1.NewPodAs(lab.PodSpec{Namespace: "red", Name: "late"})
	if err == nil {
		err = late.Add(ctx)
	}
	if err != nil {
		t.Fatalf("a pod without the API server: %v", err)
	}
	for f := range lab.Dual.Each {
		if r := ping(t, late, probe.Ping{Dst: w.red[2].Own("eth0", f), Count: 3}); r.Lost() > 0 {
			t.Errorf("%s: a pod that started without the API server: %v", f, r.Errors)
		}
	}
	if err := w.API.Resume(); err != nil {
		t.Fatal(err)
	}
	restartUnder("agent with API server again", func() error { w.n1.StopAgent(); return w.n1.StartAgent(ctx) })
	w.whole(ctx, t)
}

// whole looks whether everything is as it should be on all nodes.
func (w *tenants) whole(ctx context.Context, t *testing.T) {
	t.Helper()
	checkAll(ctx, t, w.world)
	for _, p := range append(w.red[:], w.blue[:]...) {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
	}
}

func checkAll(ctx context.Context, t *testing.T, w *world) {
	t.Helper()
	for _, n := range w.Nodes {
		if err := n.Check(ctx); err != nil {
			t.Error(err)
		}
	}
}
