// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const (
	servicePort = 80
	targetPort  = 8081
)

// endpoint is a host that serves a Service, and the address by which Kubernetes knows it.
type endpoint struct {
	node    *lab.Node
	address address
}

func podEndpoints(pods ...*lab.Pod) (list []endpoint) {
	for _, p := range pods {
		list = append(list, endpoint{p.Node, p.Address})
	}
	return list
}

// service publishes a Service of both families at node port 30100 plus its number.
func (w *world) service(namespace, name string, number int, change func(*corev1.Service), endpoints ...endpoint) {
	policy := corev1.IPFamilyPolicyRequireDualStack
	four, six := clusterIP(number, lab.IPv4).String(), clusterIP(number, lab.IPv6).String()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: four, ClusterIPs: []string{four, six}, IPFamilyPolicy: &policy,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{{
				Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(targetPort), NodePort: int32(30100 + number),
			}},
		},
	}
	if change != nil {
		change(s)
	}
	w.API.SetService(s)
	for f := range lab.Dual.Each {
		protocol, port, ready := corev1.ProtocolTCP, int32(targetPort), true
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: strings.ToLower(name + "-" + f.String()), Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressType(f.String()),
			Ports:       []discoveryv1.EndpointPort{{Name: new(string), Port: &port, Protocol: &protocol}},
		}
		for _, e := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{e.address(f).String()}, NodeName: &e.node.Name, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
		w.API.SetEndpointSlice(slice)
	}
}

func clusterIP(number int, f lab.Family) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "10.96.0.%d", lab.IPv6: "fd00:10:96::%d"}[f], number))
}

// byClusterIP and byNodePort are where a Service is served.
func byClusterIP(number int) func(lab.Family) netip.AddrPort {
	return func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(clusterIP(number, f), servicePort) }
}

func byNodePort(n *lab.Node, number int) func(lab.Family) netip.AddrPort {
	return func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(n.Address(f), uint16(30100+number)) }
}

// client is a host that uses a Service.
type client struct {
	name string
	from *lab.Host
	at   func(lab.Family) netip.AddrPort
	seen address // nil: whichever
}

// services of all kinds, with an endpoint on another node than their client, and on its own.
func services(t *testing.T, w *world) {
	const web, self, none, local = 40, 41, 42, 43
	w.service("lab", "web", web, func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{"198.51.100.40", "fd00:51::40"}
	}, podEndpoints(w.c)...)
	w.service("lab", "self", self, nil, podEndpoints(w.a)...)
	w.service("lab", "none", none, nil)
	w.service("lab", "local", local, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, podEndpoints(w.a)...)
	external := func(f lab.Family) netip.AddrPort {
		return netip.AddrPortFrom(map[lab.Family]netip.Addr{
			lab.IPv4: netip.MustParseAddr("198.51.100.40"), lab.IPv6: netip.MustParseAddr("fd00:51::40"),
		}[f], servicePort)
	}
	w.serves(t, w.c, []client{
		{"pod by a ClusterIP", w.a.Host, byClusterIP(web), w.a.Address},
		{"the endpoint itself by a ClusterIP", w.c.Host, byClusterIP(web), nil},
		{"pod by a node port", w.a.Host, byNodePort(w.n1, web), nil},
		{"pod by an external address", w.a.Host, external, nil},
		{"node by a ClusterIP", w.n1.Host, byClusterIP(web), nil},
		{"the endpoint's node by a ClusterIP", w.n2.Host, byClusterIP(web), nil},
		{"node by its node port", w.n1.Host, byNodePort(w.n1, web), nil},
		{"outside by a node port", w.Outside, byNodePort(w.n1, web), nil},
		{"outside by a node port of the endpoint's node", w.Outside, byNodePort(w.n2, web), nil},
	})
	w.serves(t, w.a, []client{
		{"pod by a ClusterIP, on its node", w.b.Host, byClusterIP(self), w.b.Address},
		{"pod by a ClusterIP, itself", w.a.Host, byClusterIP(self), nil},
		{"outside by a node port with the policy Local", w.Outside, byNodePort(w.n1, local), w.Outside.Address},
	})
	for f := range lab.Dual.Each {
		eventually(t, f.String()+" a Service without endpoints refuses", func(ctx context.Context) error {
			c, err := probe.Dial(ctx, w.a.Host, byClusterIP(none)(f))
			if err == nil {
				c.Close()
				return errors.New("it is served")
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			return nil
		})
	}
}

