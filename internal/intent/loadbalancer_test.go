// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAnnouncements(t *testing.T) {
	ip := netip.MustParseAddr
	at := func(name string, change func(*Service), addresses ...string) Service {
		v := Service{Namespace: "shop", Name: name}
		for _, a := range addresses {
			v.Ports = append(v.Ports, ServicePort{Protocol: TCP, Port: 80, LoadBalancerIPs: []netip.Addr{ip(a)}})
		}
		if change != nil {
			change(&v)
		}
		return v
	}
	local := func(nodes ...string) func(*Service) {
		return func(v *Service) {
			v.ExternalLocal = true
			for i, n := range nodes {
				e := ServiceEndpoint{Address: ip("10.244.0.1"), Port: uint16(i), Topology: NewTopology(n, nil, nil)}
				v.Ports[0].Endpoints = append(v.Ports[0].Endpoints, e)
			}
		}
	}
	pools := []LoadBalancerPool{
		{Name: "all", Ranges: []AddressRange{{ip("192.0.2.1"), ip("192.0.2.9")}, {ip("fd01::1"), ip("fd01::9")}}, Nodes: []string{"n1", "n2", "n3"}},
		{Name: "edge", Ranges: []AddressRange{{ip("192.0.2.20"), ip("192.0.2.20")}}, Nodes: []string{"n3"}},
		{Name: "nowhere", Ranges: []AddressRange{{ip("192.0.2.30"), ip("192.0.2.31")}}},
	}
	for _, tc := range []struct {
		name     string
		pools    []LoadBalancerPool
		services []Service
		want     []Announcement
	}{
		{"no pools", nil, []Service{at("web", nil, "192.0.2.1")}, nil},
		{"no Services", pools, nil, nil},
		{"addresses of no pool", pools, []Service{at("web", nil, "192.0.2.10", "192.0.2.0", "198.51.100.1")}, nil},
		{
			"the first and the last of ranges, of two families", pools,
			[]Service{at("web", nil, "fd01::9", "192.0.2.9"), at("db", nil, "192.0.2.1", "192.0.2.20")},
			[]Announcement{
				{ip("192.0.2.1"), []string{"n1", "n2", "n3"}}, {ip("192.0.2.9"), []string{"n1", "n2", "n3"}},
				{ip("192.0.2.20"), []string{"n3"}}, {ip("fd01::9"), []string{"n1", "n2", "n3"}},
			},
		},
		{"a pool without nodes", pools, []Service{at("web", nil, "192.0.2.30")}, []Announcement{{ip("192.0.2.30"), nil}}},
		{
			"local endpoints", pools, []Service{at("web", local("n2", "n9"), "192.0.2.1")},
			[]Announcement{{ip("192.0.2.1"), []string{"n2"}}},
		},
		{
			"local endpoints on other nodes only", pools, []Service{at("web", local("n1"), "192.0.2.20")},
			[]Announcement{{ip("192.0.2.20"), nil}},
		},
		{
			"an address of two Services", pools, []Service{at("a", local("n3"), "192.0.2.1"), at("b", local("n1", "n3"), "192.0.2.1")},
			[]Announcement{{ip("192.0.2.1"), []string{"n1", "n3"}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := mustUpdate(t, NewStore(), func(tx *Tx) {
				tx.ReplaceLoadBalancerPools(tc.pools)
				tx.ReplaceServices(tc.services)
			})
			if diff := cmp.Diff(tc.want, s.Announcements(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("announcements (-want +got):\n%s", diff)
			}
			for _, p := range tc.pools { // what comes in must not be written to
				if kept, _ := s.LoadBalancerPools().Get(p.Name); !kept.equal(p) {
					t.Errorf("pool %s has become %+v", p.Name, kept)
				}
			}
		})
	}
}

func TestEndpointNodes(t *testing.T) {
	e := func(node string, terminating bool) ServiceEndpoint {
		return ServiceEndpoint{Topology: NewTopology(node, nil, nil), Terminating: terminating}
	}
	for _, tc := range []struct {
		name  string
		ports [][]ServiceEndpoint
		want  []string
	}{
		{"no endpoints", [][]ServiceEndpoint{nil}, nil},
		{"two of a node, and one of no known node", [][]ServiceEndpoint{{e("n2", false), e("n2", false), e("", false), e("n1", false)}}, []string{"n1", "n2"}},
		{"ready ones before those that terminate", [][]ServiceEndpoint{{e("n1", true), e("n2", false), e("n2", true)}}, []string{"n2"}},
		{"none is ready", [][]ServiceEndpoint{{e("n3", true)}, {e("n1", true)}}, []string{"n1", "n3"}},
		{"one port has a ready one", [][]ServiceEndpoint{{e("n3", true)}, {e("n1", false)}}, []string{"n1"}},
	} {
		var v Service
		for _, list := range tc.ports {
			v.Ports = append(v.Ports, ServicePort{Endpoints: list})
		}
		if diff := cmp.Diff(tc.want, v.EndpointNodes(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
