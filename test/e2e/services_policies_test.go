// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// testAffinity has clients stay with one server, by whichever address of the Service they come and
// until they have been away for longer than the timeout.
func testAffinity(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	const timeout = 3
	s := makeService(ctx, t, of(dualService("affinity", "echo"), func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(timeout))}}
	}))
	for _, f := range families {
		for _, q := range []question{
			clusterIP(t, s, f, corev1.ProtocolTCP), clusterIP(t, s, f, corev1.ProtocolUDP), atNode(t, s, pitch.host1, f, corev1.ProtocolTCP),
		} {
			for _, from := range []place{pitch.client1, pitch.host2, pitch.fabric} {
				if from.name == pitch.fabric.name && q.at.Addr() != pitch.host1.address(f) {
					continue // that is not for the outside
				}
				loyal(ctx, t, q, from)
			}
		}
	}
	q, before := clusterIP(t, s, ipv4, corev1.ProtocolTCP), ""
	for range 12 { // a client that comes back too late is new, and may get either
		got, err := q.ask(ctx, pitch.client2, "hostname")
		if err != nil {
			t.Fatal(err)
		}
		if before != "" && got != before {
			return
		}
		before = got
		away := time.NewTimer((timeout + 1) * time.Second)
		select {
		case <-away.C:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	t.Errorf("%s answers for ever", before)
}

// loyal waits until all questions of a client are answered by one server.
func loyal(ctx context.Context, t *testing.T, q question, from place) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		got, err := q.servers(ctx, from)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%v answer", got)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s asks %s: %v", from.name, q, err)
	}
}

// testInternalLocal keeps the cluster's clients on their node. A client on a node without a server
// gets no answer, not a refusal: the node may get a server.
func testInternalLocal(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	local := corev1.ServiceInternalTrafficPolicyLocal
	s := makeService(ctx, t, of(dualService("internal", "echo"), func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = &local }))
	for _, f := range families {
		for _, p := range tcpAndUDP {
			q := clusterIP(t, s, f, p)
			q.serves(ctx, t, pitch.client1, "echo1")
			q.serves(ctx, t, pitch.client2, "echo2")
			q.serves(ctx, t, pitch.host1, "echo1")
			q.fails(ctx, t, pitch.cp, silent)
		}
	}
}

// testExternalLocal keeps connections from outside on the node that they come to, with the client's
// address. The health port tells which nodes have a server. The cluster's own clients get any.
func testExternalLocal(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("external-local", "echo"), func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	}))
	client := map[family]netip.Addr{}
	for _, f := range families {
		client[f] = nodesGateway(f)
		for _, p := range tcpAndUDP {
			for node, server := range map[*place]string{&pitch.host1: "echo1", &pitch.host2: "echo2"} {
				q := atNode(t, s, *node, f, p)
				q.serves(ctx, t, pitch.fabric, server)
				q.seen(ctx, t, pitch.fabric, client[f])
			}
			q := atNode(t, s, pitch.cp, f, p)
			q.fails(ctx, t, pitch.fabric, silent)
			q.serves(ctx, t, pitch.cp, "echo1", "echo2")
			q = atNode(t, s, pitch.host1, f, p)
			q.serves(ctx, t, pitch.client1, "echo1", "echo2")

			q = balanced(ctx, t, s, f, p)
			q.serves(ctx, t, pitch.client2, "echo1", "echo2")
			q.answers(ctx, t, pitch.fabric)
			q.seen(ctx, t, pitch.fabric, client[f])
		}
		for node, want := range map[*place]int{&pitch.host1: http.StatusOK, &pitch.host2: http.StatusOK, &pitch.cp: http.StatusServiceUnavailable} {
			health := netip.AddrPortFrom(node.address(f), uint16(s.Spec.HealthCheckNodePort))
			err := eventually(ctx, func() error {
				text, err := get(ctx, pitch.fabric, health, "/healthz")
				if want != http.StatusOK && err != nil && strings.HasPrefix(err.Error(), fmt.Sprint(want)) {
					return nil
				}
				if err == nil && want != http.StatusOK {
					err = fmt.Errorf("200: %s", text)
				}
				return err
			})
			if err != nil {
				t.Errorf("health of %s at %s: %v, want %d", node.name, health, err, want)
			}
		}
	}
}

// nodesGateway is the fabric's own address on the nodes' network.
func nodesGateway(f family) netip.Addr {
	if f == ipv4 {
		return netip.MustParseAddr("192.168.33.1")
	}
	return netip.MustParseAddr("fd00:192:168:33::1")
}

// answers waits until a server does.
func (q question) answers(ctx context.Context, t *testing.T, from place) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(ctx, func() error { _, err := q.ask(ctx, from, "hostname"); return err }); err != nil {
		t.Errorf("%s asks %s: %v", from.name, q, err)
	}
}

// testNearestZone has clients get the server of their zone: there is one in each.
func testNearestZone(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	s := makeService(ctx, t, of(dualService("nearest", "echo"), func(s *corev1.ServiceSpec) {
		s.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose)
	}))
	for _, f := range families {
		q := clusterIP(t, s, f, corev1.ProtocolTCP)
		for from, server := range map[*place]string{
			&pitch.client1: "echo1", &pitch.client2: "echo2", &pitch.host1: "echo1", &pitch.host2: "echo2", &pitch.cp: "echo1",
		} {
			q.serves(ctx, t, *from, server)
		}
	}
}