// tenantServices serve pods of their Router, and nodes and the outside by whichever node; pods of
// others do not get by their ClusterIPs, directly or by a node, to pods that they would not reach.
func tenantServices(t *testing.T, w *world) {
	const tenant, local = 47, 48
	red := w.pod(t, w.n1, "red", "server")
	near, far := w.pod(t, w.n1, "red", "near"), w.pod(t, w.n2, "red", "far")
	w.service("red", "tenant", tenant, nil, podEndpoints(red)...)
	w.service("red", "tenant-local", local, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, podEndpoints(red)...)
	w.serves(t, red, []client{
		{"tenant by its ClusterIP", near.Host, byClusterIP(tenant), nil},
		{"tenant by its ClusterIP, on another node", far.Host, byClusterIP(tenant), nil},
		{"tenant by its node port", far.Host, byNodePort(w.n2, tenant), nil},
		{"node by a tenant's ClusterIP", w.n1.Host, byClusterIP(tenant), nil},
		{"another node by a tenant's ClusterIP", w.n2.Host, byClusterIP(tenant), nil},
		{"node by a tenant's node port", w.n1.Host, byNodePort(w.n1, tenant), nil},
		{"outside by a tenant's node port", w.Outside, byNodePort(w.n1, tenant), nil},
		{"outside by a tenant's node port of another node", w.Outside, byNodePort(w.n2, tenant), nil},
		{"outside by a tenant's node port with the policy Local", w.Outside, byNodePort(w.n1, local), w.Outside.Address},
	})
	others := map[string]*lab.Host{"pod": w.a.Host, "pod on another node": w.c.Host}
	for node, n := range map[string]*lab.Node{"": w.n1, " on another node": w.n2} {
		others["another tenant"+node] = w.pod(t, n, "blue", "visitor-"+n.Name).Host
	}
	refuses := map[string]func(lab.Family) netip.AddrPort{}
	for name := range others {
		refuses[name] = byClusterIP(tenant)
	}
	others["outside by a node without an endpoint, with the policy Local"] = w.Outside
	refuses["outside by a node without an endpoint, with the policy Local"] = byNodePort(w.n2, local)
	for f := range lab.Dual.Each {
		server, err := probe.Serve(red.Host, netip.AddrPortFrom(red.Own("eth0", f), targetPort), probe.WhoAmI)
		must(t, err)
		defer server.Close()
		for name, from := range others {
			if seen, err := probe.Seen(t.Context(), from, refuses[name](f)); !timedOut(err) {
				t.Errorf("%s: %s: a tenant's Service is served, to %s: %v", f, name, seen, err)
			}
		}
		if _, err := probe.Seen(t.Context(), near.Host, byClusterIP(tenant)(f)); err != nil {
			t.Errorf("%s: the tenant itself: %v", f, err)
		}
	}
}

// timedOut says whether there was no answer at all, not even a refusal.
func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// serves has a pod serve clients of both families.
func (w *world) serves(t *testing.T, p *lab.Pod, clients []client) {
	t.Helper()
	w.servesAt(t, p.Host, own(p, "eth0"), clients)
}

// servesAt has a host serve clients of both families at an address of its own.
func (w *world) servesAt(t *testing.T, to *lab.Host, at address, clients []client) {
	t.Helper()
	for f := range lab.Dual.Each {
		for _, c := range clients {
			by(t, f, c.name, c.from, to, c.at(f), netip.AddrPortFrom(at(f), targetPort), c.seen)
		}
	}
}

