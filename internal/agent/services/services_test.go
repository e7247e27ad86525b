// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// world is a running Services of node n1, without Open vSwitch.
type world struct {
	*Services
	t     *testing.T
	dir   string
	from  kube.ServiceUpdates
	about kube.Updates // of the view

	mu        sync.Mutex
	listeners []listener
	events    []string
	forgotten []backend.Balanced
	observed  int
	unhealthy error
}

// newWorld starts one. An empty dir is a new one; configure may be nil.
func newWorld(t *testing.T, dir string, configure func(*Options)) *world {
	t.Helper()
	w := &world{t: t, dir: dir}
	if dir == "" {
		w.dir = t.TempDir()
	}
	store, err := attachment.Open(filepath.Join(w.dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := apicache.New(slog.New(slog.DiscardHandler), store)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Log: slog.New(slog.DiscardHandler), Config: config.Services{Mode: config.NativeServices, HealthzBindAddress: "0"},
		Mapping: config.MapFlat, Node: "n1", File: filepath.Join(w.dir, "services.json"), Intent: intent.NewStore(nodeview.Services("n1")), View: v,
		Events: w, Applied: func(context.Context, uint64) error { return nil }, Connections: w,
		Changed: func(*intent.State, *intent.State) {},
		Observe: func(time.Duration) { w.mu.Lock(); w.observed++; w.mu.Unlock() },
		Healthy: func() error { w.mu.Lock(); defer w.mu.Unlock(); return w.unhealthy },
	}
	if configure != nil {
		configure(&o)
	}
	remembered, err := Load(o.File)
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Intent.Update(func(tx *intent.Tx) error {
		remembered.Apply(tx)
		tx.ReplaceServiceRanges(remembered.Ranges)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Services = New(o)
	w.ports.list = func() ([]listener, error) { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.listeners), nil }
	w.from, w.about = w.Updates(), v.Updates(w.Recheck)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) ServiceWarning(namespace, name, uid, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s/%s %s %s: %s", namespace, name, uid, reason, message))
}

func (w *world) ForgetBalanced(_ context.Context, which []backend.Balanced) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten = append(w.forgotten, which...)
	return nil
}

// hearNetworks has the view know that there are no Networks but the default
// one, and these namespaces.
func (w *world) hearNetworks(namespaces ...string) {
	var list []*corev1.Namespace
	for _, n := range namespaces {
		list = append(list, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"name": n}}})
	}
	w.about.Namespaces(kube.Whole(list))
	w.about.Networks(kube.Whole[*v1alpha1.Network](nil))
	w.about.Routers(kube.Whole[*v1alpha1.Router](nil))
}

// listed tells that these are all Services, and all EndpointSlices.
func (w *world) listed(names ...string) {
	exists := func(n types.NamespacedName) bool { return slices.Contains(names, n.Name) }
	w.from.Services.Listed(exists)
	w.from.Slices.Listed(exists)
}

func service(name, clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	if len(ports) == 0 {
		ports = []corev1.ServicePort{{Port: 80}}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: ports,
		},
	}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	port := int32(8080)
	protocol := corev1.ProtocolTCP
	ready := true
	node := "n1"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(string), Port: &port, Protocol: &protocol}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// summary is the intent's Services in short: name, Router, node ports, endpoints.
func summary(s *intent.State) []string {
	list := []string{}
	for v := range s.NodeServices().All() {
		line := v.Name + "@" + v.Router
		for _, p := range v.Ports {
			if p.NodePort != 0 {
				line += fmt.Sprintf(" %d", p.NodePort)
			}
			for _, e := range p.Endpoints {
				line += " " + e.Address.String()
			}
		}
		list = append(list, line)
	}
	return list
}

// await waits until the intent has these Services.
func (w *world) await(want ...string) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		state := w.Intent.State()
		diff := cmp.Diff(want, summary(state), cmpopts.EquateEmpty())
		if diff == "" {
			return
		}
		select {
		case <-state.Replaced():
		case <-deadline:
			w.t.Fatalf("intent (-want +got):\n%s", diff)
		}
	}
}

// eventually waits until there is no difference any more.
func eventually(t *testing.T, diff func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		d := diff()
		if d == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(d)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestServicesFollowTheAPI(t *testing.T) {
	w := newWorld(t, "", nil)
	w.from.Services.Set(service("web", "10.96.0.10"))
	w.from.Services.Set(service("db", "10.96.0.11"))
	w.from.Slices.Set(slice("web", "10.244.1.2"))
	w.hearNetworks("shop")
	w.await() // nothing before all was heard
	w.listed("web", "db")
	w.await("db@default", "web@default 10.244.1.2")
	<-w.Ready()
	w.from.Slices.Set(slice("web", "10.244.1.2", "10.244.1.3"))
	w.await("db@default", "web@default 10.244.1.2 10.244.1.3")
	w.from.Slices.Delete(types.NamespacedName{Namespace: "shop", Name: "web"})
	w.await("db@default", "web@default")
	w.from.Services.Delete(types.NamespacedName{Namespace: "shop", Name: "db"})
	w.await("web@default")
	// A new list: what it does not hold is gone.
	w.from.Services.Set(service("new", "10.96.0.12"))
	w.listed("new")
	w.await("new@default")
	eventually(t, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.observed == 0 {
			return "no time was observed"
		}
		return ""
	})
}

