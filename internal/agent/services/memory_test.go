// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// Until all lists are there, an agent that starts goes by what it remembers; it is then replaced.
func TestServicesAreRemembered(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		w := newWorld(t, dir, nil)
		w.hearNetworks("shop")
		w.from.CIDRs(kube.Whole([]*networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "nonsense"}}}}))
		w.from.Services.Set(service("web", "10.96.0.10"))
		w.from.Services.Set(service("db", "10.96.0.11"))
		w.from.Slices.Set(slice("web", "10.244.1.2"))
		w.listed("web", "db")
		w.await("db@default", "web@default 10.244.1.2")
	})
	t.Run("after", func(t *testing.T) {
		w := newWorld(t, dir, nil)
		w.await("db@default", "web@default 10.244.1.2")
		w.from.Services.Failed(errors.New("connection refused"))
		w.from.Slices.Failed(errors.New("connection refused"))
		<-w.Away()
		if n := w.Intent.State().ServiceRanges().Len(); n != 1 {
			t.Errorf("%d ranges are remembered, want 1", n)
		}
		w.from.Services.Set(service("web", "10.96.0.10"))
		w.from.Services.Listed(func(n types.NamespacedName) bool { return n.Name == "web" })
		w.hearNetworks("shop")
		w.Recheck()
		time.Sleep(20 * time.Millisecond)
		w.await("db@default", "web@default 10.244.1.2") // EndpointSlices were not listed yet
		w.from.Slices.Set(slice("web", "10.244.1.9"))
		w.from.Slices.Listed(func(types.NamespacedName) bool { return true })
		w.await("web@default 10.244.1.9")
	})
	t.Run("with kube-proxy", func(t *testing.T) {
		w := newWorld(t, dir, func(o *Options) { o.Config.Mode = config.KubeProxy })
		w.await()
		if w.from.Services != nil || w.from.Slices != nil {
			t.Error("Services are watched though kube-proxy balances them")
		}
		if n := w.Intent.State().ServiceRanges().Len(); n != 1 {
			t.Errorf("%d ranges, want 1", n)
		}
	})
}

func TestDamagedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.json")
	if r, err := Load(path); err != nil || len(r.Services) != 0 {
		t.Errorf("no file: %v, %v", r, err)
	}
	s := intent.NewStore()
	state, err := s.Update(func(tx *intent.Tx) error {
		for i := range 3 {
			tx.SetService(intent.Service{
				Namespace: "shop", Name: fmt.Sprint("s", i), Router: "default", SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
				Ports: []intent.ServicePort{{Protocol: intent.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.1"),
					Endpoints: []intent.ServiceEndpoint{
						{Address: netip.MustParseAddr("10.244.0.1"), Port: 8080, Topology: intent.NewTopology("n1", []string{"a", "b"}, nil)},
						{Address: netip.MustParseAddr("10.244.0.2"), Port: 8080, Terminating: true, Topology: intent.NewTopology("n2", nil, []string{"n1"})},
						{Address: netip.MustParseAddr("10.244.0.3"), Port: 8080},
					}}},
			})
		}
		tx.ReplaceServiceRanges([]intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}})
		tx.ReplaceListeners([]intent.Listener{{Protocol: intent.UDP, Port: 30053}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeWhole(path, state); err != nil {
		t.Fatal(err)
	}
	readBack(t, path, state)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"cut": string(whole[:len(whole)-20]), "nonsense": "nonsense", "empty": "",
		"another thing": strings.Replace(string(whole), `"s1"`, "7", 1),
	} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "cut" && len(r.Services) != 2 {
			t.Errorf("%s: %d Services could be read, want 2", name, len(r.Services))
		}
	}
	if err := os.WriteFile(path, []byte(`{"version":99}`+"\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(path); err != nil || len(r.Services) != 0 {
		t.Errorf("another release's: %v, %v", r, err)
	}
}

