// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/backend/neutron/octaviafake"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// bound is how long a test waits for what it wants.
const bound = time.Minute

// often and seldom are how often all is compared anew.
const (
	often  = 200 * time.Millisecond
	seldom = time.Hour
)

// world is a cluster with Balancers at work with an Octavia and a Neutron in memory.
type world struct {
	*testing.T
	neutron  *neutronfake.Neutron
	octavia  *octaviafake.Octavia
	access   *reconcile.Access
	store    *intent.Store
	settings Settings
	native   bool
	resync   time.Duration
	vips     string // id of the network of addresses
	outside  string // id of an external network
	other    string // id of another one, without a router
	gateway  string // id of the router that leads there
	informer *controllertest.FakeInformer
	stop     func()

	mu       sync.Mutex
	findings []findings.Finding
	reported trigger.Trigger
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, neutron: neutronfake.Start(t), access: reconciletest.Access(), store: intent.NewStore(), resync: seldom,
	}
	w.octavia = octaviafake.Start(t, w.neutron)
	w.update(func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: intent.DefaultRouterName, ID: 1})
		tx.SetNetwork(intent.Network{Name: "default", ID: intent.DefaultNetwork, Router: intent.DefaultRouterName})
	})
	pods := w.make("network", `"name": "pods"`)
	w.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.244.0.0/16", "ip_version": 4,
		"description": "coelan/Network/default 10.244.0.0/16"`, pods))
	w.vips = w.make("network", `"name": "vips"`)
	subnet := w.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.99.0.0/24", "ip_version": 4,
		"allocation_pools": [{"start": "10.99.0.2", "end": "10.99.0.199"}]`, w.vips))
	w.outside = w.make("network", `"name": "outside", "router:external": true`)
	w.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4`, w.outside))
	w.other = w.make("network", `"name": "other", "router:external": true`)
	w.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "203.0.113.0/24", "ip_version": 4`, w.other))
	w.gateway = w.make("router", fmt.Sprintf(`"external_gateway_info": {"network_id": %q}`, w.outside))
	w.call("PUT", "routers/"+w.gateway+"/add_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, subnet))
	w.settings = Settings{Endpoint: w.octavia.URL, Provider: octavia.ProviderOVN, Subnet: subnet}
	return w
}

// floating has load balancers have floating IPs.
func (w *world) floating() *world {
	w.settings.External = w.outside
	return w
}

// start lets new Balancers work, and returns when they have looked at all once.
func (w *world) start() *world {
	w.Helper()
	informers := &informertest.FakeInformers{}
	var err error
	if w.informer, err = informers.FakeInformerFor(w.Context(), &corev1.Service{}); err != nil {
		w.Fatal(err)
	}
	w.reported = trigger.New() // without those of others before
	b := New(Options{
		Settings: w.settings, Native: w.native, Log: slog.New(slog.DiscardHandler), Cloud: cloud.Access{Endpoint: w.neutron.URL, Project: "p"},
		State: w.store.State, Informers: informers, Access: w.access, Resync: w.resync,
		Network: func(name string) string { return map[string]string{"outside": w.outside, "other": w.other}[name] },
		Report: func(list []findings.Finding) {
			w.mu.Lock()
			w.findings = list
			w.mu.Unlock()
			w.reported.Fire()
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil && ctx.Err() == nil {
			w.Error(err)
		}
	})
	stopped := false
	w.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			running.Wait()
		}
	}
	w.Cleanup(w.stop)
	<-w.reported
	return w
}

