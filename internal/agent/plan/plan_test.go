// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/blocks"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/podnets"
)

// world is a Planner with its API.
type world struct {
	t   *testing.T
	api *kubetest.API
	*Planner
	events events
	ports  ports
	hide   func()
	serves bool
}

type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) PodWarning(namespace, name, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, namespace+"/"+name+" "+reason+": "+message)
}

// ports notes what is written.
type ports struct{ written, removed []string }

func (p *ports) Write(_ context.Context, at attachment.Attachment) error {
	p.written = append(p.written, at.PortKey())
	return nil
}

func (p *ports) Remove(at attachment.Attachment) { p.removed = append(p.removed, at.PortKey()) }

// newWorld has a shared Network, two private ones for tenants, and one on VLANs that the node is not connected to.
func newWorld(t *testing.T, mapping config.Mapping) *world {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	log := slog.New(slog.DiscardHandler)
	v, err := view.New(log, store)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, api: kubetest.New("n1"), serves: true}
	w.Planner = New(Options{
		Log: log, Node: "n1", Mapping: mapping, Serves: func() bool { return w.serves },
		Connected: func(physical string) error { return fmt.Errorf("physical network %s is not connected", physical) },
		Effective: func(string) bool { return true },
		View:      v, API: w.api, Blocks: blocks.New(log, "n1", w.api, v, store), Store: store, Ports: &w.ports, Events: &w.events,
	})
	w.api.Add(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open", Labels: map[string]string{"tenant": "open"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red", Labels: map[string]string{"tenant": "red"}}},
		router("open", 2, true), router("red", 3, false), router("lan", 4, false),
		network("open", 2, "open", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "open"), Subnets: subnets("10.1.0.0/24")}),
		network("red", 3, "red", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300}),
		network("lan", 4, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: subnets("10.3.0.0/24")}),
		network("wire", 5, "", v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, PhysicalNetwork: "dc", Subnets: subnets("10.4.0.0/24")}),
		definition("shop", "lan", `{"type":"coelan-cni","network":"lan"}`), definition("shop", "sriov", `{"type":"sriov"}`),
		definition("shop", "bare", `{"type":"ovn4nfvk8s-cni"}`),
		definition("red", "cluster", `{"type":"coelan-cni","network":"default"}`),
		definition("open", "cluster", `{"type":"coelan-cni","network":"default"}`),
	)
	w.hide = w.api.Show(v.Updates(func() {}), v.SetPods)
	t.Cleanup(func() { w.hide() })
	return w
}

func router(name string, id int32, shared bool) *v1alpha1.Router {
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RouterStatus{ID: id, VNI: 70000 + id}}
	if shared {
		r.Spec.ImportRouteTargets = []string{v1alpha1.DefaultRouteTarget}
		r.Spec.ExportRouteTargets = r.Spec.ImportRouteTargets
	}
	return r
}

func network(name string, id int32, router string, spec v1alpha1.NetworkSpec) *v1alpha1.Network {
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
		Status: v1alpha1.NetworkStatus{ID: id, VNI: 80000 + id, Router: router},
	}
}

func selects(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func subnets(cidr string) []v1alpha1.Subnet { return []v1alpha1.Subnet{{CIDR: cidr}} }

func definition(namespace, name, config string) *kube.Definition {
	return &kube.Definition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kube.DefinitionSpec{Config: config}}
}

// pod adds one to the API and returns what its ADD asks.
func (w *world) pod(namespace, name string, annotations map[string]string) cni.Ask {
	w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: annotations,
	}})
	return cni.Ask{Namespace: namespace, Pod: name, UID: "uid-" + name, ContainerID: name, IfName: "eth0"}
}

var values = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func onLAN(ifName string) cni.Interface {
	return cni.Interface{
		IfName: ifName, Network: "lan", NetworkID: 4,
		Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.3.0.0/24"), Gateway: netip.MustParseAddr("10.3.0.1")}},
	}
}

