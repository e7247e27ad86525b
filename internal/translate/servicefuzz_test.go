// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
)

// FuzzService reads any Service and EndpointSlice that there can be in JSON.
func FuzzService(f *testing.F) {
	svc, s := web()
	svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.ExternalIPs, svc.Spec.LoadBalancerSourceRanges = []string{"198.51.100.1"}, []string{" 10.0.0.0/8", "::/0"}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	s.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}
	one, _ := json.Marshal(svc)
	two, _ := json.Marshal(s)
	f.Add(one, two)
	f.Fuzz(func(t *testing.T, one, two []byte) {
		svc, s := &corev1.Service{}, &discoveryv1.EndpointSlice{}
		if json.Unmarshal(one, svc) != nil || json.Unmarshal(two, s) != nil {
			return
		}
		v, ok, problems := Service(svc, []*discoveryv1.EndpointSlice{s, s}, goldenView)
		if ok {
			checkService(t, v)
		}
		for _, p := range problems {
			if p.Object == "" || p.Field == "" || p.Reason == "" || p.Text == "" {
				t.Fatalf("a problem says too little: %+v", p)
			}
		}
	})
}

// checkService says what is true of every Service in intent, and of what nodes serve of it.
func checkService(t interface{ Fatalf(string, ...any) }, s intent.Service) {
	for _, p := range s.Ports {
		if !slices.IsSortedFunc(p.Endpoints, compareEndpoints) {
			t.Fatalf("not in order: %v", p.Endpoints)
		}
		for i, e := range p.Endpoints {
			if slices.Contains(p.Endpoints[:i], e) {
				t.Fatalf("%v is there twice: %+v", e, p)
			}
		}
	}
	for _, node := range []string{"n1", "n2", ""} {
		for _, zone := range []string{"a", "b", ""} {
			checkServed(t, nodeview.Service(s, nodeview.Node{Name: node, Zone: zone, Listens: goldenView.NodePortTaken}))
		}
	}
	ascending(t, s.EndpointNodes(), cmp.Compare[string])
}

func checkServed(t interface{ Fatalf(string, ...any) }, v intent.NodeService) {
	type address struct {
		ip       netip.Addr
		protocol intent.Protocol
		port     uint16
	}
	seen := map[address]bool{}
	once := func(what address, p intent.NodeServicePort) {
		if seen[what] {
			t.Fatalf("%v is there twice: %+v", what, v)
		}
		seen[what] = true
		if what.ip.IsValid() && (what.ip.Is6() != p.IPv6 || what.ip.Is4In6() || what.ip.Zone() != "") || what.port == 0 {
			t.Fatalf("%v in a port of IPv6 %v", what, p.IPv6)
		}
	}
	for _, p := range v.Ports {
		if p.ClusterIP.IsValid() {
			once(address{p.ClusterIP, p.Protocol, p.Port}, p)
		}
		for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
			once(address{ip, p.Protocol, p.Port}, p)
		}
		if p.NodePort != 0 {
			zero := netip.IPv4Unspecified()
			if p.IPv6 {
				zero = netip.IPv6Unspecified()
			}
			once(address{zero, p.Protocol, p.NodePort}, p)
		}
		if p.Protocol != intent.TCP && p.Protocol != intent.UDP && p.Protocol != intent.SCTP {
			t.Fatalf("protocol %s", p.Protocol)
		}
		for _, list := range [][]netip.Addr{p.ExternalIPs, p.LoadBalancerIPs} {
			ascending(t, list, netip.Addr.Compare)
		}
		for _, e := range p.Draining {
			if slices.Contains(p.Endpoints, e) || slices.Contains(p.LocalEndpoints, e) {
				t.Fatalf("%v drains, and gets new clients: %+v", e, p)
			}
		}
		for _, list := range [][]intent.Endpoint{p.Endpoints, p.LocalEndpoints, p.Draining} {
			ascending(t, list, intent.Endpoint.Compare)
			for _, e := range list {
				if e.Address.Is6() != p.IPv6 || e.Address.Is4In6() || e.Port == 0 || e.Address.IsLoopback() || e.Address.IsLinkLocalUnicast() {
					t.Fatalf("endpoint %v of a port of IPv6 %v", e, p.IPv6)
				}
			}
		}
		if p.Unserved && len(p.Endpoints)+len(p.LocalEndpoints)+len(p.Draining) > 0 {
			t.Fatalf("unserved, with endpoints: %+v", p)
		}
		external := p.NodePort != 0 || len(p.ExternalIPs)+len(p.LoadBalancerIPs) > 0
		if (!v.InternalLocal || external) && !p.Unserved && len(p.Endpoints) == 0 {
			t.Fatalf("served, without endpoints: %+v", p)
		}
		if !p.ClusterIP.IsValid() && !external {
			t.Fatalf("a port without address: %+v", p)
		}
	}
	ascending(t, v.Ports, func(a, b intent.NodeServicePort) int {
		return cmp.Or(-TrueFirst(a.IPv6, b.IPv6), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	for i, p := range v.SourceRanges {
		if p != p.Masked() || i > 0 && (v.SourceRanges[i-1].Addr().Compare(p.Addr()) >= 0 || v.SourceRanges[i-1].Overlaps(p)) {
			t.Fatalf("source ranges %v", v.SourceRanges)
		}
	}
}

// ascending says that a list is sorted and has nothing twice.
func ascending[T any](t interface{ Fatalf(string, ...any) }, list []T, compare func(a, b T) int) {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			t.Fatalf("not ascending: %v", list)
		}
	}
}