// call makes a call of Neutron by hand.
func (w *world) call(method, path, body string) map[string]any {
	w.Helper()
	status, answer, err := neutronfake.Call(w.Context(), method, w.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		w.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}

// make makes a resource of Neutron and returns its id.
func (w *world) make(kind, attributes string) string {
	w.Helper()
	made, _ := w.call("POST", kind+"s", fmt.Sprintf(`{%q: {"project_id": "p", %s}}`, kind, attributes))[kind].(map[string]any)
	return fmt.Sprint(made["id"])
}

// byHand makes a call of Octavia.
func (w *world) byHand(method, path, body string) map[string]any {
	w.Helper()
	status, answer, err := octaviafake.Call(w.Context(), method, w.octavia.URL+"/v2.0/lbaas/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		w.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}

// service is the Service of a name in the namespace shop, with as many ports.
func service(name string, ports int, endpoints ...string) intent.Service {
	s := intent.Service{Namespace: "shop", Name: name, Router: intent.DefaultRouterName}
	for i := range ports {
		p := intent.ServicePort{Protocol: intent.TCP, Port: uint16(80 + i), ClusterIP: netip.MustParseAddr("10.96.0.5")}
		for _, e := range endpoints {
			p.Endpoints = append(p.Endpoints, intent.ServiceEndpoint{Address: netip.MustParseAddr(e), Port: 8080})
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

// publish adds a Service of the class, or changes it.
func (w *world) publish(s intent.Service, change func(*corev1.Service)) {
	w.Helper()
	class := v1alpha1.OctaviaClass
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	there, err := w.access.Find(w.Context(), s.Namespace, s.Name, o)
	if err != nil {
		w.Fatal(err)
	}
	o.Spec.Type, o.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class
	if change != nil {
		change(o)
	}
	if there {
		err = w.access.Update(w.Context(), o)
	} else {
		err = w.access.Create(w.Context(), o)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.update(func(tx *intent.Tx) { tx.SetService(s) })
	w.informer.Add(o)
}

// withdraw deletes a Service.
func (w *world) withdraw(name string) {
	w.Helper()
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := w.access.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
	w.update(func(tx *intent.Tx) { tx.DeleteService("shop/" + name) })
	w.informer.Delete(o)
}

func (w *world) update(change func(*intent.Tx)) {
	w.Helper()
	if _, err := w.store.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		w.Fatal(err)
	}
}

// ingress are the addresses in the status of a Service.
func (w *world) ingress(name string) (list []string) {
	w.Helper()
	s := &corev1.Service{}
	if _, err := w.access.Find(w.Context(), "shop", name, s); err != nil {
		w.Fatal(err)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, i.IP)
	}
	return list
}

// problems are the Events of all Services.
func (w *world) problems() (list []findings.Finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.findings)
}

// reason is that of the only problem; empty: there is none. Of several it has all.
func (w *world) reason() string {
	var list []string
	for _, p := range w.problems() {
		list = append(list, p.Reason)
	}
	return strings.Join(list, " ")
}

// says is against other Events than one of a reason.
func (w *world) says(reason string) func() string {
	return func() string {
		if got := w.reason(); got != reason {
			return fmt.Sprintf("the reasons are %q, not %s", got, reason)
		}
		return ""
	}
}

// await returns when there is nothing left to say against what a test wants. It looks after each
// attempt of the Balancers.
func (w *world) await(what string, against func() string) {
	w.Helper()
	for end := time.After(bound); ; {
		said := against()
		if said == "" {
			return
		}
		select {
		case <-w.reported:
		case <-end:
			w.Fatalf("%s: %s; Events %v", what, said, w.problems())
		}
	}
}

// parts counts what Octavia has: load balancers, listeners, pools and members.
func (w *world) parts() string {
	var list []string
	for _, collection := range []string{"loadbalancers", "listeners", "pools", "members"} {
		list = append(list, fmt.Sprint(len(w.octavia.All(collection))))
	}
	return strings.Join(list, " ")
}

// has is against other counts, other Events, and what is PENDING.
func (w *world) has(parts string) func() string {
	return func() string {
		if got := w.parts(); got != parts {
			return "there are " + got + ", not " + parts
		}
		if r := w.reason(); r != "" {
			return r
		}
		return w.unsettled()
	}
}

// unsettled names what is not ACTIVE.
func (w *world) unsettled() string {
	for _, collection := range []string{"loadbalancers", "listeners", "pools"} {
		for _, part := range w.octavia.All(collection) {
			if part["provisioning_status"] != octaviafake.Active {
				return fmt.Sprint(collection, " ", part)
			}
		}
	}
	return ""
}

// served is against a Service without an address, and another number of parts.
func (w *world) served(name, parts string) func() string {
	return func() string {
		if len(w.ingress(name)) != 1 {
			return "it has no address"
		}
		return w.has(parts)()
	}
}

func (w *world) writes() (list []string) {
	for _, c := range w.octavia.Calls() {
		if !strings.HasPrefix(c, http.MethodGet) {
			list = append(list, c)
		}
	}
	return list
}