// A Service's Router is that of its namespace's Network, also when that changes.
func TestRouterOfServices(t *testing.T) {
	w := newWorld(t, "", nil)
	w.from.Services.Set(service("web", "10.96.0.10"))
	w.hearNetworks("shop")
	w.listed("web")
	w.await("web@default")
	network := func(router string) *v1alpha1.Network {
		return &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: "red"},
			Spec: v1alpha1.NetworkSpec{
				Role: v1alpha1.Primary, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "shop"}},
			},
			Status: v1alpha1.NetworkStatus{Router: router},
		}
	}
	w.about.Networks(kube.Whole([]*v1alpha1.Network{network("red-router")}))
	w.await("web@red-router")
	w.about.Networks(kube.Whole([]*v1alpha1.Network{network("")})) // not known yet
	w.await()
	w.about.Networks(kube.Whole[*v1alpha1.Network](nil))
	w.await("web@default")
	w.about.Namespaces(kube.Whole[*corev1.Namespace](nil))
	w.await()
	w.about.Namespaces(kube.Whole([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}))
	w.await("web@default")
}

func TestRouterOf(t *testing.T) {
	namespace := func(labels map[string]string) (o apicache.Objects[corev1.Namespace]) {
		return o.Put("shop", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}})
	}
	routers := apicache.Objects[v1alpha1.Router]{}.Put("ns-shop", &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "ns-shop"}})
	isolated := map[string]string{v1alpha1.LabelIsolated: "true"}
	for _, tc := range []struct {
		name    string
		mapping config.Mapping
		state   apicache.State
		want    string
	}{
		{"unknown namespace", config.MapFlat, apicache.State{}, ""},
		{"flat", config.MapFlat, apicache.State{Namespaces: namespace(nil)}, "default"},
		{"with pods", config.MapNamespace, apicache.State{Namespaces: namespace(nil), Routers: routers}, "ns-shop"},
		{"without pods", config.MapNamespace, apicache.State{Namespaces: namespace(nil)}, "default"},
		{"isolated, without pods", config.MapNamespace, apicache.State{Namespaces: namespace(isolated)}, "ns-shop"},
	} {
		s := &Services{Options: Options{Mapping: tc.mapping, Node: "n1"}, objects: tc.state}
		if got := s.routerOf("shop"); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// What Services do not depend on has them do nothing.
func TestRecheckOnlyWhatMatters(t *testing.T) {
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	view, err := apicache.New(slog.New(slog.DiscardHandler), store)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{
		Log: slog.New(slog.DiscardHandler), Config: config.Services{Mode: config.NativeServices}, Mapping: config.MapFlat, Node: "n1",
		Intent: intent.NewStore(), View: view,
	})
	api := view.Updates(s.Recheck)
	meta := metav1.ObjectMeta{Name: "a"}
	for _, tc := range []struct {
		kind    string
		change  func()
		matters bool
	}{
		{"Namespaces", func() { api.Namespaces(kube.Whole([]*corev1.Namespace{{ObjectMeta: meta}})) }, true},
		{"Blocks", func() { api.Blocks(kube.Whole([]*v1alpha1.AddressBlock{{ObjectMeta: meta}})) }, false},
		{"Networks", func() { api.Networks(kube.Whole([]*v1alpha1.Network{{ObjectMeta: meta}})) }, true},
		{"Ports", func() { api.Ports(kube.Whole([]*v1alpha1.Port{{ObjectMeta: meta}})) }, false},
		{"Routers", func() { api.Routers(kube.Whole([]*v1alpha1.Router{{ObjectMeta: meta}})) }, true},
		{"Nodes", func() { api.Nodes(kube.Whole([]*corev1.Node{{ObjectMeta: meta}})) }, false},
		{"Pools", func() { api.Pools(kube.Whole([]*v1alpha1.LoadBalancerPool{{ObjectMeta: meta}})) }, true},
		{"FloatingIPs", func() { api.FloatingIPs(kube.Whole([]*v1alpha1.FloatingIP{{ObjectMeta: meta}})) }, false},
		{"Definitions", func() { api.Definitions(kube.Whole([]*kube.Definition{{ObjectMeta: meta}})) }, false},
		{"no Networks any more", func() { api.Networks(kube.Whole[*v1alpha1.Network](nil)) }, true},
	} {
		tc.change()
		looks := false
		select {
		case <-s.wake:
			looks = true
		default:
		}
		if looks != tc.matters {
			t.Errorf("%s: Services are looked at: %v", tc.kind, looks)
		}
	}
}
