// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
)

// web is a Service with one port and an EndpointSlice with an endpoint on n1, which tests change.
func web() (*corev1.Service, *discoveryv1.EndpointSlice) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	return svc, slice("web-1", discoveryv1.AddressTypeIPv4, endpoint("10.244.1.2", "n1"))
}

func slice(name string, family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: family, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080))}},
	}
}

func endpoint(address, node string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node}
}

func ptr[T any](v T) *T { return &v }

// What cannot be used is a Problem that names the object and the field, and all else of
// the Service is there.
func TestBadServices(t *testing.T) {
	const served = "TCP 80 10.96.0.10 -> 10.244.1.2:8080"
	for name, c := range map[string]struct {
		change   func(svc *corev1.Service, s *discoveryv1.EndpointSlice)
		want     string // the ports
		problems []string
	}{
		"nothing wrong": {change: func(*corev1.Service, *discoveryv1.EndpointSlice) {}, want: served},

		"ClusterIP that is none": {
			change:   func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) { svc.Spec.ClusterIPs[0] = "10.96.0.300" },
			problems: []string{`service shop/web: spec.clusterIPs[0]: "10.96.0.300" is not an IP address`},
		},
		"ClusterIP of another family than it says": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) { svc.Spec.IPFamilies[0] = corev1.IPv6Protocol },
			problems: []string{
				`service shop/web: spec.clusterIPs[0]: "10.96.0.10" is not of the family IPv6 that spec.ipFamilies[0] says; create the Service anew`,
			},
		},
		"two ClusterIPs of a family": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, "10.96.0.11")
			},
			want:     served,
			problems: []string{`service shop/web: spec.clusterIPs[1]: "10.96.0.11" is the second IPv4 address; a Service has at most one of each family`},
		},
		"unknown protocol": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "x", Protocol: "DCCP", Port: 81})
			},
			want:     served,
			problems: []string{`service shop/web: spec.ports[1].protocol: "DCCP" is not TCP, UDP or SCTP`},
		},
		"ports out of range": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Ports = append(svc.Spec.Ports,
					corev1.ServicePort{Name: "a", Port: 65536}, corev1.ServicePort{Name: "b", Port: 0}, corev1.ServicePort{Name: "c", Port: 81, NodePort: -1})
			},
			want: served,
			problems: []string{
				`service shop/web: spec.ports[1].port: "65536" is not a port: those are 1 to 65535`,
				`service shop/web: spec.ports[2].port: "0" is not a port: those are 1 to 65535`,
				`service shop/web: spec.ports[3].nodePort: "-1" is not a port: those are 1 to 65535`,
			},
		},
		"the same port twice": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "other", Port: 80}, corev1.ServicePort{Name: "dns", Protocol: "UDP", Port: 80})
			},
			want:     served + "\nUDP 80 10.96.0.10 unserved",
			problems: []string{`service shop/web: spec.ports[1].port: "80" is there twice with protocol TCP`},
		},
		"the same node port twice": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "other", Port: 81, NodePort: 30080})
			},
			want:     "TCP 80 10.96.0.10 node 30080 -> 10.244.1.2:8080\nTCP 81 10.96.0.10 unserved",
			problems: []string{`service shop/web: spec.ports[1].nodePort: "30080" is the TCP node port of this very Service already; choose another`},
		},
		"node port that the host uses": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30022
			},
			want: served,
			problems: []string{
				`service shop/web: spec.ports[0].nodePort: "30022" is a TCP port that a process of node n1 listens on, ` +
					`and so leads to that process there; end it, or choose another port`,
			},
		},
		"external IPs that are none": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.ExternalIPs = []string{
					"", "web.example.net", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "::ffff:192.0.2.1", "fd69:c0e1::2",
					"192.0.2.1",
				}
			},
			want: "TCP 80 10.96.0.10 external 192.0.2.1 -> 10.244.1.2:8080",
			problems: []string{
				`service shop/web: spec.externalIPs[1]: "web.example.net" is not an IP address`,
				`service shop/web: spec.externalIPs[2]: "127.0.0.1" is a loopback address, which every host has for itself; choose one that all nodes can reach`,
				`service shop/web: spec.externalIPs[3]: "169.254.169.254" is a link-local address, which other links cannot reach; choose one that all nodes can reach`,
				`service shop/web: spec.externalIPs[4]: "224.0.0.1" is a multicast address; Services are unicast`,
				`service shop/web: spec.externalIPs[5]: "0.0.0.0" is the unspecified address, at which nobody can be reached`,
				`service shop/web: spec.externalIPs[6]: "255.255.255.255" is the broadcast address; Services are unicast`,
				`service shop/web: spec.externalIPs[7]: "::ffff:192.0.2.1" is an IPv4 address in the form of an IPv6 one; write 192.0.2.1`,
				`service shop/web: spec.externalIPs[8]: "fd69:c0e1::2" is an address that Coelan uses inside of every node; choose another`,
			},
		},
		"external IP of a family that the Service is not of": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.ExternalIPs = []string{"2001:db8::1"}
			},
			want:     served,
			problems: []string{`service shop/web: spec.externalIPs[0]: "2001:db8::1" is IPv6, which the Service is not; add IPv6 to spec.ipFamilies`},
		},
		"external IP that is its own ClusterIP": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) { svc.Spec.ExternalIPs = []string{"10.96.0.10"} },
			want:   served,
			problems: []string{
				`service shop/web: spec.externalIPs[0]: "10.96.0.10" is the ClusterIP of this very Service on TCP port 80 already; choose another address or port`,
			},
		},
		"load balancer's address that is none": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.net"}, {IP: "fe80::1"}, {IP: "2001:db8::1"}}
			},
			want: served,
			problems: []string{
				`service shop/web: status.loadBalancer.ingress[1].ip: "fe80::1" is a link-local address, which other links cannot reach; ` +
					`choose one that all nodes can reach`,
			},
		},
		"affinity that lasts too long": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(86401))}}
			},
			want: served,
			problems: []string{
				`service shop/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: "86401" is not 1 to 86400; it is 10800 seconds instead`,
			},
		},
		"health check at a port that is none": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
				svc.Spec.HealthCheckNodePort = 70000
			},
			want:     served,
			problems: []string{`service shop/web: spec.healthCheckNodePort: "70000" is not a port: those are 1 to 65535`},
		},
		"source range that is none": {
			change: func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
				svc.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8 ", "10.0.0.0/33"}
			},
			want: served,
			problems: []string{
				`service shop/web: spec.loadBalancerSourceRanges[1]: "10.0.0.0/33" is not a CIDR, and so lets nobody in; write it as 192.0.2.0/24 or 2001:db8::/32`,
			},
		},

		"endpoints that nobody can reach": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				for _, a := range []string{"127.0.0.1", "169.254.0.1", "239.0.0.1", "0.0.0.0", "::ffff:10.244.1.3", "pod", "127.0.0.2"} {
					s.Endpoints = append(s.Endpoints, endpoint(a, "n1"))
				}
			},
			want: served,
			problems: []string{
				`endpointslice shop/web-1: endpoints[1].addresses[0]: "127.0.0.1" is a loopback address, which every host has for itself; ` +
					`choose one that all nodes can reach (and 1 more like it)`,
				`endpointslice shop/web-1: endpoints[2].addresses[0]: "169.254.0.1" is a link-local address, which other links cannot reach; ` +
					`choose one that all nodes can reach`,
				`endpointslice shop/web-1: endpoints[3].addresses[0]: "239.0.0.1" is a multicast address; Services are unicast`,
				`endpointslice shop/web-1: endpoints[4].addresses[0]: "0.0.0.0" is the unspecified address, at which nobody can be reached`,
				`endpointslice shop/web-1: endpoints[5].addresses[0]: "::ffff:10.244.1.3" is an IPv4 address in the form of an IPv6 one; write 10.244.1.3`,
				`endpointslice shop/web-1: endpoints[6].addresses[0]: "pod" is not an IP address`,
			},
		},
		"endpoint of the wrong family": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				s.Endpoints = append(s.Endpoints, endpoint("fd00:10:244::1", "n1"))
			},
			want: served,
			problems: []string{
				`endpointslice shop/web-1: endpoints[1].addresses[0]: "fd00:10:244::1" is not an IPv4 address, as addressType says; put it into a slice of its own family`,
			},
		},
		"slice of a family that the Service has not": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				s.AddressType, s.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{endpoint("fd00:10:244::1", "n1")}
			},
			want: "TCP 80 10.96.0.10 unserved",
			problems: []string{
				`endpointslice shop/web-1: addressType: "IPv6" is a family of which the Service has no address, so that nobody gets these endpoints; put it into spec.ipFamilies of the Service`,
			},
		},
		"slice of a family that the Service has not, by Kubernetes": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				s.AddressType, s.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{endpoint("fd00:10:244::1", "n1")}
				s.Labels[discoveryv1.LabelManagedBy] = sliceController
			},
			want: "TCP 80 10.96.0.10 unserved",
		},
		"endpoint without address": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{})
			},
			want:     served,
			problems: []string{`endpointslice shop/web-1: endpoints[1].addresses: an endpoint needs an address`},
		},
		"slice's ports that are none": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
				s.Ports[0].Port = nil
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: ptr(int32(0))},
					discoveryv1.EndpointPort{Port: ptr(int32(1)), Protocol: ptr(corev1.Protocol("DCCP"))})
			},
			want: "TCP 80 10.96.0.10 unserved",
			problems: []string{
				`endpointslice shop/web-1: ports[0].port: a Service needs the number of the port; set it`,
				`endpointslice shop/web-1: ports[1].port: "0" is not a port: those are 1 to 65535`,
				`endpointslice shop/web-1: ports[2].protocol: "DCCP" is not TCP, UDP or SCTP`,
			},
		},
		"slice of names": {
			change: func(_ *corev1.Service, s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
			want:   "TCP 80 10.96.0.10 unserved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			svc, s := web()
			c.change(svc, s)
			v, ok, problems := Service(svc, []*discoveryv1.EndpointSlice{s}, ServiceView{
				Node:          "n1",
				NodePortTaken: func(p intent.Protocol, port uint16) bool { return p == intent.TCP && port == 30022 },
			})
			if ok != (c.want != "") {
				t.Errorf("there is a Service: %v", ok)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Error())
			}
			if diff := cmp.Diff(c.problems, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, showPorts(v)); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

// showPorts is one line for each port of a Service on node n1.
func showPorts(v intent.Service) string {
	var lines []string
	for _, p := range nodeview.Service(v, goldenNode).Ports {
		lines = append(lines, showServicePort(p))
	}
	return strings.Join(lines, "\n")
}

func showServicePort(p intent.NodeServicePort) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", p.Protocol, p.Port)
	if p.ClusterIP.IsValid() {
		fmt.Fprintf(&b, " %s", p.ClusterIP)
	}
	if p.NodePort != 0 {
		fmt.Fprintf(&b, " node %d", p.NodePort)
	}
	for _, ip := range p.ExternalIPs {
		fmt.Fprintf(&b, " external %s", ip)
	}
	for _, ip := range p.LoadBalancerIPs {
		fmt.Fprintf(&b, " balancer %s", ip)
	}
	endpoints := func(arrow string, list []intent.Endpoint) {
		if len(list) > 0 {
			fmt.Fprintf(&b, " %s", arrow)
		}
		for _, e := range list {
			fmt.Fprintf(&b, " %s:%d", e.Address, e.Port)
		}
	}
	endpoints("->", p.Endpoints)
	endpoints("local", p.LocalEndpoints)
	endpoints("draining", p.Draining)
	if p.Unserved {
		b.WriteString(" unserved")
	}
	return b.String()
}

// An endpoint that is in several slices is there once, also with one between that says something
// else of the same address.
func TestEndpointsInSeveralSlices(t *testing.T) {
	svc, first := web()
	other := slice("web-2", discoveryv1.AddressTypeIPv4, endpoint("10.244.1.2", "n2"), endpoint("10.244.1.3", "n1"))
	again := slice("web-3", discoveryv1.AddressTypeIPv4, endpoint("10.244.1.2", "n1"))
	v, ok, problems := Service(svc, []*discoveryv1.EndpointSlice{first, other, again}, ServiceView{})
	if !ok || len(problems) > 0 || len(v.Ports) != 1 {
		t.Fatalf("%+v, %v", v, problems)
	}
	var got []string
	for _, e := range v.Ports[0].Endpoints {
		got = append(got, e.Address.String()+" on "+e.Topology.Node())
	}
	want := []string{"10.244.1.2 on n1", "10.244.1.2 on n2", "10.244.1.3 on n1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
