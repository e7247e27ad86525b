// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const officeVLAN = 42

// office is an address of the external Network.
func office(number int) address {
	return func(f lab.Family) netip.Addr {
		return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "192.168.42.%d", lab.IPv6: "fd00:42::%d"}[f], number))
	}
}

// external makes the external Network, a VLAN, and a host on it at n2's bridge.
func (w *world) external(t *testing.T) *lab.Host {
	t.Helper()
	for _, n := range w.Nodes {
		must(t, n.AddPhysicalBridge(t.Context(), "br-ext"))
	}
	vlan := int32(officeVLAN)
	spec := v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", External: true}
	var prefixes []netip.Prefix
	for f, bits := range map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64} {
		prefix := netip.PrefixFrom(office(20)(f), bits)
		prefixes = append(prefixes, prefix)
		spec.Subnets = append(spec.Subnets, v1alpha1.Subnet{CIDR: prefix.Masked().String(), Gateway: office(254)(f).String()})
	}
	w.network(t, "office", spec)
	near, err := w.n2.AddVLANHost(t.Context(), "br-ext", "near", officeVLAN, prefixes...)
	must(t, err)
	return near
}

// outside has FloatingIPs stand for pods of tenants with the same addresses, both ways, and a
// gateway show a tenant as one address, whichever node its pods are on.
func outside(t *testing.T, w *world) {
	near := w.external(t)
	floating := map[string]*lab.Pod{}
	for i, tenant := range []string{"red", "blue"} {
		p, number := w.pod(t, w.n1, tenant, "floating"), 130+i
		floating[tenant] = p
		for f := range lab.Dual.Each {
			w.API.AddFloatingIP(tenant, "web-"+strings.ToLower(f.String()), "office", office(number)(f).String(), "floating.eth0")
		}
		reaches(t, tenant+"'s floating IP", near, p.Host, office(number), own(p, "eth0"), near.Address)
		reaches(t, tenant+" by its floating IP", p.Host, near, near.Address, near.Address, office(number))
	}
	for f := range lab.Dual.Each {
		w.API.RemoveFloatingIP("blue", "web-"+strings.ToLower(f.String()))
	}
	cutOff(t, "a floating IP that is gone", near, office(131))
	reaches(t, "the other tenant's", near, floating["red"].Host, office(130), own(floating["red"], "eth0"), near.Address)

	must(t, w.API.SetRouterGateway("green", v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT},
		office(150)(lab.IPv4).String(), office(150)(lab.IPv6).String()))
	for _, n := range w.Nodes {
		p := w.pod(t, n, "green", "out-of-"+n.Name)
		reaches(t, "a tenant's pod on "+n.Name, p.Host, near, near.Address, near.Address, office(150))
	}
	// With such a gateway answers to clients by node ports still take the way they came.
	const local = 49
	server := w.pod(t, w.n1, "green", "server")
	w.service("green", "local", local, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, podEndpoints(server)...)
	w.serves(t, server, []client{{"outside by a node port with the policy Local", w.Outside, byNodePort(w.n1, local), nil}})
}

// restarts of an agent, and the absence of a controller, lose no packet; what comes meanwhile works
// afterwards.
func restarts(t *testing.T, w *world) {
	var streams []*probe.UDPStream
	for f := range lab.Dual.Each {
		for i, to := range []*lab.Pod{w.b, w.c} {
			at := netip.AddrPortFrom(to.Address(f), uint16(7000+i))
			s, err := probe.StartUDP(w.a.Host, to.Host, at, at, 5*time.Millisecond)
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), comeAbout)
			defer cancel()
			must(t, s.Wait(ctx, 3))
			streams = append(streams, s)
		}
	}
	if w.OVN != nil {
		w.OVN.Stop()
	}
	w.n1.KillAgent()
	must(t, w.n1.StartAgent(t.Context()))
	if w.OVN != nil {
		must(t, w.OVN.Resume())
	}
	p := w.pod(t, w.n1, "lab", "after")
	reaches(t, "a pod that came afterwards", p.Host, w.c.Host, w.c.Address, w.c.Address, p.Address)
	for _, s := range streams {
		if report := s.Stop(); len(report.Lost) > 0 || report.Sent == 0 {
			t.Errorf("while the agent restarted: %s", report)
		}
	}
}
