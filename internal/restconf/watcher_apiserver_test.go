// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package restconf

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/watcher"
)

// TestWatchedCluster has the watcher of another cluster write to RESTCONF: that cluster's pods are
// Ports of this one, also after either side was away, and what others made stays.
func TestWatchedCluster(t *testing.T) {
	s, other := serve(t), apitest.Start(t)
	source, err := kubernetes.NewForConfig(other.REST)
	if err != nil {
		t.Fatal(err)
	}
	s.addUser(t)
	ports := []v1alpha1.Port{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "default"}}}
	if err := s.client.Create(t.Context(), &ports[0]); err != nil {
		t.Fatal(err)
	}
	config := watchOf(t, s.replicas[0])
	start := func() (end func()) { return startWatcher(t, other, config) }
	pod := func(name string, addresses ...string) {
		p, err := source.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addresses[0]}
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		if _, err := source.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(want ...string) {
		t.Helper()
		want = append(want, "vm []")
		slices.Sort(want)
		var got []string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && !slices.Equal(got, want); time.Sleep(50 * time.Millisecond) {
			list := &v1alpha1.PortList{}
			if err := s.client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, p := range list.Items {
				name := p.Name
				if p.Labels[mapping.LabelPod] != "" {
					name = "pod"
				}
				got = append(got, fmt.Sprint(name, " ", p.Spec.Addresses))
			}
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Ports are %q, want %q", got, want)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := source.CoreV1().Pods("default").Delete(t.Context(), name, *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
	}

	pod("a", "10.11.2.7", "fd00:11::7")
	end := start()
	becomes("pod [10.11.2.7]", "pod [fd00:11::7]")
	pod("b", "10.11.2.8")
	becomes("pod [10.11.2.7]", "pod [10.11.2.8]", "pod [fd00:11::7]")
	end()
	remove("a")
	pod("c", "10.11.2.9")
	defer start()()
	becomes("pod [10.11.2.8]", "pod [10.11.2.9]")
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.Port{}, client.InNamespace("default"), client.HasLabels{mapping.LabelPod}); err != nil {
		t.Fatal(err)
	}
	becomes("pod [10.11.2.8]", "pod [10.11.2.9]")
}

// TestWatchedServices has the watcher of another cluster write its Services: they are Services of
// this one, with its own addresses, as long as the other has them.
func TestWatchedServices(t *testing.T) {
	s, other := serve(t), apitest.Start(t)
	source, err := client.New(other.REST, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s.addUser(t)
	name, port := "http", int32(8080)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: name, Port: 80, TargetPort: intstr.FromString("web")}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.11.2.7"}}}, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, o := range []client.Object{service, slice} {
		if err := source.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	defer startWatcher(t, other, watchOf(t, s.replicas[0]))()
	becomes := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && got != want; time.Sleep(50 * time.Millisecond) {
			services, slices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
			if err := errors.Join(s.client.List(t.Context(), services), s.client.List(t.Context(), slices)); err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, o := range services.Items {
				if o.Labels[mapping.LabelService] == string(service.UID) {
					got += fmt.Sprint(o.Name, " ", o.Spec.Ports[0].Port, " ")
				}
			}
			for _, o := range slices.Items {
				if o.Labels[mapping.LabelEndpoints] == string(service.UID) {
					got += fmt.Sprint(o.Endpoints[0].Addresses, *o.Ports[0].Port)
				}
			}
		}
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	becomes("web 80 [10.11.2.7] 8080")
	slice.Endpoints[0].Addresses[0], service.Spec.Ports[0].Port = "10.11.2.8", 81
	if err := errors.Join(source.Update(t.Context(), slice), source.Update(t.Context(), service)); err != nil {
		t.Fatal(err)
	}
	becomes("web 81 [10.11.2.8] 8080")
	made := &corev1.Service{}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(service), made); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the watcher has read twice
	again := &corev1.Service{}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(service), again); err != nil || again.ResourceVersion != made.ResourceVersion {
		t.Errorf("%v: written again without a change: version %s, then %s", err, made.ResourceVersion, again.ResourceVersion)
	}
	if err := errors.Join(source.Delete(t.Context(), slice), source.Delete(t.Context(), service)); err != nil {
		t.Fatal(err)
	}
	becomes("")
}

// addUser lets the user odl do all, by Basic.
func (s *served) addUser(t *testing.T) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: UsersSecret},
		Data:       map[string][]byte{"odl": []byte(string(hash) + " user-admin")},
	}
	if err := s.client.Create(t.Context(), users); err != nil {
		t.Fatal(err)
	}
}

// startWatcher has the watcher of a cluster run until end is called.
func startWatcher(t *testing.T, of *apitest.API, config watcher.Config) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- watcher.RunODL(ctx, slog.New(slog.DiscardHandler), of.REST, config) }()
	return func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the watcher ends with %v", err)
		}
	}
}

// watchOf are the settings of a watcher that writes to a replica.
func watchOf(t *testing.T, replica *httptest.Server) watcher.Config {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: replica.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := watcher.DefaultConfig()
	c.ODL = watcher.ODL{Host: replica.URL, Root: "/restconf/data", User: "odl", Password: "secret", CAFile: ca}
	c.Socket, c.Reread = "", metav1.Duration{Duration: time.Second}
	return c
}