// What changes is added to the file, which is written whole again before it gets long.
func TestMemoryIsAddedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.json")
	store := intent.NewStore()
	m := newMemory(&Services{Options: Options{Log: slog.Default(), File: path, Intent: store}})
	long := strings.Repeat("x", 10_000)
	set := func(i int, nodePort uint16) {
		t.Helper()
		state, err := store.Update(func(tx *intent.Tx) error {
			tx.SetService(intent.Service{Namespace: "shop", Name: fmt.Sprint("s", i), UID: long, Ports: []intent.ServicePort{{NodePort: nodePort}}})
			if nodePort == 7 {
				tx.DeleteService("shop/s1")
				tx.ReplaceServiceRanges([]intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}})
				tx.ReplaceListeners([]intent.Listener{{Protocol: intent.TCP, Port: 30022}})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.write(state); err != nil {
			t.Fatal(err)
		}
	}
	same := func() {
		t.Helper()
		readBack(t, path, store.State())
	}
	size := func() int64 {
		t.Helper()
		i, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return i.Size()
	}
	for i := range 3 {
		set(i, 1)
	}
	same()
	whole := size()
	set(2, 7)
	if grown := size() - whole; grown < 10_000 || grown > 25_000 {
		t.Errorf("one change has added %d bytes", grown)
	}
	same()
	for i := range uint16(250) {
		set(0, 100+i)
	}
	same()
	if size() > 2*minAdded {
		t.Errorf("the file has %d bytes", size())
	}
	// A file that has vanished, or cannot be written, is recreated when that is possible.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(func(tx *intent.Tx) error { tx.DeleteService("shop/s2"); return nil }); err != nil {
		t.Fatal(err)
	}
	m.save()
	m.save()
	same()
}

// readBack wants what is remembered at path to be the Services, listeners and ranges of state.
func readBack(t *testing.T, path string, state *intent.State) {
	t.Helper()
	r, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		r.Apply(tx)
		tx.ReplaceServiceRanges(r.Ranges)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := intent.Diff(state, again); !d.Empty() {
		t.Fatalf("read back, this differs: %+v", d)
	}
}

// olderFile is what an agent of the first version of the file has written: web with a policy that
// keeps clients on the node, dns with an endpoint that drains, and gone without endpoints.
const olderFile = `{"version":1}
{"ranges":[{"Prefix":"10.96.0.0/16"}]}
{"service":{"Namespace":"shop","Name":"web","UID":"1","Router":"default","Ports":[{"Name":"","Protocol":6,"IPv6":false,"Port":80,` +
	`"NodePort":30080,"ClusterIP":"10.96.0.10","ExternalIPs":null,"LoadBalancerIPs":["192.0.2.1"],"Endpoints":[{"Address":"10.244.1.2",` +
	`"Port":8080},{"Address":"10.244.2.2","Port":8080}],"LocalEndpoints":[{"Address":"10.244.1.2","Port":8080}],"Draining":null,` +
	`"Unserved":false}],"AffinitySeconds":0,"SourceRanges":null,"InternalLocal":false,"ExternalLocal":true,"HealthCheckNodePort":0,` +
	`"LocalEndpoints":1,"EndpointNodes":["n1","n2"]}}
{"service":{"Namespace":"shop","Name":"dns","Router":"default","Ports":[{"Protocol":17,"Port":53,"ClusterIP":"10.96.0.11",` +
	`"Endpoints":[{"Address":"10.244.1.3","Port":53}],"Draining":[{"Address":"10.244.1.4","Port":53}]}]}}
{"service":{"Namespace":"shop","Name":"gone","Router":"default","Ports":[{"Protocol":6,"Port":81,"ClusterIP":"10.96.0.12","Unserved":true}]}}
{"service":{"Namespace":"shop","Name":"past","Router":"default","Ports":null}}
{"gone":"shop/past"}
`

