// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func prefixesOf(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// externalWorld has the Routers default, open (shared), red and blue (private), and green, which
// imports what blue exports.
func externalWorld(allowed ...string) ExternalIPSources {
	router := func(name, imports, exports string) *v1alpha1.Router {
		return &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RouterSpec{
			ImportRouteTargets: []string{imports}, ExportRouteTargets: []string{exports},
		}}
	}
	network := func(name, router string, kind v1alpha1.NetworkType, cidrs ...string) *v1alpha1.Network {
		n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NetworkSpec{Type: kind, Router: router}}
		for _, c := range cidrs {
			n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: c})
		}
		return n
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}, {Type: corev1.NodeExternalIP, Address: "2001:db8::11"},
			{Type: corev1.NodeHostName, Address: "n1"},
		}},
	}
	pool := &v1alpha1.LoadBalancerPool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.LoadBalancerPoolStatus{Ranges: []string{"203.0.113.64/28"}}}
	return ExternalIPSources{
		Allowed: prefixesOf(allowed...), Services: prefixesOf("10.96.0.0/12", "fd00:96::/112"), Nodes: []*corev1.Node{node},
		Routers: []*v1alpha1.Router{
			router("default", v1alpha1.DefaultRouteTarget, v1alpha1.DefaultRouteTarget), router("open", v1alpha1.DefaultRouteTarget, v1alpha1.DefaultRouteTarget),
			router("red", "1:1", "1:1"), router("blue", "2:2", "2:2"), router("green", "2:2", "3:3"),
		},
		Networks: []*v1alpha1.Network{
			network("open", "open", v1alpha1.Overlay, "10.1.0.0/24"), network("red", "red", v1alpha1.Overlay, "10.2.0.0/24"),
			network("blue", "blue", v1alpha1.Overlay, "10.2.0.0/24", "10.3.0.0/24"), network("office", "", v1alpha1.VLAN, "198.51.100.0/25"),
		},
		Pools: []*v1alpha1.LoadBalancerPool{pool},
	}
}

func TestExternalIPs(t *testing.T) {
	const (
		unlisted = "is not in services.externalIPs, which an administrator sets: 203.0.113.0/24, 198.51.100.0/24, 10.0.0.0/8"
		private  = "is of a Service in the private router red, and such have external IPs only if an administrator lists them in services.externalIPs"
	)
	for _, c := range []struct{ router, ip, open, listed string }{
		{"default", "203.0.113.1", "", ""},
		{"open", "203.0.113.1", "", ""},
		{"red", "203.0.113.1", private, ""},
		{"gone", "203.0.113.1", "is of a Service in the private router gone, and such have external IPs only if an administrator lists them in services.externalIPs", ""},
		{"default", "192.0.2.1", "", unlisted},
		{"default", "2001:db8::1", "", unlisted},

		{"default", "192.0.2.11", "is an address of node n1", "is an address of node n1"},
		{"default", "2001:db8::11", "is an address of node n1", "is an address of node n1"},
		{"default", "10.244.1.9", "is in 10.244.1.0/24 of the pods of node n1", "is in 10.244.1.0/24 of the pods of node n1"},
		{"red", "fd00:10:244:1::9", "is in fd00:10:244:1::/64 of the pods of node n1", "is in fd00:10:244:1::/64 of the pods of node n1"},
		{"default", "10.96.0.1", "is in 10.96.0.0/12 of the cluster's Services", "is in 10.96.0.0/12 of the cluster's Services"},
		{
			"default", "203.0.113.64", "is an address of LoadBalancerPool edge, which Services of type LoadBalancer get",
			"is an address of LoadBalancerPool edge, which Services of type LoadBalancer get",
		},
		{"default", "203.0.113.80", "", ""},

		// The cluster's own addresses are so everywhere, those of a private Router where there are
		// routes to them.
		{"default", "10.1.0.5", "is in 10.1.0.0/24 of network open", "is in 10.1.0.0/24 of network open"},
		{"red", "10.1.0.5", "is in 10.1.0.0/24 of network open", "is in 10.1.0.0/24 of network open"},
		{"red", "10.2.0.5", "is in 10.2.0.0/24 of network red", "is in 10.2.0.0/24 of network red"},
		{"green", "10.2.0.5", "is in 10.2.0.0/24 of network blue", "is in 10.2.0.0/24 of network blue"},
		{"default", "10.3.0.5", "", ""},
		{"red", "10.3.0.5", private, ""},
		{"blue", "10.3.0.5", "is in 10.3.0.0/24 of network blue", "is in 10.3.0.0/24 of network blue"},

		// Hosts of a physical network are outside; an administrator may know which
		// of them are none.
		{"default", "198.51.100.5", "is in 198.51.100.0/25 of network office", ""},
		{"default", "198.51.100.200", "", ""},
	} {
		open, listed := NewExternalIPs(externalWorld()), NewExternalIPs(externalWorld("203.0.113.0/24", "198.51.100.0/24", "10.0.0.0/8"))
		ip := netip.MustParseAddr(c.ip)
		if got := open.Refuse(c.router, ip); got != c.open {
			t.Errorf("%s in router %s, nothing listed: %q, want %q", c.ip, c.router, got, c.open)
		}
		if got := listed.Refuse(c.router, ip); got != c.listed {
			t.Errorf("%s in router %s, some listed: %q, want %q", c.ip, c.router, got, c.listed)
		}
	}
}

