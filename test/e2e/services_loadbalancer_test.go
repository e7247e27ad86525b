// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/sandbox"
)

// servicesPool has addresses of the nodes' network, for which workers answer: a
// test takes their power.
const servicesPool = `
apiVersion: coelan.io/v1alpha1
kind: LoadBalancerPool
metadata: {name: edge}
spec:
  addresses: [192.168.33.200-192.168.33.219, "fd00:192:168:33::200-fd00:192:168:33::21f"]
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
`

// poolNet has the addresses of the pool.
var poolNet = map[family]netip.Prefix{ipv4: netip.MustParsePrefix("192.168.33.192/27"), ipv6: netip.MustParsePrefix("fd00:192:168:33::200/119")}

// loadBalancer makes the Service one of type LoadBalancer.
func loadBalancer(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }

// testLoadBalancer asks at an address of the pool from outside, from the control plane's machine,
// from pods and nodes.
func testLoadBalancer(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("balanced", "echo"), func(s *corev1.ServiceSpec) {
		loadBalancer(s)
		s.AllocateLoadBalancerNodePorts = new(false)
	}))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			q := balanced(ctx, t, s, f, p)
			if !poolNet[f].Contains(q.at.Addr()) {
				t.Errorf("%s is not of the pool", q.at.Addr())
			}
			for _, from := range []place{pitch.fabric, pitch.cp, pitch.client1, pitch.client2, pitch.host1, pitch.host2} {
				q.serves(ctx, t, from, "echo1", "echo2")
			}
		}
	}
}

// testSourceRanges lets one client in and others not. Other addresses of the Service are for all.
func testSourceRanges(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("ranges", "echo"), func(s *corev1.ServiceSpec) {
		loadBalancer(s)
		for _, f := range families {
			for _, a := range []netip.Addr{nodesGateway(f), pitch.client1.address(f)} {
				s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, netip.PrefixFrom(a, a.BitLen()).String())
			}
		}
	}))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			q := balanced(ctx, t, s, f, p)
			q.serves(ctx, t, pitch.fabric, "echo1", "echo2")
			q.serves(ctx, t, pitch.client1, "echo1", "echo2")
			q.fails(ctx, t, pitch.client2, silent)
			q.fails(ctx, t, pitch.cp, silent)
			clusterIP(t, s, f, p).serves(ctx, t, pitch.client2, "echo1", "echo2")
			atNode(t, s, pitch.host2, f, p).serves(ctx, t, pitch.cp, "echo1", "echo2")
		}
	}
}

// testModeProxy has another controller's load balancer. If it hands packets on as they are
// (VIP), the cluster's own clients need not go there; if it is a proxy, they must: there is
// nothing at its address here.
func testModeProxy(t *testing.T) {
	ctx := within(t, time.Minute)
	s := makeService(ctx, t, of(dualService("foreign", "echo"), func(s *corev1.ServiceSpec) {
		loadBalancer(s)
		s.LoadBalancerClass = new("example.org/other")
	}))
	address := netip.MustParseAddr("198.51.100.21")
	q := question{corev1.ProtocolTCP, netip.AddrPortFrom(address, frontPort)}
	for _, mode := range []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy} {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address.String(), IPMode: &mode}}
		var err error
		if s, err = world.api.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, from := range []place{pitch.client1, pitch.host2} {
			if mode == corev1.LoadBalancerIPModeVIP {
				q.serves(ctx, t, from, "echo1", "echo2")
				continue
			}
			short, cancel := context.WithTimeout(ctx, learning)
			err := eventually(short, func() error {
				ctx, cancel := context.WithTimeout(short, silence)
				defer cancel()
				if answer, err := q.ask(ctx, from, "hostname"); err == nil {
					return fmt.Errorf("%s answers", answer)
				}
				return nil
			})
			cancel()
			if err != nil {
				t.Errorf("%s asks the proxy at %s: %v", from.name, q, err)
			}
		}
	}
}

// moved is how long an address of a load balancer may be without a node.
const moved = 5 * time.Second

// testNodeLost takes the power of the node that answers for an address, which then another does.
func testNodeLost(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	p := webServer(servicesNamespace+"/steady", control) // of neither worker
	p.Labels = map[string]string{"app": "steady"}
	p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, fmt.Sprintf("--udp-port=%d", udpPort))
	makePod(ctx, t, p)
	s := makeService(ctx, t, of(dualService("moving", "steady"), loadBalancer))
	var questions []question
	for _, f := range families {
		q := balanced(ctx, t, s, f, corev1.ProtocolTCP)
		q.serves(ctx, t, pitch.fabric, "steady")
		questions = append(questions, q)
	}
	owner := ownerOf(ctx, t, questions[0].at.Addr())
	t.Logf("%s answers for %s", owner, questions[0].at.Addr())

	began := time.Now()
	if err := world.Stop(ctx, owner, sandbox.Node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for _, q := range questions {
		group.Go(func() {
			err := eventually(ctx, func() error {
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				_, err := q.ask(short, pitch.fabric, "hostname")
				return err
			})
			took := time.Since(began)
			t.Logf("%s was away for %.1f s", q.at.Addr(), took.Seconds())
			if err != nil || took > moved {
				t.Errorf("%s was away for %s, want at most %s: %v", q.at.Addr(), took, moved, err)
			}
		})
	}
	group.Wait()
	if next := ownerOf(ctx, t, questions[0].at.Addr()); next == owner {
		t.Errorf("%s, which is off, still answers for %s", owner, questions[0].at.Addr())
	}
	if err := world.Start(ctx, owner, sandbox.Node); err != nil {
		t.Fatal(err)
	}
	if err := world.WaitPods(ctx, "", 2*time.Minute); err != nil {
		t.Error(err)
	}
	for _, q := range questions { // and when it is back
		q.serves(ctx, t, pitch.fabric, "steady")
	}
	world.healthy(ctx, t)
}

// ownerOf is the node that answers for an address, as the fabric's neighbor table has it.
func ownerOf(ctx context.Context, t *testing.T, a netip.Addr) string {
	t.Helper()
	// 192.168.33.200 dev fabric lladdr 02:c0:e1:00:00:0c REACHABLE
	neighbor := pitch.fabric.run(ctx, t, "ip", "neigh", "show", a.String())
	for _, node := range world.Nodes() {
		mac, err := world.Exec(ctx, node, "cat", "/sys/class/net/eth1/address")
		if err == nil && strings.Contains(neighbor, strings.TrimSpace(string(mac))) {
			return node
		}
	}
	t.Fatalf("no node answers for %s: %s", a, neighbor)
	return ""
}
