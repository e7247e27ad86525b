// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testRefusedServices makes Services that ask for what they cannot have, and reads
// why in their Events.
func testRefusedServices(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	says := func(s *corev1.Service, text string) {
		t.Helper()
		message, err := warning(ctx, s.Namespace+"/"+s.Name, text)
		t.Logf("event: %s", message)
		if err != nil {
			t.Error(err)
		}
	}
	const shared = "198.51.100.30"
	external := func(name, app string) *corev1.Service {
		return makeService(ctx, t, of(dualService(name, app), func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{shared} }))
	}
	older := external("older", "echo")
	second := time.NewTimer(1100 * time.Millisecond) // by the API's measure one is older
	select {
	case <-second.C:
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	younger := external("younger", "unready")
	says(younger, shared)
	for _, p := range tcpAndUDP {
		question{p, netip.AddrPortFrom(netip.MustParseAddr(shared), frontPort)}.serves(ctx, t, pitch.client1, "echo1", "echo2")
	}
	says(younger, older.Name)

	const taken = 31999
	var listener net.Listener
	if err := pitch.host1.Do(func() (err error) { listener, err = net.Listen("tcp", ":31999"); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	says(makeService(ctx, t, of(dualService("taken", "echo"), func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.Ports = s.Ports[:1]
		s.Ports[0].NodePort = taken
	})), "31999")

	wish := of(dualService("wish", "echo"), loadBalancer)
	wish.Annotations = map[string]string{"coelan.io/load-balancer-ips": "somewhere"}
	says(makeService(ctx, t, wish), "somewhere")
	pool := of(dualService("pool", "echo"), loadBalancer)
	pool.Annotations = map[string]string{"coelan.io/load-balancer-pool": "nowhere"}
	says(makeService(ctx, t, pool), "nowhere")

	family := makeService(ctx, t, of(dualService("family", ""), func(s *corev1.ServiceSpec) {
		s.Selector, s.IPFamilyPolicy, s.IPFamilies = nil, new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{corev1.IPv4Protocol}
	}))
	makeSlice(ctx, t, family, outside(ipv6), map[corev1.Protocol]int32{corev1.ProtocolTCP: 80})
	says(family, "IPv6")

	special := makeService(ctx, t, of(dualService("special", "echo"), func(s *corev1.ServiceSpec) {
		loadBalancer(s)
		s.LoadBalancerClass = new("example.org/other")
	}))
	special.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.0.0.1"}, {IP: "169.254.1.1"}}
	if _, err := world.api.CoreV1().Services(special.Namespace).UpdateStatus(ctx, special, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says(special, "127.0.0.1")
	says(special, "169.254.1.1")
}