// nodeServices have processes of nodes as their endpoints, as the API server's Service has.
func nodeServices(t *testing.T, w *world) {
	const api, local, sticky = 50, 51, 52
	w.service("lab", "api", api, nil, endpoint{w.n2, w.n2.Address})
	w.service("lab", "api-local", local, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, endpoint{w.n2, w.n2.Address})
	w.service("lab", "api-sticky", sticky, func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}, endpoint{w.n2, w.n2.Address})
	w.servesAt(t, w.n2.Host, w.n2.Address, []client{
		{"pod by a ClusterIP", w.a.Host, byClusterIP(api), nil},
		{"pod of the endpoint's node by a ClusterIP", w.c.Host, byClusterIP(api), nil},
		{"node by a ClusterIP", w.n1.Host, byClusterIP(api), w.n1.Address},
		{"the endpoint itself by a ClusterIP", w.n2.Host, byClusterIP(api), nil},
		{"pod by a node port", w.a.Host, byNodePort(w.n1, api), nil},
		{"node by its node port", w.n1.Host, byNodePort(w.n1, api), w.n1.Address},
		{"node by the endpoint's node port", w.n1.Host, byNodePort(w.n2, api), nil},
		{"outside by a node port", w.Outside, byNodePort(w.n1, api), w.n1.Address},
		{"outside by a node port of the endpoint's node", w.Outside, byNodePort(w.n2, api), nil},
		{"node by its node port with the policy Local", w.n1.Host, byNodePort(w.n1, local), nil},
		{"outside by a node port with the policy Local", w.Outside, byNodePort(w.n2, local), w.Outside.Address},
		{"node by a ClusterIP with affinity", w.n1.Host, byClusterIP(sticky), w.n1.Address},
		{"outside by a node port with affinity", w.Outside, byNodePort(w.n1, sticky), w.n1.Address},
	})
	for f := range lab.Dual.Each {
		if c, err := probe.Dial(t.Context(), w.Outside, byNodePort(w.n1, local)(f)); err == nil {
			c.Close()
			t.Errorf("%s: a node without an endpoint serves clients outside, with the policy Local", f)
		}
	}
}

// balanced are addresses of load balancers, which hosts outside have a route to by n2. Clients
// inside have all endpoints, those outside the ones of the node, and see them as they are.
func balanced(t *testing.T, w *world) {
	const local, limited = 53, 54
	at := func(number int) address {
		return func(f lab.Family) netip.Addr {
			return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "198.51.100.%d", lab.IPv6: "fd00:51::%d"}[f], number))
		}
	}
	served := func(number int) func(lab.Family) netip.AddrPort {
		return func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(at(number)(f), servicePort) }
	}
	for number, ranges := range map[int][]*lab.Host{local: nil, limited: {w.Outside, w.a.Host}} {
		w.service("lab", fmt.Sprint("balanced", number), number, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
			for f := range lab.Dual.Each {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: at(number)(f).String()})
				for _, h := range ranges {
					s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
						netip.PrefixFrom(h.Address(f), h.Address(f).BitLen()).String())
				}
			}
		}, podEndpoints(w.c)...)
		for f := range lab.Dual.Each {
			_, err := w.Outside.Run(t.Context(), "ip", "route", "add", at(number)(f).String(), "via", w.n2.Address(f).String())
			must(t, err)
		}
	}
	w.serves(t, w.c, []client{
		{"outside by a load balancer's address", w.Outside, served(local), w.Outside.Address},
		{"pod of a node without an endpoint", w.a.Host, served(local), nil},
		{"node without an endpoint", w.n1.Host, served(local), nil},
		{"pod by a node port of a node without an endpoint", w.a.Host, byNodePort(w.n1, local), nil},
		{"outside, of the source ranges", w.Outside, served(limited), w.Outside.Address},
		{"pod of the source ranges", w.a.Host, served(limited), nil},
	})
	for f := range lab.Dual.Each {
		for name, from := range map[string]*lab.Host{"pod": w.b.Host, "node": w.n1.Host} {
			if c, err := probe.Dial(t.Context(), from, served(limited)(f)); err == nil {
				c.Close()
				t.Errorf("%s: a %s that is not of the source ranges is served", f, name)
			}
		}
	}
}

// hostPorts lead to a pod from everywhere, and to none when it is gone.
func hostPorts(t *testing.T, w *world) {
	p, err := w.n1.AddPod(t.Context(), "host-port", lab.PortMapping{HostPort: 8888, ContainerPort: targetPort, Protocol: "tcp"})
	must(t, err)
	at := func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(w.n1.Address(f), 8888) }
	w.serves(t, p, []client{
		{"host port from outside", w.Outside, at, w.Outside.Address},
		{"host port from its node", w.n1.Host, at, nil},
		{"host port from another node", w.n2.Host, at, w.n2.Address},
		{"host port from a pod of its node", w.a.Host, at, nil},
		{"host port from a pod of another node", w.c.Host, at, w.n2.Address},
		{"host port from the pod itself", p.Host, at, nil},
	})
	must(t, p.Delete(t.Context()))
	for f := range lab.Dual.Each {
		if c, err := probe.Dial(t.Context(), w.Outside, at(f)); err == nil {
			c.Close()
			t.Errorf("%s: the port of a pod that is gone still answers", f)
		}
	}
}
