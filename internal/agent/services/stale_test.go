// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
)

// udp is a Service with a UDP port at 10.96.0.10:53, and what change makes of it.
func udp(change func(*intent.NodeServicePort), endpoints ...string) intent.NodeService {
	p := intent.NodeServicePort{Protocol: intent.UDP, Port: 53, ClusterIP: netip.MustParseAddr("10.96.0.10")}
	for _, e := range endpoints {
		p.Endpoints = append(p.Endpoints, intent.Endpoint{Address: netip.MustParseAddr(e), Port: 5353})
	}
	if change != nil {
		change(&p)
	}
	tcp := p
	tcp.Protocol = intent.TCP
	return intent.NodeService{Namespace: "kube-system", Name: "dns", Ports: []intent.NodeServicePort{tcp, p}}
}

func TestStale(t *testing.T) {
	external := func(p *intent.NodeServicePort) {
		p.NodePort = 30053
		p.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	}
	drains := func(p *intent.NodeServicePort) {
		p.Draining = []intent.Endpoint{{Address: netip.MustParseAddr("10.244.0.1"), Port: 5353}}
	}
	six := udp(func(p *intent.NodeServicePort) {
		p.IPv6, p.ClusterIP, p.NodePort = true, netip.MustParseAddr("fd00::10"), 30053
	}, "fd00:10::1")
	for _, tc := range []struct {
		name     string
		old, now intent.NodeService
		want     []string
	}{
		{"nothing changed", udp(nil, "10.244.0.1"), udp(nil, "10.244.0.1"), nil},
		{"new", intent.NodeService{}, udp(nil, "10.244.0.1"), nil},
		{"an endpoint came", udp(nil, "10.244.0.1"), udp(nil, "10.244.0.1", "10.244.0.2"), nil},
		{"an endpoint went", udp(nil, "10.244.0.1", "10.244.0.2"), udp(nil, "10.244.0.2"), []string{"10.96.0.10:53 -> 10.244.0.1:5353"}},
		{"an endpoint drains", udp(nil, "10.244.0.1", "10.244.0.2"), udp(drains, "10.244.0.2"), nil},
		{"a drained endpoint went", udp(drains, "10.244.0.2"), udp(nil, "10.244.0.2"), []string{"10.96.0.10:53 -> 10.244.0.1:5353"}},
		{"all endpoints went", udp(nil, "10.244.0.1", "10.244.0.2"), udp(nil),
			[]string{"10.96.0.10:53 -> 10.244.0.1:5353", "10.96.0.10:53 -> 10.244.0.2:5353"}},
		{"the Service went", udp(nil, "10.244.0.1", "10.244.0.2"), intent.NodeService{}, []string{"10.96.0.10:53 -> any"}},
		{"the address changed", udp(nil, "10.244.0.1"),
			udp(func(p *intent.NodeServicePort) { p.ClusterIP = netip.MustParseAddr("10.96.0.11") }, "10.244.0.1"), []string{"10.96.0.10:53 -> any"}},
		{"outside addresses came", udp(nil, "10.244.0.1"), udp(external, "10.244.0.1"), nil},
		{"outside addresses went", udp(external, "10.244.0.1"), udp(nil, "10.244.0.1"),
			[]string{"192.0.2.1:53 -> any", "any:30053 -> any"}},
		{"an endpoint of outside addresses went", udp(external, "10.244.0.1", "10.244.0.2"), udp(external, "10.244.0.2"),
			[]string{"10.96.0.10:53 -> 10.244.0.1:5353", "192.0.2.1:53 -> 10.244.0.1:5353", "any:30053 -> 10.244.0.1:5353"}},
		{"IPv6 went", six, intent.NodeService{}, []string{"[fd00::10]:53 -> any", "any6:30053 -> any"}},
	} {
		balanced := stale(tc.old, tc.now)
		var got []string
		for _, b := range balanced {
			at, to := b.Service.String(), "any"
			if !b.Service.Addr().IsValid() {
				at = fmt.Sprintf("any%s:%d", six6(b.IPv6), b.Service.Port())
			}
			if b.Endpoint.Address.IsValid() {
				to = netip.AddrPortFrom(b.Endpoint.Address, b.Endpoint.Port).String()
			}
			got = append(got, at+" -> "+to)
		}
		slices.SortFunc(got, cmp.Compare[string])
		if diff := gocmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func six6(ipv6 bool) string {
	if ipv6 {
		return "6"
	}
	return ""
}
