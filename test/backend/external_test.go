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
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// physical is the physical network that the external Network is a VLAN of, as the Neutron of labs
// knows it.
const (
	physical   = "office"
	officeVLAN = 142
)

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
	spec := v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: physical, External: true}
	var prefixes []netip.Prefix
	for f, bits := range map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64} {
		prefix := netip.PrefixFrom(office(20)(f), bits)
		prefixes = append(prefixes, prefix)
		spec.Subnets = append(spec.Subnets, v1alpha1.Subnet{CIDR: prefix.Masked().String(), Gateway: office(254)(f).String()})
	}
	w.connected(t)
	w.network(t, "office", spec)
	near, err := w.n2.AddVLANHost(t.Context(), "br-ext", "near", officeVLAN, prefixes...)
	must(t, err)
	return near
}

// connected waits until all nodes say that they are on the physical network.
func (w *world) connected(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes {
		eventually(t, n.Name+" is on "+physical, func(context.Context) error {
			if names, _ := w.API.PhysicalNetworks(n.Name); names != physical {
				return fmt.Errorf("it says %q", names)
			}
			return nil
		})
	}
}

// externalFamilies are those of floating IPs and gateways that translate: with Neutron there are
// none of IPv6.
func (w *world) externalFamilies() lab.Family {
	if w.Neutron != nil {
		return lab.IPv4
	}
	return lab.Dual
}

// outside has FloatingIPs stand for pods of tenants with the same addresses, both ways, and a
// gateway show a tenant as one address, whichever node its pods are on.
func outside(t *testing.T, w *world) {
	near, families := w.external(t), w.externalFamilies()
	floating := map[string]*lab.Pod{}
	for i, tenant := range []string{"red", "blue"} {
		if w.Neutron != nil { // docs/develop/neutron.md: FloatingIPs of Routers without a gateway
			must(t, w.API.SetRouterGateway(tenant, v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT},
				office(140+i)(lab.IPv4).String()))
		}
		p, number := w.pod(t, w.n1, tenant, "floating"), 130+i
		floating[tenant] = p
		for f := range families.Each {
			w.API.AddFloatingIP(tenant, "web-"+strings.ToLower(f.String()), "office", office(number)(f).String(), "floating.eth0")
		}
		reachesOf(t, families, tenant+"'s floating IP", near, p.Host, office(number), own(p, "eth0"), near.Address)
		reachesOf(t, families, tenant+" by its floating IP", p.Host, near, near.Address, near.Address, office(number))
	}
	for f := range families.Each {
		w.API.RemoveFloatingIP("blue", "web-"+strings.ToLower(f.String()))
	}
	cutOffOf(t, families, "a floating IP that is gone", near, office(131))
	red := floating["red"]
	reachesOf(t, families, "the other tenant's", near, red.Host, office(130), own(red, "eth0"), near.Address)

	var gateways []string
	for f := range families.Each {
		gateways = append(gateways, office(150)(f).String())
	}
	must(t, w.API.SetRouterGateway("green", v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT}, gateways...))
	for _, n := range w.Nodes {
		p := w.pod(t, n, "green", "out-of-"+n.Name)
		reachesOf(t, families, "a tenant's pod on "+n.Name, p.Host, near, near.Address, near.Address, office(150))
	}
	t.Run("a node port of a tenant with a gateway", func(t *testing.T) {
		if w.Neutron != nil {
			t.Skip("docs/develop/neutron.md: externalTrafficPolicy: Local of Services of private Routers with a gateway")
		}
		gatewayService(t, w)
	})
}

// gatewayService has answers to clients by node ports take the way they came, also from a tenant
// that leaves by a gateway.
func gatewayService(t *testing.T, w *world) {
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
	stop, resume := w.controller()
	stop()
	w.n1.KillAgent()
	must(t, w.n1.StartAgent(t.Context()))
	must(t, resume())
	p := w.pod(t, w.n1, "lab", "after")
	reaches(t, "a pod that came afterwards", p.Host, w.c.Host, w.c.Address, w.c.Address, p.Address)
	for _, s := range streams {
		if report := s.Stop(); len(report.Lost) > 0 || report.Sent == 0 {
			t.Errorf("while the agent restarted: %s", report)
		}
	}
}

// controller ends and starts the controller's half of the backend.
func (w *world) controller() (stop func(), resume func() error) {
	switch w.backend {
	case config.OVNBackend:
		return w.OVN.Stop, w.OVN.Resume
	case config.NeutronBackend:
		return w.Neutron.StopController, w.Neutron.StartController
	default:
		return func() {}, func() error { return nil }
	}
}
