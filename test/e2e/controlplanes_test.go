// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/sandbox"
)

// How long API servers are away: longer than a controller stays the leader without any, and than
// kubelets and the endpoints of default/kubernetes outlive it.
const absence = 20 * time.Second

// inEffect is the promise: what is new after an absence is in effect that long after the return of
// the first one.
const inEffect = 15 * time.Second

// testAPIServerEnds has the only API server end in good order, by which it takes its own endpoint
// out of default/kubernetes, and come back. What is new then has to be in effect.
func testAPIServerEnds(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	client, server := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web2")
	if err := world.Stop(ctx, control, "kube-apiserver", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Nothing tells that controllers have given up to lead, which they do after 6 s.
	pass(ctx, t, 8*time.Second)
	if err := world.Start(ctx, control, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n := news{name: "after-the-end", client: client, server: server}
	n.make(ctx, t)
	n.await(bounded, t)
	n.remove(ctx, t)
	world.healthy(ctx, t)
}

// TestControlPlanes takes API servers away, one after the other and all at once, in each way in
// which they go, from a cluster of its own that has three and no address of any configured.
func TestControlPlanes(t *testing.T) {
	ctx := within(t, 24*time.Minute)
	before := world
	defer func() { world = before }()
	name := ownName + "-cp"
	t.Cleanup(func() {
		if err := sandbox.Down(context.WithoutCancel(ctx), name, t.Output()); err != nil {
			t.Error(err)
		}
	})
	spec := sandbox.Spec{Name: name, Zones: 2, ControlPlanes: 3, Services: sandbox.NativeServices}
	several, err := newClusterOf(ctx, spec, sandbox.Install{}, tenants)
	if err != nil {
		t.Fatal(err)
	}
	world = several
	for _, way := range []struct {
		name       string
		stop, back func(context.Context, string) error
	}{
		{"killed", stopAPI(syscall.SIGKILL), startAPI},
		{"ended", stopAPI(syscall.SIGTERM), startAPI},
		{"power cut", func(ctx context.Context, node string) error {
			return world.Stop(ctx, node, sandbox.Node, syscall.SIGKILL)
		}, func(ctx context.Context, node string) error { return world.Start(ctx, node, sandbox.Node) }},
	} {
		for i, node := range world.ControlPlaneNames() {
			id := fmt.Sprintf("%s-%d", way.name[:3], i)
			ok := t.Run(way.name+" "+node, func(t *testing.T) {
				takeAway(t, id, []string{node}, way.stop, way.back)
			})
			if !ok {
				world.report(t)
			}
		}
	}
	for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		ok := t.Run(fmt.Sprintf("all at once, %s", signal), func(t *testing.T) {
			nodes := world.ControlPlaneNames()
			takeAway(t, fmt.Sprintf("all-%d", i), nodes, stopAPI(signal), startAPI)
		})
		if !ok {
			world.report(t)
		}
	}
	if !t.Run("all at once, power cut", testPowerOfAll) {
		world.report(t)
	}
	world.healthy(ctx, t)
}

func stopAPI(signal syscall.Signal) func(context.Context, string) error {
	return func(ctx context.Context, node string) error {
		return world.Stop(ctx, node, "kube-apiserver", signal)
	}
}

func startAPI(ctx context.Context, node string) error {
	return world.Start(ctx, node, "kube-apiserver")
}

// takeAway takes the API servers of nodes away while traffic runs. What is new meanwhile, if
// another one is left, or at the return of the first one, has to be in effect in time. If none is
// left, agents and controllers start anew meanwhile.
func takeAway(
	t *testing.T, id string, nodes []string, stop, back func(context.Context, string) error,
) {
	ctx := within(t, 4*time.Minute)
	client, server := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web2")
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	at := func(do func(context.Context, string) error) {
		t.Helper()
		// The sandbox is changed by one call at a time.
		for _, node := range nodes {
			if err := do(ctx, node); err != nil {
				t.Fatal(err)
			}
		}
	}
	at(stop)
	left := len(nodes) < len(world.ControlPlaneNames())
	if left {
		// A client outside notices as late as any other.
		patient, cancel := context.WithTimeout(ctx, inEffect)
		defer cancel()
		n := news{name: id + "-meanwhile", client: client, server: server}
		n.make(patient, t)
		n.await(patient, t)
		n.remove(ctx, t)
	} else {
		restartCoelan(ctx, t)
	}
	pass(ctx, t, absence)
	if err := back(ctx, nodes[0]); err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(ctx, inEffect)
	defer cancel()
	n := news{name: id + "-afterwards", client: client, server: server}
	n.make(patient, t)
	n.await(patient, t)
	n.remove(ctx, t)
	if nodes = nodes[1:]; len(nodes) > 0 {
		at(back)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	patient, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := eventually(patient, func() error { _, err := world.coelan(patient, "check"); return err }); err != nil {
		t.Error(err)
	}
}

// testPowerOfAll cuts the power of all control planes at once. Two of them are a majority: what is
// new is in effect soon after they are back.
func testPowerOfAll(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	client, server := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web2")
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	for _, node := range world.ControlPlaneNames() {
		if err := world.Stop(ctx, node, sandbox.Node, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	pass(ctx, t, absence)
	if err := world.StartMachines(ctx, world.ControlPlaneNames()...); err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(ctx, inEffect)
	defer cancel()
	n := news{name: "power-of-all", client: client, server: server}
	n.make(patient, t)
	n.await(patient, t)
	n.remove(ctx, t)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
}

// restartCoelan kills all agents and controllers. Their containers are started anew without an API
// server.
func restartCoelan(ctx context.Context, t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, node := range world.Nodes() {
		all.Go(func() {
			const kill = "kill -9 $(pidof coelan-agent coelan-controller)"
			if _, err := world.Exec(ctx, node, "sh", "-c", kill); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// replaceCoelan starts the API server, and replaces all controllers and agents.
func replaceCoelan(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := world.Start(ctx, control, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "restart", "deployment/coelan-controller"); err != nil {
		t.Error(err)
	}
	if err := world.roll(ctx); err != nil {
		t.Error(err)
	}
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s"); err != nil {
		t.Error(err)
	}
}

// pass lets time pass.
func pass(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// news is something new in the API: a Service that leads to a server, with EndpointSlices of its
// own, since Kubernetes' own controllers may be late, and a policy that denies all access to the
// web server of another pod.
type news struct {
	name           string
	client, server place
	services       map[family]netip.AddrPort
}

// make puts it into the API, which has just been told to come back.
func (n *news) make(ctx context.Context, t *testing.T) {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports:          []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: frontPort}},
		},
	}
	n.try(ctx, t, "Service", func() error {
		made, err := world.api.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
		if err == nil {
			s = made
		}
		return err
	})
	n.services = map[family]netip.AddrPort{}
	for _, f := range families {
		i := slices.IndexFunc(s.Spec.ClusterIPs, func(text string) bool {
			a, err := netip.ParseAddr(text)
			return err == nil && f.has(a)
		})
		if i < 0 {
			t.Fatalf("%s has no %s address: %v", n.name, f, s.Spec.ClusterIPs)
		}
		n.services[f] = netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[i]), frontPort)
		makeSlice(ctx, t, s, n.server.address(f), map[corev1.Protocol]int32{corev1.ProtocolTCP: webPort})
	}
	// What runs meanwhile may go on.
	ports := []networkingv1.NetworkPolicyPort{}
	for _, protocol := range tcpAndUDP {
		first := intstr.FromInt32(7000)
		ports = append(ports, networkingv1.NetworkPolicyPort{
			Protocol: new(protocol), Port: &first, EndPort: new(int32(7999)),
		})
	}
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: namespace},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"server": "web1"}},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports}},
		},
	}
	n.try(ctx, t, "NetworkPolicy", func() error {
		_, err := world.api.NetworkingV1().NetworkPolicies(namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// remove takes it away and waits until that is in effect, too.
func (n *news) remove(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	n.try(ctx, t, "deletion of the NetworkPolicy", func() error {
		return world.api.NetworkingV1().NetworkPolicies(namespace).Delete(ctx, n.name, metav1.DeleteOptions{})
	})
	n.try(ctx, t, "deletion of the Service", func() error {
		return world.api.CoreV1().Services(namespace).Delete(ctx, n.name, metav1.DeleteOptions{})
	})
	web1 := world.pod(ctx, t, "web1")
	at := netip.AddrPortFrom(web1.address(ipv4), webPort)
	if err := eventually(ctx, func() error { return n.asks(ctx, at) }); err != nil {
		t.Errorf("after the policy has gone: %v", err)
	}
}

// try tries until the API server takes it.
func (n *news) try(ctx context.Context, t *testing.T, what string, do func() error) {
	t.Helper()
	if err := eventually(ctx, do); err != nil {
		t.Fatalf("%s %s: %v", what, n.name, err)
	}
}

// await waits until both are in effect: the Service answers, and web1 does not.
func (n *news) await(ctx context.Context, t *testing.T) {
	t.Helper()
	began := time.Now()
	err := eventually(ctx, func() error {
		for f, at := range n.services {
			if err := n.asks(ctx, at); err != nil {
				return fmt.Errorf("the new Service, %s: %w", f, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	web1 := world.pod(context.WithoutCancel(ctx), t, "web1")
	web1Port := netip.AddrPortFrom(web1.address(ipv4), webPort)
	err = eventually(ctx, func() error {
		if n.asks(ctx, web1Port) == nil {
			return fmt.Errorf("%s answers in spite of a new policy", web1.name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("in effect after %s", time.Since(began).Round(100*time.Millisecond))
}

// asks asks a web server once. It does not wait for a missing answer: the time that it takes is
// what the test is about.
func (n *news) asks(ctx context.Context, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := clientOf(ctx, n.client, at)
	return err
}
