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
				{ip("192.0.2.1"), []string{"n1", "n2", "n3"}, false}, {ip("192.0.2.9"), []string{"n1", "n2", "n3"}, false},
				{ip("192.0.2.20"), []string{"n3"}, false}, {ip("fd01::9"), []string{"n1", "n2", "n3"}, false},
			},
		},
		{"a pool without nodes", pools, []Service{at("web", nil, "192.0.2.30")}, []Announcement{{ip("192.0.2.30"), nil, false}}},
		{
			"local endpoints", pools, []Service{at("web", local("n2", "n9"), "192.0.2.1")},
			[]Announcement{{ip("192.0.2.1"), []string{"n2"}, false}},
		},
		{
			"local endpoints on other nodes only", pools, []Service{at("web", local("n1"), "192.0.2.20")},
			[]Announcement{{ip("192.0.2.20"), nil, false}},
		},
		{
			"an address of two Services", pools, []Service{at("a", local("n3"), "192.0.2.1"), at("b", local("n1", "n3"), "192.0.2.1")},
			[]Announcement{{ip("192.0.2.1"), []string{"n1", "n3"}, false}},
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

// TestFloatingAnnouncements has nodes answer for floating IPs that are connected to the physical
// network.
func TestFloatingAnnouncements(t *testing.T) {
	ip := netip.MustParseAddr
	office := Network{Name: "office", Physical: "dc", External: true}
	nodes := []Node{
		{Name: "n1", PhysicalNetworks: []string{"dc"}}, {Name: "n2", PhysicalNetworks: []string{"dc", "lab"}},
		{Name: "n3", PhysicalNetworks: []string{"lab"}}, {Name: "n4"}, {Name: "n5", PhysicalNetworks: []string{"dc"}, Withdrawn: true},
	}
	web := Service{Namespace: "shop", Name: "web", Ports: []ServicePort{{Port: 80, Endpoints: []ServiceEndpoint{
		{Address: ip("10.0.0.1"), Topology: NewTopology("n2", nil, nil)}, {Address: ip("10.0.0.2"), Topology: NewTopology("n3", nil, nil)},
	}}}}
	local := web
	local.ExternalLocal = true
	f := FloatingIP{Name: "shop/f", Network: "office", Address: ip("192.0.2.1"), Service: "shop/web"}
	change := func(change func(*FloatingIP)) FloatingIP {
		f := f
		change(&f)
		return f
	}
	for _, tc := range []struct {
		name    string
		network Network
		service Service
		f       FloatingIP
		want    []Announcement
	}{
		{"no such Service", office, web, change(func(f *FloatingIP) { f.Service = "shop/db" }), nil},
		{"a Port", office, web, change(func(f *FloatingIP) { f.Service, f.Port = "", "shop/web" }), nil},
		{"no such Network", office, web, change(func(f *FloatingIP) { f.Network = "dmz" }), nil},
		{"not external", Network{Name: "office", Physical: "dc"}, web, f, nil},
		{"not of the Service's family", office, web, change(func(f *FloatingIP) { f.Address = ip("2001:db8::1") }), nil},
		{"connected nodes", office, web, f, []Announcement{{f.Address, []string{"n1", "n2"}, true}}},
		{"connected nodes with an endpoint", office, local, f, []Announcement{{f.Address, []string{"n2"}, true}}},
		{"no connected node", Network{Name: "office", Physical: "attic", External: true}, web, f, []Announcement{{f.Address, nil, true}}},
	} {
		s := mustUpdate(t, NewStore(), func(tx *Tx) {
			tx.ReplaceNodes(nodes)
			tx.SetNetwork(tc.network)
			tx.SetService(tc.service)
			tx.SetFloatingIP(tc.f)
		})
		if diff := cmp.Diff(tc.want, s.Announcements(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
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
