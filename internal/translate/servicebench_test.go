// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// numbered is the Service of a number, and a slice of it with that many endpoints, on 50
// nodes in 3 zones.
func numbered(i, endpoints int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, ip := fmt.Sprintf("service-%d", i), fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: name, UID: types.UID(fmt.Sprintf("%036d", i))},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: int32(20000 + i)}},
		},
	}
	s := slice(name+"-abcde", discoveryv1.AddressTypeIPv4)
	s.Namespace, s.Labels[discoveryv1.LabelServiceName] = svc.Namespace, name
	for j := range endpoints {
		e := endpoint(fmt.Sprintf("10.%d.%d.%d", 128+i%100, j>>8, j&255), fmt.Sprintf("node-%d", (i+j)%50))
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)}
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprintf("zone-%d", (i+j)%3)}}}
		s.Endpoints = append(s.Endpoints, e)
	}
	return svc, s
}

func filled(services, endpoints int) *ServiceSet {
	set := NewServiceSet(ServiceView{Node: "node-7"})
	for i := range services {
		svc, s := numbered(i, endpoints)
		set.SetService(svc)
		set.SetEndpointSlice(s)
	}
	return set
}

// maxBytes is what a Service with ten endpoints may take in a set; it is far below
// what its objects take.
const maxBytes = 2048

func TestServiceSetIsSmall(t *testing.T) {
	const services = 2000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	set := filled(services, 10)
	if n := len(set.Changes().Changed); n != services {
		t.Fatalf("%d Services, want %d", n, services)
	}
	each := (heap() - before) / services
	runtime.KeepAlive(set)
	t.Logf("%d bytes for each Service with 10 endpoints", each)
	if each > maxBytes {
		t.Errorf("%d bytes for each Service with 10 endpoints, want at most %d", each, maxBytes)
	}
}

// One endpoint comes or goes, in sets of several sizes.
func BenchmarkEndpointChange(b *testing.B) {
	for _, c := range []struct{ services, endpoints int }{{100, 10}, {10000, 10}, {100, 1000}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", c.services, c.endpoints), func(b *testing.B) {
			set := filled(c.services, c.endpoints)
			set.Changes()
			_, s := numbered(7, c.endpoints)
			all := s.Endpoints
			for i := 0; b.Loop(); i++ {
				s.Endpoints = all[:len(all)-i%2]
				set.SetEndpointSlice(s)
				if n := len(set.Changes().Changed); n != min(i, 1) { // the first is as it was
					b.Fatalf("%d changes", n)
				}
			}
		})
	}
}

// Everything is new, as when an agent starts.
func BenchmarkAllServices(b *testing.B) {
	var services []*corev1.Service
	var endpointSlices []*discoveryv1.EndpointSlice
	for i := range 10000 {
		svc, s := numbered(i, 10)
		services, endpointSlices = append(services, svc), append(endpointSlices, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		set := NewServiceSet(ServiceView{Node: "node-7"})
		for i := range services {
			set.SetService(services[i])
			set.SetEndpointSlice(endpointSlices[i])
		}
		if n := len(set.Changes().Changed); n != len(services) {
			b.Fatalf("%d Services", n)
		}
	}
}
