// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
)

// octaviaNamespace is that of the Service that has a load balancer of Octavia, and of its servers.
const octaviaNamespace = "octavia"

// octaviaServers are the Service's, one on each worker.
var octaviaServers = []string{"one", "two"}

// TestOctavia has a Service of the class coelan.io/octavia, with a real Octavia and its provider
// ovn: BACKEND=neutron make e2e RUN='^TestOctavia$'.
func TestOctavia(t *testing.T) {
	if backend != sandbox.NeutronBackend {
		t.Skip("BACKEND=neutron chooses the backend that this is about")
	}
	ctx := within(t, 20*time.Minute)
	makeBalanced(ctx, t)
	makeMachineNetwork(ctx, t)
	clients := []place{
		world.pod(ctx, t, "client1"), world.pod(ctx, t, "client2"),
		makeClientMachine(ctx, t, "machine", "net-cloud"), makeClientMachine(ctx, t, "foreign", "sandbox-balancers"),
	}
	inOrder(t, []step{
		{"served", func(t *testing.T) { awaitBalanced(within(t, 3*time.Minute), t, clients, octaviaServers...) }},
		{"readiness", func(t *testing.T) { testBalancedReadiness(t, clients) }},
		{"deleted by hand", func(t *testing.T) { testBalancedByHand(t, clients) }},
		{"removed", testBalancedRemoved},
	})
}

// makeBalanced makes the Service and its servers, for as long as the test runs.
func makeBalanced(ctx context.Context, t *testing.T) {
	t.Helper()
	apply(ctx, t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+octaviaNamespace+"}}")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		remove(ctx, t, "namespace", octaviaNamespace)
		if err := eventually(ctx, func() error { return nothingBalanced(ctx) }); err != nil {
			t.Error(err)
		}
	})
	for i, name := range octaviaServers {
		p := sleeper(octaviaNamespace+"/"+name, []string{worker1, worker2}[i])
		p.Labels = map[string]string{"app": "balanced"}
		c := &p.Spec.Containers[0]
		c.Args = []string{"netexec", fmt.Sprintf("--http-port=%d", tcpPort), fmt.Sprintf("--udp-port=%d", udpPort)}
		c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "! test -e /tmp/unready"}},
		}}
		makePod(ctx, t, p)
	}
	s := of(dualService("balanced", "balanced"), func(s *corev1.ServiceSpec) {
		loadBalancer(s)
		s.LoadBalancerClass = new(v1alpha1.OctaviaClass)
		s.IPFamilyPolicy, s.IPFamilies = nil, []corev1.IPFamily{corev1.IPv4Protocol}
	})
	s.Namespace = octaviaNamespace
	if _, err := world.api.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := world.waitReady(ctx, octaviaNamespace+"/one", octaviaNamespace+"/two"); err != nil {
		t.Fatal(err)
	}
}

// makeClientMachine has OpenStack make a port for a machine of its own, on a worker and a network
// that the pods' router has.
func makeClientMachine(ctx context.Context, t *testing.T, name, network string) place {
	t.Helper()
	var port openStackPort
	patient, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := eventually(patient, func() error { // until the network is there
		out, err := openStack(ctx, "port", "create", "--network", network, "--host", worker2, "-f", "json", name)
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &port)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = openStack(context.WithoutCancel(ctx), "port", "delete", name) })
	return plugMachine(ctx, t, worker2, name, port)
}

