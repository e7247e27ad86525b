// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package watcher

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/watcher/odltest"
)

// cluster is a real API, a controller and a watcher between the two.
type cluster struct {
	*testing.T
	api    kubernetes.Interface
	rest   *rest.Config
	odl    *odltest.Controller
	config Config
	stop   context.CancelFunc
	done   chan error
}

func (c *cluster) start() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan error, 1)
	go func() { c.done <- RunODL(ctx, slog.New(slog.DiscardHandler), rest.CopyConfig(c.rest), c.config) }()
}

func (c *cluster) end() {
	c.stop()
	if err := <-c.done; err != nil {
		c.Errorf("the watcher ends with %v", err)
	}
}

// becomes waits until a list of the controller is as wanted.
func (c *cluster) becomes(list string, want ...string) {
	c.Helper()
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = c.odl.Has(list); slices.Equal(got, want) {
			return
		}
	}
	c.Errorf("%s (-want +got):\n%s", list, cmp.Diff(want, got))
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// pod makes a pod with addresses.
func (c *cluster) pod(name string, addresses ...string) *corev1.Pod {
	c.Helper()
	p, err := c.api.CoreV1().Pods("default").Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	p.Status.PodIP = addresses[0]
	p, err = c.api.CoreV1().Pods("default").UpdateStatus(c.Context(), p, metav1.UpdateOptions{})
	c.must(err)
	return p
}

func (c *cluster) remove(p *corev1.Pod) {
	c.Helper()
	c.must(c.api.CoreV1().Pods(p.Namespace).Delete(c.Context(), p.Name, *metav1.NewDeleteOptions(0)))
}

func (c *cluster) slice(name, service string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	c.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	s, err := c.api.DiscoveryV1().EndpointSlices("default").Create(c.Context(), s, metav1.CreateOptions{})
	c.must(err)
	return s
}

// TestWatcher has a watcher keep a strict controller as a real API is, through changes, refusals
// and the ends of either.
func TestWatcher(t *testing.T) {
	a := apitest.Start(t)
	api, err := kubernetes.NewForConfig(a.REST)
	if err != nil {
		t.Fatal(err)
	}
	o := odltest.New("foul")
	o.Add(odltest.Pods, "x", `{"uid":"x","name":"theirs","cluster-id":"other"}`)
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	c := &cluster{T: t, api: api, rest: a.REST, odl: o, config: DefaultConfig()}
	c.config.ODL.Host, c.config.Socket = server.URL, filepath.Join(t.TempDir(), "s")
	c.config.Reread = metav1.Duration{Duration: time.Second}
	c.config.LeaderElectionNamespace = "default"

	_, err = api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	c.must(err)
	web := c.pod("web-0", "10.11.2.7", "fd00:11::7")
	c.start()
	c.becomes(odltest.Pods, "theirs", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(odltest.Nodes, "n1")
	c.becomes(odltest.Services, "kubernetes VIP")

	// Changes.
	old := c.pod("old", "10.11.2.8")
	_, err = api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	c.must(err)
	first, second := c.slice("web-1", "web", 8080, "10.11.2.7"), c.slice("web-2", "web", 9090, "10.11.2.8")
	c.becomes(odltest.Pods, "old 10.11.2.8", "theirs", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(odltest.Services, "kubernetes VIP", "web VIP")
	awaitEndpoints := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && got != want; time.Sleep(20 * time.Millisecond) {
			got = ""
			for _, e := range o.Has(odltest.Endpoints) {
				if strings.HasPrefix(e, "web") {
					got = e
				}
			}
		}
		if got != want {
			t.Errorf("endpoints %q, want %q", got, want)
		}
	}
	awaitEndpoints("web 10.11.2.7 10.11.2.8 8080 9090")
	c.must(api.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), second.Name, metav1.DeleteOptions{}))
	awaitEndpoints("web 10.11.2.7 8080")

	// The controller is away, and then has lost everything.
	o.SetDown(true)
	c.remove(old)
	late := c.pod("late", "10.11.2.9")
	c.status(func(s Report) bool { return s.Leading && !s.Connected && strings.Contains(s.Error, "503") })
	o.Forget()
	o.SetDown(false)
	c.becomes(odltest.Pods, "late 10.11.2.9", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(odltest.Nodes, "n1")
	awaitEndpoints("web 10.11.2.7 8080")

	// The watcher is away.
	c.end()
	c.remove(late)
	c.must(api.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	c.must(api.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	again := c.pod("late", "10.11.2.10") // another pod of the name
	c.start()
	c.becomes(odltest.Pods, "late 10.11.2.10", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(odltest.Services, "kubernetes VIP")
	awaitEndpoints("")

	// What is refused is told on its object, and holds up nothing else.
	foul := c.pod("foul", "10.11.2.11")
	fine := c.pod("fine", "10.11.2.12")
	c.becomes(odltest.Pods, "fine 10.11.2.12", "late 10.11.2.10", "web-0 10.11.2.7 fd00:11::7")
	c.status(func(s Report) bool { return s.Connected && s.Lists[2].Refused == 1 && s.Lists[2].Pending == 1 })
	c.event(foul.UID, "a foul name")

	// A pod that has ended has no address any more.
	web.Status.Phase = corev1.PodSucceeded
	_, err = api.CoreV1().Pods("default").UpdateStatus(t.Context(), web, metav1.UpdateOptions{})
	c.must(err)
	for _, p := range []*corev1.Pod{foul, fine, again} {
		c.remove(p)
	}
	c.becomes(odltest.Pods)
	c.status(func(s Report) bool {
		return s.Connected && s.OldestSeconds == 0 && s.Lists[2].Wanted+s.Lists[2].Pending+s.Lists[2].Refused == 0
	})
	c.end()
}

// status waits until what `coelan-watcher status` shows is right.
func (c *cluster) status(right func(Report) bool) {
	c.Helper()
	var s Report
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out := &bytes.Buffer{}
		err := localapi.Query(c.Context(), "watcher", c.config.Socket, StatusPath, nil, out)
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &s)
		}
		if err == nil && right(s) {
			return
		}
	}
	c.Errorf("status %+v", s)
}

// event waits for one about an object.
func (c *cluster) event(uid types.UID, text string) {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		list, err := c.api.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		c.must(err)
		if slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == uid && e.Reason == "RefusedByController" && strings.Contains(e.Message, text)
		}) {
			return
		}
	}
	c.Errorf("no Event says %q", text)
}
