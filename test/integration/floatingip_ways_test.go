// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// floatingInCluster has what has a FloatingIP reach the cluster as without one, and be reached at
// its own addresses.
func floatingInCluster(t *testing.T, w *external) {
	takeWays(t,
		way{path: path{"pod on its node", w.a.Host, w.b.Host, w.b.Address, w.a.Address}},
		way{path: path{"pod on another node", w.a.Host, w.c.Host, w.c.Address, w.a.Address}},
		way{path: path{"shared Router", w.a.Host, w.shared.Host, w.shared.Address, w.a.Address}},
		way{path: path{"its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address}},
		way{path: path{"its gateway", w.a.Host, w.n1.Host, w.n1.Gateway, w.a.Address}},
		way{path: path{"another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address}},
		way{path: path{"from its node", w.n1.Host, w.a.Host, w.a.Address, w.n1.Gateway}},
		way{path: path{"from another node", w.n2.Host, w.a.Host, w.a.Address, w.n2.Gateway}},
		way{path: path{"a tenant's pods", w.red[0].Host, w.red[1].Host, own(w.red[1]), own(w.red[0])}},
		way{path: path{"a tenant's pods on another node", w.red[0].Host, w.red[2].Host, own(w.red[2]), own(w.red[0])}},
		way{path: path{"a tenant's node", w.red[0].Host, w.n1.Host, w.n1.Address, w.red[0].Address}},
		way{path{"a tenant from its node", w.n1.Host, w.red[0].Host, w.red[0].Address, w.n1.Gateway}, own(w.red[0])},
	)
	// A client that has a route to the pods' addresses.
	for f := range lab.Dual.Each {
		routeToPods(t, w.world, f)
	}
	takeWays(t,
		way{path: path{"from outside to the pod's own address", w.Outside, w.a.Host, w.a.Address, w.Outside.Address}},
		way{path: path{"from beyond the gateway to the pod's own address", w.far, w.a.Host, w.a.Address, w.far.Address}},
	)
	var attempts []attempt
	for f := range lab.Dual.Each {
		attempts = append(attempts,
			attempt{"a tenant to another's address in the cluster", w.red[0].Host, w.blue[0].Address(f)},
			attempt{"a tenant to a pod of default", w.red[0].Host, w.a.Address(f)},
			attempt{"a pod of default to a tenant's", w.a.Host, w.red[0].Address(f)},
			attempt{"a virtual machine to a pod of default", w.vm.Host, w.a.Address(f)},
		)
	}
	unreachable(t, attempts...)
}

// The Services of the tests of FloatingIPs.
const (
	floatingBoth = 80 + iota
	floatingOne
	floatingLocal
	floatingReds
)

// floatingServices asks for Services: from what has a FloatingIP, which stays in the cluster, and
// for endpoints that have one: their answers go back on the way that the question took.
func floatingServices(t *testing.T, w *external, s floatingIPs) {
	for f := range lab.Dual.Each {
		for _, x := range []floating{s.a, s.b, s.c, s.red2} {
			answers(t, x.host, netip.AddrPortFrom(x.own(f), answerPort))
		}
		ext := map[lab.Family]string{lab.IPv4: "198.51.100.0/24", lab.IPv6: "fd00:51::/64"}[f]
		run(t, w.Outside, "ip", "route", "add", ext, "via", w.n1.Address(f).String())
		t.Cleanup(func() { run(t, w.Outside, "ip", "route", "del", ext) })
	}
	external := func(number int, policy corev1.ServiceExternalTrafficPolicy) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = policy
			for f := range lab.Dual.Each {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, externalIPOf(number, f).Addr().String())
			}
		}
	}
	publish(w.world, "lab", "both", floatingBoth, external(floatingBoth, corev1.ServiceExternalTrafficPolicyCluster), w.b, w.c)
	publish(w.world, "lab", "one", floatingOne, nil, w.a)
	publish(w.world, "lab", "local", floatingLocal, external(floatingLocal, corev1.ServiceExternalTrafficPolicyLocal), w.a)
	publish(w.world, "red", "reds", floatingReds, nil, w.red[2])
	for _, n := range w.Nodes { // the last Service is there
		becomes(t, n.Name, func(ctx context.Context) error {
			got, _, err := ask(ctx, n, "tcp", clusterIPOf(floatingReds, lab.IPv6), probe.AnswerTimeout/4)
			if err == nil && got != w.red[2].Name {
				err = fmt.Errorf("%s answers", got)
			}
			return err
		})
	}
	a, b, c := w.a.Name, w.b.Name, w.c.Name
	inBothFamilies(func(f lab.Family) {
		for _, ask := range []asking{
			{name: "a pod", from: w.a.Host, to: clusterIPOf(floatingBoth, f), want: []string{b, c}, seen: w.a.Address(f)},
			{name: "a pod, node port", from: w.a.Host, to: atNode(w.n1, floatingBoth, f), want: []string{b, c}, seen: w.a.Address(f)},
			{name: "a pod, node port of another node", from: w.a.Host, to: atNode(w.n2, floatingBoth, f), want: []string{b, c}},
			{name: "a pod, external address", from: w.a.Host, to: externalIPOf(floatingBoth, f), want: []string{b, c}, seen: w.a.Address(f)},
			{name: "a pod, itself", from: w.a.Host, to: clusterIPOf(floatingOne, f), want: []string{a}},
			{name: "a tenant", from: w.red[0].Host, to: clusterIPOf(floatingReds, f), want: []string{w.red[2].Name}},
			{name: "a tenant, of default", from: w.red[0].Host, to: clusterIPOf(floatingOne, f), want: []string{a}, seen: w.red[0].Address(f)},
			{name: "a neighbour", from: w.d.Host, to: clusterIPOf(floatingOne, f), want: []string{a}, seen: w.d.Address(f)},
			{name: "a node", from: w.n2.Host, to: clusterIPOf(floatingOne, f), want: []string{a}},
			{name: "beyond, node port", from: w.far, to: atNode(w.n1, floatingOne, f), want: []string{a}},
			{name: "beyond, node port of another node", from: w.far, to: atNode(w.n2, floatingOne, f), want: []string{a}},
			{name: "beyond, a tenant's node port", from: w.far, to: atNode(w.n1, floatingReds, f), want: []string{w.red[2].Name}},
			{name: "VLAN, node port", from: w.near, to: atNode(w.n1, floatingOne, f), want: []string{a}},
			{name: "VLAN, local", from: w.near, to: atNode(w.n1, floatingLocal, f), want: []string{a}, seen: w.near.Address(f)},
			{name: "beyond, local", from: w.far, to: atNode(w.n1, floatingLocal, f), want: []string{a}, seen: w.far.Address(f)},
			{name: "beyond, external address", from: w.far, to: externalIPOf(floatingBoth, f), want: []string{b, c}},
			{name: "beyond, local, external address", from: w.far, to: externalIPOf(floatingLocal, f), want: []string{a}, seen: w.far.Address(f)},
		} {
			ask.check(t)
		}
	})
}

// floatingHairpins has what is in the cluster reach its Ports by their FloatingIPs.
func floatingHairpins(t *testing.T, w *external, s floatingIPs) {
	takeWays(t,
		to("neighbour", w.a.Host, s.b, s.a.address),
		to("itself", w.a.Host, s.a, s.a.address),
		to("another node", w.a.Host, s.c, s.a.address),
		to("back from another node", w.c.Host, s.a, s.c.address),
		to("another tenant with the same address", w.red[0].Host, s.blue, s.red.address),
		to("another tenant on another node", w.blue[0].Host, s.red2, s.blue.address),
		to("a tenant to a pod of default", w.red[0].Host, s.a, s.red.address),
		to("a tenant to its own pod on another node", w.red[0].Host, s.red2, s.red.address),
		to("a pod of default to a tenant", w.a.Host, s.red, s.a.address),
		to("virtual machine to a tenant", w.vm.Host, s.blue, s.vm.address),
		to("a tenant to a virtual machine", w.red[2].Host, s.vm, s.red2.address),
		to("a virtual machine to itself", w.vm.Host, s.vm, s.vm.address),
		to("shared Router", w.shared.Host, s.red, s.shared.address),
		// These have no FloatingIP: they go out by their node.
		to("neighbour without one", w.d.Host, s.a, nil),
		to("another node without one", w.d.Host, s.c, nil),
		to("another tenant without one", w.red[1].Host, s.blue, nil),
		to("its own tenant without one", w.red[1].Host, s.red, nil),
		to("its own tenant without one, on another node", w.red[1].Host, s.red2, nil),
		to("node", w.n1.Host, s.a, nil),
		to("node to a tenant", w.n1.Host, s.red, nil),
		to("node to another node", w.n1.Host, s.c, nil),
		to("another node", w.n2.Host, s.a, nil),
	)
}

// portUnreachable is the error about a closed port, by family: type and code.
var portUnreachable = map[lab.Family][2]byte{lab.IPv4: {3, 3}, lab.IPv6: {1, 4}}

// floatingErrors sends datagrams to closed ports. Kernels take notice of an error only if it quotes
// what they have sent.
func floatingErrors(t *testing.T, w *external, s floatingIPs) {
	heard := wire(t, w.near)
	inBothFamilies(func(f lab.Family) {
		for _, x := range s.all() {
			for _, from := range []*lab.Host{w.near, w.far} {
				if err := refusedUDP(from, netip.AddrPortFrom(x.address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s %s: from %s: %v", f, x.name, from.Name, err)
				}
			}
			want := portUnreachable[f]
			if _, err := heard.Wait(t.Context(), func(frame probe.Frame) bool {
				src, dst := frame.IPs()
				at := headers[f] - 8
				p := frame.Payload()
				return src == x.address(f) && dst == w.near.Address(f) && len(p) > at+1 && p[at] == want[0] && p[at+1] == want[1]
			}); err != nil {
				t.Errorf("%s %s: an error from %s: %v", f, x.name, x.address(f), err)
			}
			for _, to := range []*lab.Host{w.near, w.far} {
				if err := refusedUDP(x.host, netip.AddrPortFrom(to.Address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s %s: to %s: %v", f, x.name, to.Name, err)
				}
			}
		}
		for name, from := range map[string]floating{"neighbour": s.b, "another node": s.c, "another tenant": s.red} {
			if err := refusedUDP(from.host, netip.AddrPortFrom(s.a.address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s hairpin, %s: %v", f, name, err)
			}
		}
	})
}

// floatingSizes sends what is too big, on both ways.
func floatingSizes(t *testing.T, w *external, s floatingIPs) {
	far := func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(w.far.Address(f), 8082) }
	for f := range lab.Dual.Each {
		serve(t, w.far, far(f), probe.Digest)
	}
	inBothFamilies(func(f lab.Family) {
		want := tooBig[f]
		for _, x := range []floating{s.a, s.c, s.red, s.vm} {
			r, err := (probe.Ping{Dst: x.address(f), Size: 1500 - headers[f]}).Run(t.Context(), w.near)
			if err != nil || len(r.Errors) != 1 || r.Errors[0].Type != want[0] || r.Errors[0].Code != want[1] || r.Errors[0].MTU != 1450 {
				t.Errorf("%s %s: from outside: replies %v, errors %v, %v; want type %d code %d with MTU 1450",
					f, x.name, r.Replies, r.Errors, err, want[0], want[1])
			}
			if r, err := (probe.Ping{Dst: x.address(f), Size: 1450 - headers[f]}).Run(t.Context(), w.near); err != nil || r.Lost() > 0 {
				t.Errorf("%s %s: what fits, from outside: errors %v, %v, %v", f, x.name, r.Errors, r.SendError, err)
			}
		}
		// The wire beyond the gateway is narrow, which a sender has to learn from the gateway.
		for _, x := range []floating{s.a, s.red, s.vm} {
			if _, err := probe.Transfer(within(t, 30*time.Second), x.host, far(f), 1<<18); err != nil {
				t.Errorf("%s %s: by a narrow wire: %v", f, x.name, err)
			}
		}
	})
}

// floatingSpoofed sends from the VLAN in the name of the cluster, and what is not for a FloatingIP.
func floatingSpoofed(t *testing.T, w *external, s floatingIPs) {
	mac := wireMAC(t, w.near)
	cluster := map[lab.Family]netip.Addr{lab.IPv4: netip.MustParseAddr("10.96.0.1"), lab.IPv6: netip.MustParseAddr("fd00:10:96::1")}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, tc := range []struct {
			name     string
			to       floating
			src, dst netip.Addr
			arrives  bool
		}{
			{"in its own name", s.a, w.near.Address(f), s.a.address(f), true},
			{"as a pod of the node", s.a, w.d.Address(f), s.a.address(f), false},
			{"as a pod of another node", s.a, w.c.Address(f), s.a.address(f), false},
			{"as a pod of a shared Router", s.a, w.shared.Address(f), s.a.address(f), false},
			{"as itself", s.a, s.a.own(f), s.a.address(f), false},
			{"as the node's gateway", s.a, w.n1.Gateway(f), s.a.address(f), false},
			{"as a Service", s.a, cluster[f], s.a.address(f), false},
			{"to a tenant, in its own name", s.red, w.near.Address(f), s.red.address(f), true},
			{"to a tenant, as a pod of the tenant", s.red, own(w.red[1])(f), s.red.address(f), false},
			{"to a tenant, as a pod of default", s.red, w.c.Address(f), s.red.address(f), false},
			{"to the pod's own address", s.a, w.near.Address(f), s.a.own(f), false},
			{"to the tenant's own address", s.red, w.near.Address(f), s.red.own(f), false},
			{"to the tenant's address in the cluster", s.red, w.near.Address(f), w.red[0].Address(f), false},
		} {
			packet := probe.UDP(netip.AddrPortFrom(tc.src, 1000), netip.AddrPortFrom(tc.dst, 8090), []byte(tc.name))
			frame := probe.Ethernet(mac, tc.to.mac(f), etherType[f], packet)
			err := deliver(t, w.near, tc.to.host, netip.AddrPortFrom(tc.to.own(f), 8090), frame)
			if (err == nil) != tc.arrives {
				t.Errorf("%s: arrived %t, want %t (%v)", tc.name, err == nil, tc.arrives, err)
			}
		}
		// Nor does a pod speak in the name of its neighbour's FloatingIP.
		heard := wire(t, w.near)
		packet := probe.UDP(netip.AddrPortFrom(s.b.address(f), 1000), netip.AddrPortFrom(w.near.Address(f), 8090), []byte("as another"))
		for _, sender := range [][]byte{w.a.MAC, reserved.PodMAC(s.b.address(f)).HardwareAddr()} {
			if err := wire(t, w.a.Host).Send(probe.Ethernet(sender, router, etherType[f], packet)); err != nil {
				t.Fatal(err)
			}
		}
		// The node itself may ask for the host's MAC in the name of the FloatingIP.
		if err := heard.Quiet(quiet, func(frame probe.Frame) bool { return strings.HasSuffix(string(frame), "as another") }); err != nil {
			t.Errorf("a pod in the name of its neighbour's FloatingIP: %v", err)
		}
	})
}

// wireMAC is that of a host's eth0.
func wireMAC(t *testing.T, h *lab.Host) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	if err := h.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mac
}