// A node with an agent replaced by one that stores Services in another form serves the same as
// before, also after that one has ended and come again, until the API tells of them; then only what
// the API has.
func TestOlderMemory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "services.json")
	if err := os.WriteFile(path, []byte(olderFile), 0o600); err != nil {
		t.Fatal(err)
	}
	const dns, gone = "dns@default 10.244.1.3", "gone@default"
	for _, start := range []string{"the first", "the second"} {
		t.Run(start+" start without the API", func(t *testing.T) {
			w := newWorld(t, dir, nil)
			w.from.Services.Failed(errors.New("connection refused"))
			w.from.CIDRs(kube.Whole([]*networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16"}}}}))
			w.hearNetworks("shop")
			eventually(t, func() string { // what is known of the API is intent
				_, ok := w.Intent.State().ServiceRanges().Get("10.97.0.0/16")
				return cmp.Diff(true, ok)
			})
			w.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			w.await(dns, gone, "web@default 30080 10.244.1.2 10.244.2.2")
			v, _ := w.Intent.State().NodeServices().Get("shop/web")
			if p := v.Ports[0]; len(p.LocalEndpoints) != 1 || len(p.LoadBalancerIPs) != 1 || !v.ExternalLocal || v.LocalEndpoints != 1 {
				t.Errorf("not as it was: %+v", v)
			}
			v, _ = w.Intent.State().NodeServices().Get("shop/dns")
			if len(v.Ports[0].Draining) != 1 {
				t.Errorf("not as it was: %+v", v)
			}
			v, _ = w.Intent.State().NodeServices().Get("shop/gone")
			if !v.Ports[0].Unserved {
				t.Errorf("not as it was: %+v", v)
			}
		})
		if now, err := os.ReadFile(path); err != nil || string(now) != olderFile {
			t.Fatalf("the file was written before the API has told of Services (%v):\n%s", err, now)
		}
	}
	t.Run("with the API", func(t *testing.T) {
		w := newWorld(t, dir, nil)
		w.hearNetworks("shop")
		w.from.Services.Set(service("web", "10.96.0.10"))
		w.from.Slices.Set(slice("web", "10.244.1.2"))
		w.from.Services.Set(service("dns", "10.96.0.11"))
		w.from.Slices.Set(slice("dns", "10.244.1.3"))
		w.listed("web", "dns")
		w.await(dns, "web@default 10.244.1.2")
	})
	t.Run("remembered in the form of today", func(t *testing.T) {
		r, err := Load(path)
		if err != nil || len(r.Services) != 2 || len(r.NodeServices) != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		newWorld(t, dir, nil).await(dns, "web@default 10.244.1.2")
	})
}

// A node port that a process of the host has is not taken from it by an agent that
// starts without the API.
func TestListenersAreRemembered(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		w := newWorld(t, dir, nil)
		w.mu.Lock()
		w.listeners = []listener{{intent.TCP, netip.IPv6Unspecified(), 30080}}
		w.mu.Unlock()
		s := service("web", "10.96.0.10", corev1.ServicePort{Port: 80, NodePort: 30080})
		s.Spec.Type = corev1.ServiceTypeNodePort
		w.from.Services.Set(s)
		w.hearNetworks("shop")
		w.listed("web")
		w.await("web@default")
	})
	t.Run("after", func(t *testing.T) {
		w := newWorld(t, dir, nil)
		w.hearNetworks("shop")
		if diff := cmp.Diff([]string{"web@default"}, summary(w.Intent.State())); diff != "" {
			t.Errorf("intent (-want +got):\n%s", diff)
		}
	})
}

// The zone of the node decides which endpoints its clients get, and connections to
// the others are forgotten.
func TestZoneChanges(t *testing.T) {
	w := newWorld(t, "", nil)
	zone := func(name string) {
		_, err := w.Intent.Update(func(tx *intent.Tx) error {
			tx.ReplaceNodes([]intent.Node{{Name: "n1", Zone: name}})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	}
	zone("a")
	w.from.Services.Set(service("dns", "10.96.0.10", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}))
	s := slice("dns", "10.244.1.2", "10.244.1.3")
	*s.Ports[0].Protocol = corev1.ProtocolUDP
	for i, name := range []string{"a", "b"} {
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: name}}}
	}
	w.from.Slices.Set(s)
	w.hearNetworks("shop")
	w.listed("dns")
	w.await("dns@default 10.244.1.2")
	zone("b")
	w.await("dns@default 10.244.1.3")
	eventually(t, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		want := []backend.Balanced{{
			Service: netip.MustParseAddrPort("10.96.0.10:53"), Endpoint: intent.Endpoint{Address: netip.MustParseAddr("10.244.1.2"), Port: 8080},
		}}
		return cmp.Diff(want, w.forgotten, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{}))
	})
}