func TestPlan(t *testing.T) {
	first := cni.Interface{IfName: "eth0", Network: "default", NetworkID: 1, Primary: true, PodCIDR: true, DefaultRoute: true}
	red := cni.Interface{
		IfName: "eth0", Network: "red", NetworkID: 3, Primary: true, DefaultRoute: true, MTU: 1300, NodeAddresses: true,
		Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Gateway: netip.MustParseAddr("10.2.0.1")}},
	}
	with := func(i cni.Interface, change func(*cni.Interface)) cni.Interface { change(&i); return i }
	fixedMAC := intent.MAC{2, 0, 0, 0, 0, 9}
	for _, tc := range []struct {
		name        string
		namespace   string
		annotations map[string]string
		change      func(*cni.Ask)
		want        []cni.Interface
		err         string // reason: part of the message
	}{
		{name: "ordinary", namespace: "shop", want: []cni.Interface{first}},
		{name: "tenant", namespace: "red", want: []cni.Interface{red}},
		{
			name: "second interface", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: "lan@x0"},
			want: []cni.Interface{first, with(onLAN("x0"), func(i *cni.Interface) { i.NAD = "shop/lan" })},
		},
		{
			name: "fixed", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: `[{"name":"lan","ips":["10.3.0.9/24"],"mac":"02:00:00:00:00:09","default-route":["10.3.0.7"]}]`},
			want: []cni.Interface{first, with(onLAN("net1"), func(i *cni.Interface) {
				i.NAD, i.MAC, i.DefaultRoute = "shop/lan", &fixedMAC, true
				i.Addresses, i.Gateways = []netip.Addr{netip.MustParseAddr("10.3.0.9")}, []netip.Addr{netip.MustParseAddr("10.3.0.7")}
			})},
		},
		{
			name: "of OVN4NFV", namespace: "shop", annotations: map[string]string{
				podnets.AnnotationNetworks:   "bare",
				podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"lan","interface":"net0"},{"name":"default","ipAddress":"10.244.1.9"}]}`,
			},
			want: []cni.Interface{with(first, func(i *cni.Interface) { i.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.9")} }), onLAN("net0")},
		},
		{
			name: "somebody else's definition is skipped", namespace: "shop",
			annotations: map[string]string{podnets.AnnotationNetworks: "sriov,lan"},
			want:        []cni.Interface{first, with(onLAN("net2"), func(i *cni.Interface) { i.NAD = "shop/lan" })},
		},
		{
			name: "delegate", namespace: "shop", change: func(a *cni.Ask) { a.Delegate, a.Network, a.IfName = true, "lan", "net1" },
			want: []cni.Interface{onLAN("net1")},
		},
		{
			name: "delegate of OVN4NFV", namespace: "shop", change: func(a *cni.Ask) { a.Delegate, a.IfName = true, "net1" },
			annotations: map[string]string{podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"lan","interface":"net0"}]}`},
			want:        []cni.Interface{onLAN("net1")},
		},
		{name: "no such definition", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: "other"}, err: "NetworkNotFound: shop/other does not exist"},
		{name: "malformed", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: "[{"}, err: "Invalid: malformed JSON"},
		{name: "names no network", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: "bare"}, err: "Invalid: names no network"},
		{
			name: "not allowed", namespace: "shop",
			annotations: map[string]string{podnets.AnnotationNFNNetwork: `{"interface":[{"name":"red","interface":"net0"}]}`}, err: "NamespaceNotAllowed: network red",
		},
		{
			name: "not connected", namespace: "shop",
			annotations: map[string]string{podnets.AnnotationNFNNetwork: `{"interface":[{"name":"wire","interface":"net0"}]}`}, err: "NetworkNotReady: physical network dc",
		},
		{
			name: "a bridge to the cluster", namespace: "red", annotations: map[string]string{podnets.AnnotationNetworks: "cluster"},
			err: "NamespaceNotAllowed: network default does not take pods whose first interface is on network red",
		},
		{
			name: "a bridge to the cluster by a delegate", namespace: "red",
			change: func(a *cni.Ask) { a.Delegate, a.Network, a.IfName = true, "default", "net1" },
			err:    "NamespaceNotAllowed: network default does not take pods",
		},
		{
			name: "the cluster for a shared Router", namespace: "open", annotations: map[string]string{podnets.AnnotationNetworks: "cluster"},
			want: []cni.Interface{
				{
					IfName: "eth0", Network: "open", NetworkID: 2, Primary: true, DefaultRoute: true,
					Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1")}},
				},
				{IfName: "net1", Network: "default", NetworkID: 1, PodCIDR: true, NAD: "open/cluster"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, config.MapFlat)
			ask := w.pod(tc.namespace, "p", tc.annotations)
			if tc.change != nil {
				tc.change(&ask)
			}
			got, err := w.Plan(t.Context(), ask)
			if tc.err != "" {
				wantPlanError(t, err, tc.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, values); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// wantPlanError checks the reason, and a part of the message behind a colon.
func wantPlanError(t *testing.T, err error, want string) {
	t.Helper()
	reason, text, _ := strings.Cut(want, ": ")
	var e *cni.PlanError
	if !errors.As(err, &e) || e.Reason != reason || !strings.Contains(e.Message, text) {
		t.Errorf("error %+v, want %s", err, want)
	}
}

// A pod on the default Network that asks for nothing asks nobody.
func TestOrdinaryPodsAskNobody(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	ask := w.pod("shop", "p", nil)
	if _, err := w.Plan(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	if calls := w.api.Calls(); len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
}

func TestMultusMakesTheOthers(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	w.serves = false
	list, err := w.Plan(t.Context(), w.pod("shop", "p", map[string]string{podnets.AnnotationNetworks: "lan"}))
	if err != nil || len(list) != 1 {
		t.Errorf("%d interfaces, %v", len(list), err)
	}
}

// The controller makes the Network of a namespace with its first pod: the plan waits for it.
func TestPlanWaitsForTheNetwork(t *testing.T) {
	w := newWorld(t, config.MapNamespace)
	ask := w.pod("shop", "p", nil)
	planned := make(chan error, 1)
	go func() {
		list, err := w.Plan(t.Context(), ask)
		if err == nil && (list[0].Network != "ns-shop-n1" || !list[0].PodCIDR || list[0].NodeAddresses) {
			err = fmt.Errorf("planned %+v", list[0])
		}
		planned <- err
	}()
	spec := v1alpha1.NetworkSpec{Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR, Node: "n1", Router: "red"}
	n := network("ns-shop-n1", 0, "", spec)
	w.api.Add(n)
	select {
	case err := <-planned:
		t.Fatalf("planned before the Network was ready: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.api.Add(network("ns-shop-n1", 9, "red", spec))
	if err := <-planned; err != nil {
		t.Error(err)
	}
}

// Waits end, with an error that says what to wait for.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapNamespace)
		_, err := w.Plan(t.Context(), w.pod("shop", "p", nil))
		wantPlanError(t, err, "NetworkNotFound: network ns-shop-n1 does not exist")
		unready := network("ns-shop-n1", 0, "", v1alpha1.NetworkSpec{Node: "n1"})
		unready.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "False", Reason: "SubnetOverlaps", Message: "with another"}}
		w.api.Add(unready)
		began := time.Now()
		_, err = w.Plan(t.Context(), w.pod("shop", "p", nil))
		wantPlanError(t, err, "NetworkNotReady: SubnetOverlaps: with another")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %v for what will not come", waited)
		}
	})
}

func TestWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		known := w.pod("red", "known", nil)
		w.api.SetAway(true)
		list, err := w.Plan(t.Context(), known)
		if err != nil || list[0].Network != "red" {
			t.Errorf("a pod that is remembered: %+v, %v", list, err)
		}
		ask := cni.Ask{Namespace: "red", Pod: "new", UID: "uid-new", ContainerID: "c", IfName: "eth0"}
		if list, err = w.Plan(t.Context(), ask); err != nil || list[0].Network != "red" {
			t.Errorf("a pod of a namespace that is remembered: %+v, %v", list, err)
		}
		ask.Namespace = "nowhere"
		if list, err = w.Plan(t.Context(), ask); err != nil || list[0].Network != "default" {
			t.Errorf("a pod of a namespace of which nothing is remembered: %+v, %v", list, err)
		}
	})
}

// restarted is the Planner of an agent that remembers what w knew before change, and has heard nothing yet.
func (w *world) restarted(change func()) *Planner {
	w.t.Helper()
	if err := w.View.Save(); err != nil {
		w.t.Fatal(err)
	}
	w.hide()
	change()
	v, err := view.New(w.Log, w.Store)
	if err != nil {
		w.t.Fatal(err)
	}
	o := w.Options
	o.View, o.Blocks = v, blocks.New(w.Log, "n1", w.api, v, w.Store)
	return New(o)
}

// What is remembered does not decide about Networks while the API server can tell: "shop" has become a tenant's.
func TestAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		shop := w.pod("shop", "p", nil)
		p := w.restarted(func() {
			w.api.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tenant": "blue"}}},
				network("blue", 6, "red", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "blue"), Subnets: subnets("10.5.0.0/24")}))
		})
		_, err := p.Plan(t.Context(), shop)
		wantPlanError(t, err, "NetworkNotReady: not heard yet")
		var e *cni.PlanError
		if !errors.As(err, &e) || !e.Retry {
			t.Errorf("it is not to be tried again: %v", err)
		}

		u := p.View.Updates(func() {})
		planned := make(chan string, 1)
		go func() {
			list, err := p.Plan(t.Context(), shop)
			if err != nil {
				planned <- err.Error()
				return
			}
			planned <- list[0].Network
		}()
		synctest.Wait()
		w.hide = w.api.Show(u, p.View.SetPods)
		if got := <-planned; got != "blue" {
			t.Errorf("planned on %s", got)
		}
	})
}

func TestAfterARestartWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		asks := map[string]cni.Ask{"default": w.pod("shop", "p", nil), "red": w.pod("red", "q", nil)}
		p := w.restarted(func() { w.api.SetAway(true) })
		for want, ask := range asks {
			began := time.Now()
			list, err := p.Plan(t.Context(), ask)
			if err != nil || list[0].Network != want {
				t.Errorf("%s: %+v, %v", want, list, err)
			}
			if waited := time.Since(began); waited > 2*time.Second {
				t.Errorf("waited %v", waited)
			}
		}
		// It was there for a moment, and did not come to this.
		u := p.View.Updates(func() {})
		u.Routers(nil)
		_, err := p.Plan(t.Context(), asks["default"])
		wantPlanError(t, err, "NetworkNotReady: not heard yet")
		// A cluster without the kind has no Networks.
		u.Absent(kube.Networks)
		u.Namespaces([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}})
		began := time.Now()
		if list, err := p.Plan(t.Context(), asks["default"]); err != nil || list[0].Network != "default" || time.Since(began) > 0 {
			t.Errorf("without the kind: %+v, %v after %v", list, err, time.Since(began))
		}
	})
}

func TestPodsThatTheAPIDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		ask := cni.Ask{Namespace: "red", Pod: "gone", UID: "0c1ff3ee-0000-0000-0000-000000000000", ContainerID: "c", IfName: "eth0"}
		_, err := w.Plan(t.Context(), ask)
		wantPlanError(t, err, "Invalid: pod red/gone with UID")
		ask.UID = "0123456789abcdef0123456789abcdef"
		if list, err := w.Plan(t.Context(), ask); err != nil || list[0].Network != "red" {
			t.Errorf("a static pod without a mirror: %+v, %v", list, err)
		}
		w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "mirror", UID: "other", Annotations: map[string]string{
				kube.AnnotationConfigHash: ask.UID, podnets.AnnotationNetworks: "lan",
			},
		}})
		ask.Namespace, ask.Pod = "shop", "mirror"
		if list, err := w.Plan(t.Context(), ask); err != nil || len(list) != 2 {
			t.Errorf("a static pod by its mirror: %+v, %v", list, err)
		}
	})
}

func TestClaim(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	at := attachment.Attachment{
		Key: attachment.Key{ContainerID: "c", IfName: "net1"}, PodNamespace: "shop", PodName: "p", PortName: "p.net1", PodUID: "uid-p",
		NetworkName: "lan", BlockSpace: true, FixedAddresses: true, MAC: intent.MAC{2, 0, 0, 0, 0, 1},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.3.0.9/24")},
	}
	if err := w.Claim(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if b := w.api.AllBlocks(); len(b) != 1 || b[0].Spec.CIDR != "10.3.0.9/32" || b[0].Spec.Port != "shop/p.net1" {
		t.Errorf("claims: %+v", b)
	}
	if !slices.Equal(w.ports.written, []string{"shop/p.net1"}) {
		t.Errorf("written: %v", w.ports.written)
	}
	other := at
	other.PodName, other.PortName, other.ContainerID = "q", "q.net1", "d"
	wantPlanError(t, w.Claim(t.Context(), other), "AddressTaken: 10.3.0.9")
	w.api.Add(&v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan"},
		Status: v1alpha1.PortStatus{MAC: "02:00:00:00:00:02"},
	})
	other.FixedAddresses, other.FixedMAC, other.MAC = false, true, intent.MAC{2, 0, 0, 0, 0, 2}
	wantPlanError(t, w.Claim(t.Context(), other), "MACTaken: belongs to port shop/vm")
	if err := w.Unclaim(t.Context(), at); err != nil || !slices.Equal(w.ports.removed, []string{"shop/p.net1"}) {
		t.Errorf("removed: %v, %v", w.ports.removed, err)
	}
	at.BlockSpace = false
	if err := w.Claim(t.Context(), at); err != nil || len(w.ports.written) != 1 {
		t.Errorf("an address of the node's podCIDRs: %v, written %v", err, w.ports.written)
	}
}