// awaitBalanced waits until the load balancer is as it should be, and returns its address, at which
// just these servers answer all clients over TCP and over UDP.
func awaitBalanced(ctx context.Context, t *testing.T, clients []place, want ...string) (address netip.Addr) {
	t.Helper()
	if err := eventually(ctx, func() (err error) {
		if address, err = balancedAddress(ctx); err != nil {
			return err
		}
		if err := balancedWhole(ctx, len(want)); err != nil {
			return err
		}
		for _, from := range clients {
			for _, p := range tcpAndUDP {
				q := question{p, netip.AddrPortFrom(address, frontPort)}
				got, err := q.servers(ctx, from)
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("%v answer, want %v", got, want)
				}
				if err != nil {
					return fmt.Errorf("%s asks %s: %w", from.name, q, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return address
}

// balancedAddress is the address that the Service has.
func balancedAddress(ctx context.Context) (netip.Addr, error) {
	s, err := world.api.CoreV1().Services(octaviaNamespace).Get(ctx, "balanced", metav1.GetOptions{})
	if err != nil {
		return netip.Addr{}, err
	}
	ingress := s.Status.LoadBalancer.Ingress
	if len(ingress) != 1 {
		return netip.Addr{}, fmt.Errorf("the Service has the addresses %v, want one", ingress)
	}
	return netip.ParseAddr(ingress[0].IP)
}

// balancedWhole is an objection unless Octavia has one load balancer with a listener and a pool for
// each port of the Service, with so many members, and the one port of its address.
func balancedWhole(ctx context.Context, members int) error {
	for collection, want := range map[string]int{"loadbalancers": 1, "listeners": len(tcpAndUDP), "pools": len(tcpAndUDP)} {
		list, err := octaviaList(ctx, collection)
		if err != nil {
			return err
		}
		if len(list) != want {
			return fmt.Errorf("%s: %+v, want %d", collection, list, want)
		}
		for _, r := range list {
			if r.Status != "ACTIVE" {
				return fmt.Errorf("%s: %+v is not ACTIVE", collection, r)
			}
			if collection == "pools" && len(r.Members) != members {
				return fmt.Errorf("pool %+v has %d members, want %d", r, len(r.Members), members)
			}
		}
	}
	if ports, err := addressPorts(ctx); err != nil || len(ports) != 1 {
		return errors.Join(err, fmt.Errorf("ports of load balancers: %+v, want one", ports))
	}
	return nil
}

// testBalancedReadiness has one server not ready for a while.
func testBalancedReadiness(t *testing.T, clients []place) {
	ctx := within(t, 5*time.Minute)
	run := func(args ...string) {
		t.Helper()
		if _, err := world.Kubectl(ctx, append([]string{"-n", octaviaNamespace, "exec", "two", "--"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	run("touch", "/tmp/unready")
	awaitBalanced(ctx, t, clients, "one")
	run("rm", "/tmp/unready")
	awaitBalanced(ctx, t, clients, octaviaServers...)
}

// testBalancedByHand deletes parts of the load balancer, and then all of it, and kills the
// controllers: all is made again.
func testBalancedByHand(t *testing.T, clients []place) {
	for _, part := range []string{"member", "listener", "pool", "load balancer"} {
		t.Run(part, func(t *testing.T) {
			ctx := within(t, 5*time.Minute)
			awaitBalanced(ctx, t, clients, octaviaServers...)
			before, err := balancedParts(ctx)
			if err != nil {
				t.Fatal(err)
			}
			id := before[part][0]
			args := map[string][]string{
				"member":        {"member", "delete", before["pool"][0], id},
				"listener":      {"listener", "delete", id},
				"pool":          {"pool", "delete", id},
				"load balancer": {"delete", "--cascade", id},
			}[part]
			if _, err := openStackOf(ctx, octaviaAPI, append([]string{"loadbalancer"}, args...)...); err != nil {
				t.Fatal(err)
			}
			if err := world.killControllers(ctx); err != nil {
				t.Fatal(err)
			}
			if err := eventually(ctx, func() error {
				now, err := balancedParts(ctx)
				if err == nil && slices.Contains(now[part], id) {
					err = fmt.Errorf("%s %s is there", part, id)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			awaitBalanced(ctx, t, clients, octaviaServers...)
		})
	}
}

// balancedParts are the ids of all that Octavia has; members of the first pool.
func balancedParts(ctx context.Context) (map[string][]string, error) {
	parts := map[string][]string{}
	for i, kind := range []string{"load balancer", "listener", "pool"} {
		list, err := octaviaList(ctx, octaviaCollections[i])
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			parts[kind] = append(parts[kind], r.ID)
			for _, m := range r.Members {
				parts["member"] = append(parts["member"], m.ID)
			}
		}
	}
	return parts, nil
}

// testBalancedRemoved deletes the Service and kills the controllers: nothing is left in Octavia,
// and no port of Neutron.
func testBalancedRemoved(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	remove(ctx, t, "-n", octaviaNamespace, "service", "balanced")
	if err := world.killControllers(ctx); err != nil {
		t.Fatal(err)
	}
	if err := eventually(ctx, func() error { return nothingBalanced(ctx) }); err != nil {
		t.Fatal(err)
	}
	world.healthy(ctx, t)
}

// nothingBalanced is an objection to anything of a load balancer.
func nothingBalanced(ctx context.Context) error {
	for _, collection := range octaviaCollections {
		if list, err := octaviaList(ctx, collection); err != nil || len(list) > 0 {
			return errors.Join(err, fmt.Errorf("%s are left: %+v", collection, list))
		}
	}
	if ports, err := addressPorts(ctx); err != nil || len(ports) > 0 {
		return errors.Join(err, fmt.Errorf("ports are left: %+v", ports))
	}
	return nil
}
