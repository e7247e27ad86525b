// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The port of Services, over TCP and UDP alike, and those of the servers.
const (
	frontPort = 80
	tcpPort   = 8080
	udpPort   = 8081
)

// tcpAndUDP are the protocols of the servers.
var tcpAndUDP = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

// dualService is a Service of the servers with this label, in both families, with one port
// over TCP and UDP.
func dualService(name, app string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: servicesNamespace},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Selector:       map[string]string{"app": app},
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: frontPort, TargetPort: intstr.FromInt32(tcpPort)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: frontPort, TargetPort: intstr.FromInt32(udpPort)},
			},
		},
	}
}

// of changes a Service before it is made.
func of(s *corev1.Service, change func(*corev1.ServiceSpec)) *corev1.Service {
	change(&s.Spec)
	return s
}

// nodePort makes it one of type NodePort.
func nodePort(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }

// makeService makes the Service, for as long as the test runs.
func makeService(ctx context.Context, t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	services := world.api.CoreV1().Services(s.Namespace)
	made, err := services.Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(ctx), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return made
}

// clusterIP asks the Service at its own address of the family.
func clusterIP(t *testing.T, s *corev1.Service, f family, p corev1.Protocol) question {
	t.Helper()
	for _, text := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil && f.has(a) {
			return question{p, netip.AddrPortFrom(a, frontPort)}
		}
	}
	t.Fatalf("Service %s has no %s address", s.Name, f)
	return question{}
}

// atNode asks the Service at its node port.
func atNode(t *testing.T, s *corev1.Service, node place, f family, p corev1.Protocol) question {
	t.Helper()
	for _, port := range s.Spec.Ports {
		if port.Protocol == p && port.NodePort != 0 {
			return question{p, netip.AddrPortFrom(node.address(f), uint16(port.NodePort))}
		}
	}
	t.Fatalf("Service %s has no %s node port", s.Name, p)
	return question{}
}

// balanced waits for the load balancer's address of the family, and asks there.
func balanced(ctx context.Context, t *testing.T, s *corev1.Service, f family, p corev1.Protocol) question {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	var found netip.Addr
	err := eventually(ctx, func() error {
		now, err := world.api.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, i := range now.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil && f.has(a) {
				if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
					return fmt.Errorf("the mode of %s is %v, want VIP", a, i.IPMode)
				}
				found = a
				return nil
			}
		}
		return errors.New("it has no address")
	})
	if err != nil {
		t.Fatalf("Service %s, %s: %v", s.Name, f, err)
	}
	return question{p, netip.AddrPortFrom(found, frontPort)}
}

// makeSlice makes endpoints for a Service without a selector: one address, and its ports by the
// names that the Service has for them.
func makeSlice(ctx context.Context, t *testing.T, s *corev1.Service, a netip.Addr, ports map[corev1.Protocol]int32) {
	t.Helper()
	kind := discoveryv1.AddressTypeIPv4
	if a.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: s.Name + "-", Namespace: s.Namespace,
			Labels:          map[string]string{discoveryv1.LabelServiceName: s.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}},
		},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{a.String()}}},
	}
	for _, p := range s.Spec.Ports {
		if number, ok := ports[p.Protocol]; ok {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: new(p.Name), Protocol: new(p.Protocol), Port: new(number),
			})
		}
	}
	if _, err := world.api.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
