// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// testNoKubeProxy makes sure that it is not kube-proxy that is tested.
func testNoKubeProxy(t *testing.T) {
	ctx := within(t, time.Minute)
	for _, node := range world.Nodes() {
		out, err := world.Exec(ctx, node, "bash", "-c", "pgrep -x kube-proxy; { iptables-save; ip6tables-save; nft list ruleset; } | grep -E 'KUBE-S|kube-proxy' || true")
		if err != nil && !strings.Contains(err.Error(), "exit status 1") || len(out) > 0 {
			t.Errorf("%s: %s%v", node, out, err)
		}
	}
}

// testClusterIP asks one port over TCP and UDP, in both families, from pods, nodes and the servers
// themselves. The servers see the pods' own addresses.
func testClusterIP(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	s := makeService(ctx, t, of(dualService("cluster-ip", "echo"), func(s *corev1.ServiceSpec) {
		s.Ports = append(s.Ports, corev1.ServicePort{
			Name: "other", Protocol: corev1.ProtocolTCP, Port: 8000, TargetPort: intstr.FromInt32(tcpPort),
		})
	}))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			for _, from := range []place{pitch.client1, pitch.client2, pitch.echo1, pitch.host1, pitch.host2, pitch.cp} {
				q.serves(ctx, t, from, "echo1", "echo2")
			}
			q.seen(ctx, t, pitch.client1, pitch.client1.address(f))
		}
		q := clusterIP(t, s, f, corev1.ProtocolTCP)
		q.at = netip.AddrPortFrom(q.at.Addr(), 8000)
		q.serves(ctx, t, pitch.client2, "echo1", "echo2")
	}
}

// testOneFamily has Services of each family alone.
func testOneFamily(t *testing.T) {
	ctx := within(t, time.Minute)
	for _, f := range families {
		s := makeService(ctx, t, of(dualService("only-"+strings.ToLower(string(f)), "echo"), func(s *corev1.ServiceSpec) {
			s.IPFamilyPolicy, s.IPFamilies = new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{corev1.IPFamily(f)}
		}))
		if len(s.Spec.ClusterIPs) != 1 {
			t.Errorf("%s: ClusterIPs %v", f, s.Spec.ClusterIPs)
		}
		for _, p := range tcpAndUDP {
			clusterIP(t, s, f, p).serves(ctx, t, pitch.client1, "echo1", "echo2")
		}
	}
}

// testNodePort asks every node's port, whether or not it has a server, from outside, from pods and
// from nodes, its own included. The servers see a node's address in place of clients outside.
func testNodePort(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	s := makeService(ctx, t, of(dualService("node-port", "echo"), nodePort))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			for _, node := range []place{pitch.cp, pitch.host1, pitch.host2} {
				q := atNode(t, s, node, f, p)
				for _, from := range []place{pitch.fabric, pitch.client1, pitch.host1, pitch.cp} {
					q.serves(ctx, t, from, "echo1", "echo2")
				}
			}
			atNode(t, s, pitch.host1, f, p).seen(ctx, t, pitch.fabric, world.nodeAmongPods(ctx, t, worker1, f))
		}
	}
}

// The external IPs of the tests: a router outside of the cluster leads them to a node.
var externalIPs = map[family]netip.Addr{ipv4: netip.MustParseAddr("198.51.100.7"), ipv6: netip.MustParseAddr("2001:db8:7::7")}

// testExternalIPs asks at addresses that no node has.
func testExternalIPs(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("external", "echo"), func(s *corev1.ServiceSpec) {
		s.ExternalIPs = []string{externalIPs[ipv4].String(), externalIPs[ipv6].String()}
	}))
	for _, f := range families {
		lead(ctx, t, externalIPs[f], pitch.host1.address(f))
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			q.at = netip.AddrPortFrom(externalIPs[f], frontPort)
			for _, from := range []place{pitch.client1, pitch.host2, pitch.fabric} {
				q.serves(ctx, t, from, "echo1", "echo2")
			}
		}
	}
}

// lead has the router outside of the cluster send an address to a node, for as long
// as the test runs.
func lead(ctx context.Context, t *testing.T, a, node netip.Addr) {
	t.Helper()
	route := []string{"ip", "route", "replace", netip.PrefixFrom(a, a.BitLen()).String(), "via", node.String()}
	pitch.fabric.run(ctx, t, route...)
	t.Cleanup(func() {
		route[2] = "del"
		pitch.fabric.run(context.WithoutCancel(ctx), t, route...)
	})
}

// testNamesOnly has Services that are only names: Coelan has nothing to do, and does nothing.
func testNamesOnly(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	makeService(ctx, t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: servicesNamespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "outside.test"},
	})
	makeService(ctx, t, of(dualService("headless", "echo"), func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }))
	for _, f := range families {
		kind := map[family]string{ipv4: "A", ipv6: "AAAA"}[f]
		both := []string{pitch.echo1.address(f).String(), pitch.echo2.address(f).String()}
		slices.Sort(both)
		for name, want := range map[string][]string{
			"elsewhere.services.svc.cluster.local": {outside(f).String(), "outside.test."},
			"headless.services.svc.cluster.local":  both,
		} {
			slices.Sort(want)
			err := eventually(ctx, func() error {
				out, err := world.Kubectl(ctx, "-n", namespace, "exec", "client1", "--", "dig", "+short", name, kind)
				got := strings.Fields(string(out))
				slices.Sort(got)
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("%s is %v, want %v", name, got, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, server := range []place{pitch.echo1, pitch.echo2} { // the endpoints of the headless one
		q := question{corev1.ProtocolTCP, netip.AddrPortFrom(server.address(ipv6), tcpPort)}
		q.serves(ctx, t, pitch.client1, strings.TrimPrefix(server.name, "services/"))
	}
}
