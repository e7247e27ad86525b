// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/sandbox"
)

// attach gives a pod the label by which a Service finds it, or takes it away.
func attach(ctx context.Context, t *testing.T, key, service string) {
	t.Helper()
	value := "null"
	if service != "" {
		value = `"` + service + `"`
	}
	namespace, name := split(key)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"of":%s}}}`, value)
	if _, err := world.api.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// attached makes a namespace with two servers, one on each worker, and a Service of those that are
// attached to it.
func attached(ctx context.Context, t *testing.T, name string) *corev1.Service {
	t.Helper()
	makeNamespace(ctx, t, name, "")
	var keys []string
	for server, node := range map[string]string{"one": worker1, "two": worker2} {
		p := webServer(name+"/"+server, node)
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, fmt.Sprintf("--udp-port=%d", udpPort))
		makePod(ctx, t, p)
		keys = append(keys, name+"/"+server)
	}
	if err := world.waitReady(ctx, keys...); err != nil {
		t.Fatal(err)
	}
	s := of(dualService("service", ""), func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"of": "service"} })
	s.Namespace = name
	return makeService(ctx, t, s)
}

// TestTC2AttachPodToService is TC 2: attach a pod to a service, by which others then reach it.
func TestTC2AttachPodToService(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useServices(ctx, t, sandbox.KubeProxyServices)
	pitch = newField(ctx, t)
	for _, node := range world.Nodes() {
		// The node's port that takes what is for Services to the kernel.
		out, err := world.Exec(ctx, node, "ovs-vsctl", "--bare", "--columns=name", "find", "Interface", "external_ids:is-service-gateway=true")
		if err != nil || strings.TrimSpace(string(out)) != "coelan-gw0" {
			t.Errorf("%s: the service gateway is %q, %v", node, out, err)
		}
	}
	s := attached(ctx, t, "tc2")
	everywhere := func(want ...string) {
		t.Helper()
		for _, f := range families {
			for _, p := range tcpAndUDP {
				for _, from := range []place{pitch.client1, pitch.client2, pitch.host1} {
					clusterIP(t, s, f, p).serves(ctx, t, from, want...)
				}
			}
		}
	}
	clusterIP(t, s, ipv4, corev1.ProtocolTCP).fails(ctx, t, pitch.client1, refused)
	attach(ctx, t, "tc2/one", "service")
	everywhere("one")
	attach(ctx, t, "tc2/two", "service")
	everywhere("one", "two")
	// The endpoint sees the client's address, on its own node and on another.
	for _, f := range families {
		clusterIP(t, s, f, corev1.ProtocolTCP).seen(ctx, t, pitch.client1, pitch.client1.address(f))
	}
}

// TestTC3RemovePodFromService is TC 3: remove a pod from a service. The others get all connections;
// without the last one none is answered.
func TestTC3RemovePodFromService(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useServices(ctx, t, sandbox.KubeProxyServices)
	pitch = newField(ctx, t)
	s := attached(ctx, t, "tc3")
	attach(ctx, t, "tc3/one", "service")
	attach(ctx, t, "tc3/two", "service")
	q := clusterIP(t, s, ipv6, corev1.ProtocolTCP)
	q.serves(ctx, t, pitch.client1, "one", "two")
	attach(ctx, t, "tc3/one", "")
	q.serves(ctx, t, pitch.client1, "two")
	q.serves(ctx, t, pitch.client2, "two")
	removePods(ctx, t, "tc3/two")
	for _, f := range families {
		clusterIP(t, s, f, corev1.ProtocolTCP).fails(ctx, t, pitch.client1, refused)
	}
	if err := ask(ctx, t, "client1", "tc3/one"); err != nil {
		// It lives on, only not as the Service.
		t.Error(err)
	}
}

// TestServicesOfKubeProxy asks what goes through kube-proxy otherwise: from nodes, to addresses
// outside of the cluster and at external IPs, and from outside with the policy Local.
func TestServicesOfKubeProxy(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useServices(ctx, t, sandbox.KubeProxyServices)
	pitch = newField(ctx, t)
	makeNamespace(ctx, t, "proxied", "")
	s := of(dualService("written", ""), func(s *corev1.ServiceSpec) { s.Selector = nil })
	s.Namespace = "proxied"
	written := makeService(ctx, t, s)
	s = of(dualService("proxied", "web"), func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.Ports = s.Ports[:1]
		s.ExternalIPs = []string{externalIPs[ipv4].String(), externalIPs[ipv6].String()}
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	s.Namespace = namespace
	web := makeService(ctx, t, s)
	for _, f := range families {
		makeSlice(ctx, t, written, outside(f), map[corev1.Protocol]int32{corev1.ProtocolTCP: 80, corev1.ProtocolUDP: 80})
		for _, from := range []place{pitch.client1, pitch.host2, pitch.cp} {
			for _, p := range tcpAndUDP {
				clusterIP(t, written, f, p).answers(ctx, t, from)
			}
			clusterIP(t, web, f, corev1.ProtocolTCP).serves(ctx, t, from, "web1", "web2")
			question{corev1.ProtocolTCP, netip.AddrPortFrom(externalIPs[f], frontPort)}.serves(ctx, t, from, "web1", "web2")
		}
		q := atNode(t, web, pitch.host1, f, corev1.ProtocolTCP)
		q.serves(ctx, t, pitch.fabric, "web1")
		q.seen(ctx, t, pitch.fabric, nodesGateway(f))
	}
}
