// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// testNotReady has a server that never gets ready: clients get it only by a
// Service with publishNotReadyAddresses.
func testNotReady(t *testing.T) {
	ctx := within(t, time.Minute)
	strict := makeService(ctx, t, dualService("strict", "unready"))
	lax := makeService(ctx, t, of(dualService("lax", "unready"), func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true }))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			clusterIP(t, strict, f, p).fails(ctx, t, pitch.client2, refused)
			clusterIP(t, lax, f, p).serves(ctx, t, pitch.client2, "unready")
		}
	}
}

// testTerminating deletes the last server of a Service: it is asked for as long as it answers, and
// no longer once there is another.
func testTerminating(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, dualService("terminating", "leaving"))
	q := clusterIP(t, s, ipv4, corev1.ProtocolTCP)
	q.serves(ctx, t, pitch.client2, "leaving")
	if _, err := world.Kubectl(ctx, "-n", servicesNamespace, "delete", "pod", "leaving", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	if err := eventually(ctx, func() error {
		slices, err := world.api.DiscoveryV1().EndpointSlices(servicesNamespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=terminating"})
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Terminating == nil || !*e.Conditions.Terminating {
					err = fmt.Errorf("endpoint %v is not said to be terminating", e.Addresses)
				}
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, p := range tcpAndUDP {
			clusterIP(t, s, f, p).serves(ctx, t, pitch.client2, "leaving")
		}
	}
	next := webServer(servicesNamespace+"/next", worker2)
	next.Labels = map[string]string{"app": "leaving"}
	makePod(ctx, t, next)
	q.serves(ctx, t, pitch.client2, "next")
	remove(ctx, t, "-n", servicesNamespace, "pod", "leaving", "--force", "--grace-period=0")
}

// testWithoutSelector has a Service without a selector: its endpoint is outside of the cluster.
func testWithoutSelector(t *testing.T) {
	ctx := within(t, time.Minute)
	s := makeService(ctx, t, of(dualService("written", ""), func(s *corev1.ServiceSpec) { s.Selector = nil }))
	for _, f := range families {
		makeSlice(ctx, t, s, outside(f), map[corev1.Protocol]int32{corev1.ProtocolTCP: 80, corev1.ProtocolUDP: 80})
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			for _, from := range []place{pitch.client1, pitch.host2} {
				q.answers(ctx, t, from)
			}
			q.seen(ctx, t, pitch.client1, pitch.host1.address(f))
		}
	}
}

// testHostNetwork has a server in its node's network: its node's pods and
// processes are clients, too.
func testHostNetwork(t *testing.T) {
	ctx := within(t, time.Minute)
	s := makeService(ctx, t, of(dualService("hosted", "hosted"), func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.Ports[0].TargetPort, s.Ports[1].TargetPort = intstr.FromInt32(8092), intstr.FromInt32(8093)
	}))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			for _, from := range []place{pitch.client1, pitch.client2, pitch.host1, pitch.host2, pitch.cp} {
				q.serves(ctx, t, from, worker2)
			}
			for _, node := range []place{pitch.host1, pitch.host2} {
				atNode(t, s, node, f, p).serves(ctx, t, pitch.fabric, worker2)
			}
		}
	}
}

// testNobodyThere has a Service without servers: clients are told so at once.
func testNobodyThere(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("nobody", "nobody"), func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.ExternalIPs = []string{"198.51.100.9", "2001:db8:7::9"}
	}))
	for _, f := range families {
		external := map[family]netip.Addr{ipv4: netip.MustParseAddr("198.51.100.9"), ipv6: netip.MustParseAddr("2001:db8:7::9")}[f]
		lead(ctx, t, external, pitch.host2.address(f))
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			q.fails(ctx, t, pitch.client1, refused)
			q.fails(ctx, t, pitch.host1, refused)
			q = atNode(t, s, pitch.host1, f, p)
			q.fails(ctx, t, pitch.client1, refused)
			q.fails(ctx, t, pitch.host1, refused)
			q.fails(ctx, t, pitch.fabric, refused)
			q.at = netip.AddrPortFrom(external, frontPort)
			q.fails(ctx, t, pitch.client1, refused)
			q.fails(ctx, t, pitch.host1, refused)
			q.fails(ctx, t, pitch.fabric, refused)
		}
	}
}

// testStaleUDP has clients that go on sending from one port when their server goes: the next server
// gets what they send.
func testStaleUDP(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("stale", "stale"), nodePort))
	server := func(name, node string) {
		p := webServer(servicesNamespace+"/"+name, node)
		p.Labels = map[string]string{"app": "stale"}
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, fmt.Sprintf("--udp-port=%d", udpPort))
		makePod(ctx, t, p)
		if err := world.waitReady(ctx, servicesNamespace+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	server("stale1", worker1)
	type stream struct {
		name string
		conn net.Conn
	}
	var streams []stream
	for _, f := range families {
		for from, q := range map[*place]question{
			&pitch.client2: clusterIP(t, s, f, corev1.ProtocolUDP), &pitch.host2: clusterIP(t, s, f, corev1.ProtocolUDP),
			&pitch.fabric: atNode(t, s, pitch.host2, f, corev1.ProtocolUDP),
		} {
			q.serves(ctx, t, *from, "stale1")
			var conn net.Conn
			if err := from.Do(func() (err error) { conn, err = net.Dial("udp", q.at.String()); return err }); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			streams = append(streams, stream{fmt.Sprintf("%s, %s", from.name, f), conn})
		}
	}
	hear := func(want string) {
		t.Helper()
		for _, s := range streams {
			patient, cancel := context.WithTimeout(ctx, learning)
			err := eventually(patient, func() error {
				short, cancel := context.WithTimeout(patient, silence)
				defer cancel()
				got, err := exchange(short, s.conn, "hostname")
				if err == nil && got != want {
					err = fmt.Errorf("%s answers, want %s", got, want)
				}
				return err
			})
			cancel()
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
	hear("stale1")
	server("stale2", worker2)
	removePods(ctx, t, servicesNamespace+"/stale1")
	hear("stale2")
}
