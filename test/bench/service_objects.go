// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serviceNamespace is where all Services are.
const serviceNamespace = "default"

// service is a Service of IPv4 with one TCP port. All of its endpoints have the port serverPort.
type service struct {
	name    string
	address netip.AddrPort
}

func (s service) object() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: serviceNamespace, Name: s.name},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			Selector:   map[string]string{"app": s.name},
			ClusterIP:  s.address.Addr().String(),
			ClusterIPs: []string{s.address.Addr().String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{{
				Name: "main", Protocol: corev1.ProtocolTCP, Port: int32(s.address.Port()),
				TargetPort: intstr.FromInt32(serverPort),
			}},
			SessionAffinity:       corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
}

// slice is the only EndpointSlice of the Service. All endpoints are ready and on the node.
func (s service) slice(node string, endpoints ...netip.Addr) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: serviceNamespace, Name: s.name + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: s.name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("main"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(serverPort)),
		}},
	}
	for _, a := range endpoints {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return o
}
