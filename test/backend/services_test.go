// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"errors"
	"fmt"
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

// service publishes a Service of both families at node port 30100 plus its number, with pods of its
// namespace as its endpoints.
func (w *world) service(namespace, name string, number int, change func(*corev1.Service), pods ...*lab.Pod) {
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
		for _, p := range pods {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{p.Address(f).String()}, NodeName: &p.Node.Name, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
		w.API.SetEndpointSlice(slice)
	}
}

func clusterIP(number int, f lab.Family) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "10.96.0.%d", lab.IPv6: "fd00:10:96::%d"}[f], number))
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
	const web, self, none, local, tenant = 40, 41, 42, 43, 44
	w.service("lab", "web", web, func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{"198.51.100.40", "fd00:51::40"}
	}, w.c)
	w.service("lab", "self", self, nil, w.a)
	w.service("lab", "none", none, nil)
	w.service("lab", "local", local, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, w.a)
	red := w.pod(t, w.n1, "red", "server")
	redClient := w.pod(t, w.n2, "red", "client")
	w.service("red", "tenant", tenant, nil, red)

	cluster := func(number int) func(lab.Family) netip.AddrPort {
		return func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(clusterIP(number, f), servicePort) }
	}
	node := func(n *lab.Node, number int) func(lab.Family) netip.AddrPort {
		return func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(n.Address(f), uint16(30100+number)) }
	}
	external := func(f lab.Family) netip.AddrPort {
		return netip.AddrPortFrom(map[lab.Family]netip.Addr{
			lab.IPv4: netip.MustParseAddr("198.51.100.40"), lab.IPv6: netip.MustParseAddr("fd00:51::40"),
		}[f], servicePort)
	}
	w.serves(t, w.c, []client{
		{"pod by a ClusterIP", w.a.Host, cluster(web), w.a.Address},
		{"the endpoint itself by a ClusterIP", w.c.Host, cluster(web), nil},
		{"pod by a node port", w.a.Host, node(w.n1, web), nil},
		{"pod by an external address", w.a.Host, external, nil},
		{"node by a ClusterIP", w.n1.Host, cluster(web), nil},
		{"the endpoint's node by a ClusterIP", w.n2.Host, cluster(web), nil},
		{"node by its node port", w.n1.Host, node(w.n1, web), nil},
		{"outside by a node port", w.Outside, node(w.n1, web), nil},
		{"outside by a node port of the endpoint's node", w.Outside, node(w.n2, web), nil},
	})
	w.serves(t, w.a, []client{
		{"pod by a ClusterIP, on its node", w.b.Host, cluster(self), w.b.Address},
		{"pod by a ClusterIP, itself", w.a.Host, cluster(self), nil},
		{"outside by a node port with the policy Local", w.Outside, node(w.n1, local), w.Outside.Address},
	})
	w.serves(t, red, []client{{"tenant by its ClusterIP", redClient.Host, cluster(tenant), nil}})
	for f := range lab.Dual.Each {
		eventually(t, f.String()+" a Service without endpoints refuses", func(ctx context.Context) error {
			c, err := probe.Dial(ctx, w.a.Host, cluster(none)(f))
			if err == nil {
				c.Close()
				return errors.New("it is served")
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			return nil
		})
		if c, err := probe.Dial(t.Context(), w.a.Host, cluster(tenant)(f)); err == nil {
			c.Close()
			t.Errorf("%s: another tenant's Service is served", f)
		}
	}
}

// serves has a pod serve clients of both families.
func (w *world) serves(t *testing.T, p *lab.Pod, clients []client) {
	t.Helper()
	for f := range lab.Dual.Each {
		for _, c := range clients {
			by(t, f, c.name, c.from, p.Host, c.at(f), netip.AddrPortFrom(p.Own("eth0", f), targetPort), c.seen)
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
