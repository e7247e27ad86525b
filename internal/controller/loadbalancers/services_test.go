// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/translate"
)

func endpoints(addressType discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
	port, node := int32(80), "worker1"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "a", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: addressType, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node})
	}
	return s
}

func clusterIPService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: "u",
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5"}, ExternalIPs: []string{"2001:db8::1"},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}, Selector: map[string]string{"app": "web"},
		},
	}
}

// What memory keeps of Services and EndpointSlices is as wrong as they are.
func TestSlimServicesHaveTheSameProblems(t *testing.T) {
	for _, c := range []struct {
		name      string
		slice     *discoveryv1.EndpointSlice
		endpoints int // that are kept
	}{
		{"sound", endpoints(discoveryv1.AddressTypeIPv4, "10.244.1.5", "10.244.1.6"), 1},
		{"sound, IPv6", endpoints(discoveryv1.AddressTypeIPv6, "fd00::5"), 1},
		{"names", endpoints(discoveryv1.AddressTypeFQDN, "example.org"), 1},
		{"empty", endpoints(discoveryv1.AddressTypeIPv4), 0},
		{"wrong family", endpoints(discoveryv1.AddressTypeIPv4, "10.244.1.5", "fd00::5", "fd00::6"), 3},
		{"loopback", endpoints(discoveryv1.AddressTypeIPv4, "10.244.1.5", "127.0.0.1"), 2},
		{"link-local", endpoints(discoveryv1.AddressTypeIPv6, "fe80::1"), 1},
		{"text", endpoints(discoveryv1.AddressTypeIPv4, "web"), 1},
		{"nothing", &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "a", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: endpoints("").Ports, Endpoints: make([]discoveryv1.Endpoint, 2),
		}, 2},
		{"port", &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "a", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: make([]discoveryv1.EndpointPort, 1),
		}, 0},
	} {
		svc := clusterIPService("web")
		slimmed, err := reconcile.TrimForCache(c.slice.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		kept := slimmed.(*discoveryv1.EndpointSlice)
		slimSvc, err := reconcile.TrimForCache(svc.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		if len(kept.Endpoints) != c.endpoints {
			t.Errorf("%s: %d endpoints are kept, want %d", c.name, len(kept.Endpoints), c.endpoints)
		}
		before := translate.ServiceProblems([]*corev1.Service{svc}, []*discoveryv1.EndpointSlice{c.slice})
		after := translate.ServiceProblems([]*corev1.Service{slimSvc.(*corev1.Service)}, []*discoveryv1.EndpointSlice{kept})
		if diff := cmp.Diff(before, after); diff != "" || len(before) == 0 {
			t.Errorf("%s: problems (-before +after):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(map[string]string{"a": "b"}, slimSvc.(*corev1.Service).Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	}
}

// Each problem is reported once by this controller and the previous one together: the Events of
// that are there.
func TestProblemsAreToldOnce(t *testing.T) {
	svc := clusterIPService("web")
	known := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "a", Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: "a", Name: "web", UID: "u"},
		Source:         corev1.EventSource{Component: reconcile.EventSource},
		Reason:         "Malformed", Message: `spec.externalIPs[0]: "2001:db8::1" is IPv6, which the Service is not; add IPv6 to spec.ipFamilies`,
	}
	for _, events := range [][]*corev1.Event{nil, {known}} {
		a := reconciletest.Access(svc)
		for _, e := range events {
			if err := a.Create(t.Context(), e.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		recorder := a.Events.(*record.FakeRecorder)
		r := &services{Access: a, events: eventsOfServices()}
		look := func(name string) {
			t.Helper()
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: reconcile.RequestFor("a", name)[0].NamespacedName}); err != nil {
				t.Fatal(err)
			}
		}
		want := 1 - len(events)
		for range 3 {
			look("web")
		}
		if got := len(recorder.Events); got != want {
			t.Errorf("%d Events there: %d are made, want %d: %s", len(events), got, want, <-recorder.Events)
		}
		for _, addresses := range [][]string{nil, {"2001:db8::1"}} {
			now := &corev1.Service{}
			if _, err := a.Find(t.Context(), "a", "web", now); err != nil {
				t.Fatal(err)
			}
			now.Spec.ExternalIPs = addresses
			if err := a.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			look("web")
		}
		if got := len(recorder.Events); got != want+1 {
			t.Errorf("%d Events there: %d are made when it is wrong again, want %d", len(events), got, want+1)
		}
		if err := a.Create(t.Context(), endpoints(discoveryv1.AddressTypeIPv4, "fd00::5")); err != nil {
			t.Fatal(err)
		}
		look(ofSlice + "web-x")
		if got := len(recorder.Events); got != want+2 {
			t.Errorf("%d Events there: %d are made with a bad EndpointSlice, want %d", len(events), got, want+2)
		}
		for len(recorder.Events) > 0 {
			t.Log(<-recorder.Events)
		}
	}
}

// An external IP is reported if a node gets it later, and one that is not allowed.
func TestRefusedExternalIPsAreTold(t *testing.T) {
	svc := clusterIPService("web")
	svc.Spec.ExternalIPs = []string{"198.51.100.7"}
	a := reconciletest.Access(svc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	recorder := a.Events.(*record.FakeRecorder)
	r := &services{Access: a, events: eventsOfServices(), mapping: config.MapFlat}
	look := func(namespace, name, want string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: reconcile.RequestFor(namespace, name)[0].NamespacedName}); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if got != want {
			t.Errorf("Event %q, want %q", got, want)
		}
	}
	look("a", "web", "")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "198.51.100.7"}}}}
	if err := a.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	look("", "all", `Warning NotAllowed spec.externalIPs[0]: "198.51.100.7" is an address of node n1`)
	look("", "all", "")
	if err := a.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	look("", "all", "")
	r.allowed = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	look("", "all", `Warning NotAllowed spec.externalIPs[0]: "198.51.100.7" is not in services.externalIPs, which an administrator sets: 203.0.113.0/24`)
}
