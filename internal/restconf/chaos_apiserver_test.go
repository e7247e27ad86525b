// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package restconf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/restconf/mapping"
)

// TestClusterToCluster has the watcher of one cluster write to RESTCONF of another while pods and
// Services come and go, and kills the watcher, RESTCONF and the API server of either side at random
// points: at the end, the one has what the other has.
func TestClusterToCluster(t *testing.T) {
	const leastKills = 4
	s, other := serve(t), apitest.Start(t)
	source, err := client.New(other.REST, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s.addUser(t)
	vm := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "default"}}
	if err := s.client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	config := watchOf(t, s.replicas[0])
	stop := startWatcher(t, other, config)
	c := &churn{T: t, api: source, changed: make(chan struct{})}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	kills := map[string]int{}
	for until := time.Now().Add(*load); len(kills) < leastKills || time.Now().Before(until); {
		for range rand.IntN(20) {
			<-c.changed
		}
		what := []string{"watcher", "RESTCONF", "source", "target"}[rand.IntN(leastKills)]
		if *load == 0 && kills[what] > 0 {
			continue
		}
		kills[what]++
		switch what {
		case "watcher":
			stop()
			<-c.changed
			stop = startWatcher(t, other, config)
		case "RESTCONF":
			s.restart(0, func() { <-c.changed })
		case "source":
			c.mu.Lock()
			other.StopServer()
			err := other.StartServer(t.Context())
			c.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		case "target":
			s.server.StopServer()
			<-c.changed
			if err := s.server.StartServer(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	end()
	<-done
	defer func() { stop() }()
	want := c.want(t)
	var got []string
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && !slices.Equal(got, want); time.Sleep(50 * time.Millisecond) {
		got = s.mirrored(t)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the clusters differ (-source +target):\n%s", diff)
	}
	seen := s.want(200, "GET", "/restconf/ds/ietf-datastores:operational/pod:coe", "").body
	for _, line := range want {
		if uid, pod := strings.CutPrefix(line, "pod "); pod && !strings.Contains(seen, strings.Fields(uid)[0]) {
			t.Errorf("pod:coe does not have %s", line)
		}
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(vm), vm); err != nil {
		t.Errorf("what is of no other cluster is gone: %v", err)
	}
	t.Logf("%d changes, killed: %v; %d objects at the end", c.changes, kills, len(want))
}

// restart ends a replica, does something, and starts the replica again at its address.
func (s *served) restart(i int, between func()) {
	s.Helper()
	old := s.replicas[i]
	old.CloseClientConnections()
	old.Close()
	between()
	l, err := net.Listen("tcp", old.Listener.Addr().String())
	if err != nil {
		s.Fatal(err)
	}
	again := httptest.NewUnstartedServer(old.Config.Handler)
	_ = again.Listener.Close()
	again.Listener = l
	again.StartTLS()
	s.replicas[i] = again
	s.Cleanup(again.Close)
}

// churn makes and removes pods and Services of a cluster.
type churn struct {
	*testing.T
	api client.Client
	// mu is held by changes, and while the API server is away.
	mu      sync.Mutex
	changes int
	pods    []*corev1.Pod
	// services are with their slices.
	services [][]client.Object
	// changed has something after each change, for those that wait.
	changed chan struct{}
}

// Bounds of what there is at one time.
const maxChurnPods, maxChurnServices = 40, 10

func (c *churn) run(ctx context.Context) {
	for ; ctx.Err() == nil; c.changes++ {
		c.mu.Lock()
		err := c.change()
		c.mu.Unlock()
		if err != nil {
			c.Error(err)
			return
		}
		select {
		case c.changed <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (c *churn) change() error {
	switch n := rand.IntN(10); {
	case n < 3 && len(c.pods) > 0:
		at := rand.IntN(len(c.pods))
		p := c.pods[at]
		c.pods = slices.Delete(c.pods, at, at+1)
		return c.api.Delete(c.Context(), p, client.GracePeriodSeconds(0))
	case n < 7 && len(c.pods) < maxChurnPods:
		return c.addPod()
	case n < 9 && len(c.services) < maxChurnServices:
		return c.addService()
	case len(c.services) > 0 && n%2 == 1:
		at := rand.IntN(len(c.services))
		var problems []error
		for _, o := range c.services[at] {
			problems = append(problems, c.api.Delete(c.Context(), o))
		}
		c.services = slices.Delete(c.services, at, at+1)
		return errors.Join(problems...)
	case len(c.services) > 0:
		slice := c.services[rand.IntN(len(c.services))][1].(*discoveryv1.EndpointSlice)
		slice.Endpoints[0].Addresses[0] = c.address()
		return c.api.Update(c.Context(), slice)
	}
	return nil
}

func (c *churn) address() string {
	return fmt.Sprintf("10.11.%d.%d", c.changes/250%250, c.changes%250+1)
}

func (c *churn) addPod() error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", c.changes)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	if err := c.api.Create(c.Context(), p); err != nil {
		return err
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: c.address(), PodIPs: []corev1.PodIP{{IP: c.address()}}}
	c.pods = append(c.pods, p)
	return c.api.Status().Update(c.Context(), p)
}

func (c *churn) addService() error {
	name, port := fmt.Sprintf("s%d", c.changes), int32(8080)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{c.address()}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	c.services = append(c.services, []client.Object{service, slice})
	return errors.Join(c.api.Create(c.Context(), service), c.api.Create(c.Context(), slice))
}

// want is what the source has, as mirrored says it of the target.
func (c *churn) want(t *testing.T) []string {
	pods, services, slicesOf := &corev1.PodList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	if err := errors.Join(c.api.List(t.Context(), pods), c.api.List(t.Context(), services), c.api.List(t.Context(), slicesOf)); err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range pods.Items {
		list = append(list, fmt.Sprintf("pod %s [%s]", pods.Items[i].UID, pods.Items[i].Status.PodIP))
	}
	for i := range services.Items {
		service := &services.Items[i]
		if service.Name == "kubernetes" {
			continue
		}
		list = append(list, fmt.Sprintf("service %s %s", service.UID, service.Name))
		for j := range slicesOf.Items {
			if slice := &slicesOf.Items[j]; mapping.ServiceOf(slice) == client.ObjectKeyFromObject(service) {
				list = append(list, fmt.Sprintf("endpoints %s %v", service.UID, slice.Endpoints[0].Addresses))
			}
		}
	}
	slices.Sort(list)
	return list
}

// mirrored is what the target has of the source.
func (s *served) mirrored(t *testing.T) []string {
	ports, services, slicesOf := &v1alpha1.PortList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	if err := errors.Join(s.client.List(t.Context(), ports), s.client.List(t.Context(), services), s.client.List(t.Context(), slicesOf)); err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range ports.Items {
		if uid := ports.Items[i].Labels[mapping.LabelPod]; uid != "" {
			list = append(list, fmt.Sprintf("pod %s %v", uid, ports.Items[i].Spec.Addresses))
		}
	}
	for i := range services.Items {
		if uid := services.Items[i].Labels[mapping.LabelService]; uid != "" {
			list = append(list, fmt.Sprintf("service %s %s", uid, services.Items[i].Name))
		}
	}
	for i := range slicesOf.Items {
		if uid := slicesOf.Items[i].Labels[mapping.LabelEndpoints]; uid != "" {
			list = append(list, fmt.Sprintf("endpoints %s %v", uid, slicesOf.Items[i].Endpoints[0].Addresses))
		}
	}
	slices.Sort(list)
	return list
}