// A refused external IP holds nothing from others, and comes into effect when what was in
// its way is gone.
func TestRefusedExternalIPs(t *testing.T) {
	sources := externalWorld()
	var external *ExternalIPs
	routers := map[string]string{"red-shop": "red", "shop": "default"}
	s := NewServiceSet(ServiceView{
		Router:            func(namespace string) string { return routers[namespace] },
		ExternalIPRefused: func(namespace string, ip netip.Addr) string { return external.Refuse(routers[namespace], ip) },
	})
	service := func(namespace, name string, created int64, clusterIP string, externalIPs ...string) *corev1.Service {
		svc, _ := web()
		svc.Namespace, svc.Name, svc.CreationTimestamp = namespace, name, metav1.Unix(created, 0)
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.ExternalIPs = clusterIP, []string{clusterIP}, externalIPs
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443})
		return svc
	}
	state := map[string]string{}
	has := func(want map[string]string, problems ...string) {
		t.Helper()
		c := s.Changes()
		for _, v := range c.Changed {
			state[v.Namespace+"/"+v.Name] = fmt.Sprint(v.Ports[0].ExternalIPs)
		}
		if diff := cmp.Diff(want, state); diff != "" {
			t.Errorf("external IPs (-want +got):\n%s", diff)
		}
		var got []string
		for _, p := range s.Problems() {
			got = append(got, string(p.Reason)+" "+p.Error())
		}
		if diff := cmp.Diff(problems, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	}
	now := func(change func(*ExternalIPSources)) {
		change(&sources)
		external = NewExternalIPs(sources)
		s.ExternalIPsChanged()
	}
	now(func(*ExternalIPSources) {})
	s.SetService(service("red-shop", "evil", 1, "10.96.0.10", "198.51.100.200", "192.0.2.11"))
	s.SetService(service("shop", "web", 2, "10.96.0.11", "198.51.100.200"))
	ofRed := `NotAllowed service red-shop/evil: spec.externalIPs[0]: "198.51.100.200" is of a Service in the private router red, ` +
		`and such have external IPs only if an administrator lists them in services.externalIPs`
	ofNode := `NotAllowed service red-shop/evil: spec.externalIPs[1]: "192.0.2.11" is an address of node n1`
	has(map[string]string{"red-shop/evil": "[]", "shop/web": "[198.51.100.200]"}, ofRed, ofNode)

	now(func(s *ExternalIPSources) { s.Allowed = prefixesOf("198.51.100.128/25") })
	taken := `is an external IP of service red-shop/evil on TCP port %d already; choose another address or port`
	has(map[string]string{"red-shop/evil": "[198.51.100.200]", "shop/web": "[]"}, ofNode,
		fmt.Sprintf(`Overlap service shop/web: spec.externalIPs[0]: "198.51.100.200" `+taken, 443),
		fmt.Sprintf(`Overlap service shop/web: spec.externalIPs[0]: "198.51.100.200" `+taken, 80))

	// A node comes that has the address.
	now(func(s *ExternalIPSources) {
		n := s.Nodes[0].DeepCopy()
		n.Name, n.Status.Addresses[0].Address = "n2", "198.51.100.200"
		s.Nodes = append(s.Nodes, n)
	})
	ofN2 := `spec.externalIPs[0]: "198.51.100.200" is an address of node n2`
	has(map[string]string{"red-shop/evil": "[]", "shop/web": "[]"}, "NotAllowed service red-shop/evil: "+ofN2, ofNode, "NotAllowed service shop/web: "+ofN2)
	now(func(s *ExternalIPSources) { s.Nodes, s.Allowed = s.Nodes[:1], nil })
	has(map[string]string{"red-shop/evil": "[]", "shop/web": "[198.51.100.200]"}, ofRed, ofNode)

	// The namespace moves into the cluster's own space.
	routers["red-shop"] = "open"
	s.RouterChanged("red-shop")
	if c := s.Changes(); len(c.Changed) != 2 {
		t.Errorf("%d Services have changed, want both", len(c.Changed))
	}
}
