// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/apicache/apicachetest"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/agent/networks"
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
	source *networks.Source
	late   bool // intent does not follow the view
}

// follow has intent be made of what a view knows.
func (w *world) follow(v *apicache.View, store *attachment.Store) {
	w.t.Helper()
	c := config.Default()
	c.BridgeMappings = map[string]string{"here": "br-here"}
	w.source = networks.New(networks.Options{
		Log: slog.New(slog.DiscardHandler), Node: "n1", Config: c, Intent: intent.NewStore(), View: v, Store: store,
		Warn: func(string, error) {}, Judged: func(error) {}, NodesChanged: func() {}, Changed: v.Touch,
	})
	for _, change := range []func(*intent.Tx){func(tx *intent.Tx) { networks.Settings(c, tx) }, w.source.Load} {
		if _, err := w.source.Intent.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) refresh() {
	if !w.late {
		w.source.Refresh()
	}
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
type ports struct {
	written, removed []string
	asked            []string // Port and the port of Neutron
	// answer is called for a Port that asks; askErr is why it cannot be made.
	answer func(attachment.Attachment)
	askErr error
}

func (p *ports) Write(_ context.Context, at attachment.Attachment) error {
	p.written = append(p.written, at.PortKey())
	return nil
}

func (p *ports) Ask(_ context.Context, at attachment.Attachment) (types.UID, error) {
	p.asked = append(p.asked, at.PortKey()+" "+at.NeutronPort)
	if p.answer != nil {
		p.answer(at)
	}
	return "uid-port", p.askErr
}

func (p *ports) Remove(at attachment.Attachment) { p.removed = append(p.removed, at.PortKey()) }

// newWorld has a shared Network, two private ones for tenants, and one on VLANs that the node is
// not connected to.
func newWorld(t *testing.T, mapping config.Mapping) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, v := apicachetest.Open(t)
	w := &world{t: t, api: kubetest.New("n1"), serves: true}
	w.follow(v, store)
	w.Planner = New(Options{
		Log: log, Node: "n1", Mapping: mapping, Serves: func() bool { return w.serves },
		Connected: func(physical string) error {
			if physical == "here" {
				return nil
			}
			return fmt.Errorf("physical network %s is not connected", physical)
		},
		InEffect: w.source.InEffect, View: v, API: w.api, Blocks: blockipam.New(log, "n1", w.api, v, store), Store: store, Ports: &w.ports, Events: &w.events,
	})
	w.api.Add(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open", Labels: map[string]string{"tenant": "open"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red", Labels: map[string]string{"tenant": "red"}}},
		router("open", 2, true), router("red", 3, false), router("lan", 4, false),
		network("open", 2, "open", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "open"), Subnets: subnets("10.1.0.0/24")}),
		network("red", 3, "red", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300}),
		network("lan", 4, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: subnets("10.3.0.0/24")}),
		network("office", 6, "", v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, PhysicalNetwork: "here", Subnets: []v1alpha1.Subnet{{
			CIDR: "10.5.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.5.0.64", To: "10.5.0.127"}}, Exclusions: []v1alpha1.Exclusion{"10.5.0.70"},
		}}}),
		network("nothing", 7, "lan", v1alpha1.NetworkSpec{
			Role: v1alpha1.Secondary, Subnets: subnets("10.6.0.0/24"), Fixed: &v1alpha1.Fixed{Addresses: v1alpha1.NoAddress, MACs: v1alpha1.NoMAC},
		}),
		network("wire", 5, "", v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, PhysicalNetwork: "dc", Subnets: subnets("10.4.0.0/24")}),
		definition("shop", "lan", `{"type":"coelan-cni","network":"lan"}`), definition("shop", "sriov", `{"type":"sriov"}`),
		definition("shop", "bare", `{"type":"ovn4nfvk8s-cni"}`),
		definition("red", "cluster", `{"type":"coelan-cni","network":"default"}`),
		definition("open", "cluster", `{"type":"coelan-cni","network":"default"}`),
	)
	w.hide = w.api.Show(v.Updates(w.refresh), v.SetPods)
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
func (w *world) pod(namespace, name string, annotations map[string]string) cni.Request {
	w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: annotations,
	}})
	return asks(namespace, name, "uid-"+name)
}

// asks is an ADD of a pod's first interface.
func asks(namespace, name, uid string) cni.Request {
	return cni.Request{
		Key: attachment.Key{ContainerID: name, IfName: "eth0"}, PodNamespace: namespace, PodName: name, PodUID: uid,
	}
}

// planned is the plan of an interface on a Network of which addresses are its own.
func planned(ifName, network string, id intent.NetworkID) attachment.Plan {
	return attachment.Plan{Spec: attachment.Spec{
		Key: attachment.Key{IfName: ifName}, NetworkName: network, NetworkID: id, BlockSpace: true,
	}}
}

// subnet of which the first address is the gateway.
func subnet(cidr string) []intent.NetworkSubnet {
	p := netip.MustParsePrefix(cidr)
	return []intent.NetworkSubnet{{Prefix: p, Gateway: p.Addr().Next()}}
}

var values = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func with(i attachment.Plan, change func(*attachment.Plan)) attachment.Plan { change(&i); return i }

func onLAN(ifName string) attachment.Plan {
	return with(planned(ifName, "lan", 4), func(i *attachment.Plan) { i.Subnets = subnet("10.3.0.0/24") })
}

func TestPlan(t *testing.T) {
	onDefault := func(ifName string) attachment.Plan {
		return with(planned(ifName, "default", 1), func(i *attachment.Plan) { i.BlockSpace = false })
	}
	first := with(onDefault("eth0"), func(i *attachment.Plan) { i.Primary, i.DefaultRoute = true, true })
	red := with(planned("eth0", "red", 3), func(i *attachment.Plan) {
		i.Primary, i.DefaultRoute, i.MTU, i.NodeAddresses, i.Subnets = true, true, 1300, true, subnet("10.2.0.0/24")
	})
	fixedMAC := intent.MAC{2, 0, 0, 0, 0, 9}
	for _, tc := range []struct {
		name        string
		namespace   string
		annotations map[string]string
		change      func(*cni.Request)
		want        []attachment.Plan
		err         string // reason: part of the message
	}{
		{name: "ordinary", namespace: "shop", want: []attachment.Plan{first}},
		{name: "tenant", namespace: "red", want: []attachment.Plan{red}},
		{
			name: "second interface", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: "lan@x0"},
			want: []attachment.Plan{first, with(onLAN("x0"), func(i *attachment.Plan) { i.NAD = "shop/lan" })},
		},
		{
			name: "fixed", namespace: "shop", annotations: map[string]string{podnets.AnnotationNetworks: `[{"name":"lan","ips":["10.3.0.9/24"],"mac":"02:00:00:00:00:09","default-route":["10.3.0.7"]}]`},
			want: []attachment.Plan{first, with(onLAN("net1"), func(i *attachment.Plan) {
				i.NAD, i.MAC, i.DefaultRoute = "shop/lan", &fixedMAC, true
				i.Addresses, i.Gateways = []netip.Addr{netip.MustParseAddr("10.3.0.9")}, []netip.Addr{netip.MustParseAddr("10.3.0.7")}
			})},
		},
		{
			name: "of OVN4NFV", namespace: "shop", annotations: map[string]string{
				podnets.AnnotationNetworks:   "bare",
				podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"lan","interface":"net0"},{"name":"default","ipAddress":"10.244.1.9"}]}`,
			},
			want: []attachment.Plan{with(first, func(i *attachment.Plan) { i.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.9")} }), onLAN("net0")},
		},
		{
			name: "somebody else's definition is skipped", namespace: "shop",
			annotations: map[string]string{podnets.AnnotationNetworks: "sriov,lan"},
			want:        []attachment.Plan{first, with(onLAN("net2"), func(i *attachment.Plan) { i.NAD = "shop/lan" })},
		},
		{
			name: "delegate", namespace: "shop", change: func(a *cni.Request) { a.Network, a.IfName = "lan", "net1" },
			want: []attachment.Plan{onLAN("net1")},
		},
		{
			name: "by VNI", namespace: "shop", change: func(a *cni.Request) { a.VNI = 80004 },
			want: []attachment.Plan{onLAN("eth0")},
		},
		{
			name: "by the VNI of the Network default", namespace: "shop", change: func(a *cni.Request) { a.VNI, a.IfName = 1, "net1" },
			want: []attachment.Plan{with(first, func(i *attachment.Plan) { i.IfName, i.Primary, i.DefaultRoute = "net1", false, false })},
		},
		{
			name: "no such VNI", namespace: "shop", change: func(a *cni.Request) { a.VNI = 42 },
			err: "NetworkNotFound: no network has the VNI 42 of the CNI configuration: make a Network with spec.vni: 42",
		},
		{
			name: "the VNI of a tenant", namespace: "shop", change: func(a *cni.Request) { a.VNI = 80003 },
			err: "NamespaceNotAllowed: network red does not take pods of this namespace",
		},
		{
			name: "delegate of OVN4NFV", namespace: "shop", change: func(a *cni.Request) { a.IfName = "net1" },
			annotations: map[string]string{podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"lan","interface":"net0"}]}`},
			want:        []attachment.Plan{onLAN("net1")},
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
			name: "fixed on a physical network", namespace: "shop", annotations: nfn("office", "10.5.0.64", "02:00:00:00:00:09"),
			want: []attachment.Plan{first, with(planned("net0", "office", 6), func(i *attachment.Plan) {
				i.MAC, i.Addresses, i.Subnets = &fixedMAC, []netip.Addr{netip.MustParseAddr("10.5.0.64")}, subnet("10.5.0.0/24")
			})},
		},
		{
			name: "address of another host of a physical network", namespace: "shop", annotations: nfn("office", "10.5.0.5", ""),
			err: "FixedAddressNotAllowed: interface net0: address 10.5.0.5 is not one that network office hands out, and spec.fixed.addresses is Ranges",
		},
		{
			name: "excluded address", namespace: "shop", annotations: nfn("office", "10.5.0.70", ""), err: "FixedAddressNotAllowed: address 10.5.0.70",
		},
		{
			name: "MAC of a card", namespace: "shop", annotations: nfn("office", "", "00:50:56:00:00:01"),
			err: "FixedMACNotAllowed: interface net0: MAC 00:50:56:00:00:01 is not a locally administered one",
		},
		{
			name: "address where none may be asked for", namespace: "shop", annotations: nfn("nothing", "10.6.0.5", ""),
			err: "FixedAddressNotAllowed: address 10.6.0.5 is asked for, and spec.fixed.addresses of network nothing is None",
		},
		{
			name: "MAC where none may be asked for, by a delegate", namespace: "shop",
			change: func(a *cni.Request) { a.Network, a.IfName, a.MAC = "nothing", "net1", &fixedMAC },
			err:    "FixedMACNotAllowed: interface net1: MAC 02:00:00:00:00:09 is asked for",
		},
		{
			name: "a bridge to the cluster", namespace: "red", annotations: map[string]string{podnets.AnnotationNetworks: "cluster"},
			err: "NamespaceNotAllowed: network default does not take pods whose first interface is on network red",
		},
		{
			name: "a bridge to the cluster by a delegate", namespace: "red",
			change: func(a *cni.Request) { a.Network, a.IfName = "default", "net1" },
			err:    "NamespaceNotAllowed: network default does not take pods",
		},
		{
			name: "the cluster for a shared Router", namespace: "open", annotations: map[string]string{podnets.AnnotationNetworks: "cluster"},
			want: []attachment.Plan{
				with(planned("eth0", "open", 2), func(i *attachment.Plan) {
					i.Primary, i.DefaultRoute, i.Subnets = true, true, subnet("10.1.0.0/24")
				}),
				with(onDefault("net1"), func(i *attachment.Plan) { i.NAD = "open/cluster" }),
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

// nfn asks for an interface on a Network, with an address and a MAC unless they are empty.
func nfn(network, address, mac string) map[string]string {
	return map[string]string{podnets.AnnotationNFNNetwork: fmt.Sprintf(
		`{"interface":[{"name":%q,"interface":"net0","ipAddress":%q,"macAddress":%q}]}`, network, address, mac)}
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

// A pod on the default Network without requests needs no call to the API.
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
		if err == nil && (list[0].NetworkName != "ns-shop-n1" || list[0].BlockSpace || list[0].NodeAddresses) {
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

// The Network with subnets that the controller makes for a namespace has another name than the one
// of the namespace's pods on a node: a plan that waits takes it as soon as it is ready.
func TestPlanWaitsForTheNetworkWithSubnets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapNamespace)
		w.api.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank", Labels: map[string]string{corev1.LabelMetadataName: "bank"}}})
		ask, began := w.pod("bank", "p", nil), time.Now()
		planned := make(chan error, 1)
		go func() {
			list, err := w.Plan(t.Context(), ask)
			if err == nil && (list[0].NetworkName != "ns-bank" || list[0].NetworkID != 9 || !list[0].BlockSpace) {
				err = fmt.Errorf("planned %+v", list[0])
			}
			planned <- err
		}()
		made := func(id int32, router string) *v1alpha1.Network {
			n := network("ns-bank", id, router, v1alpha1.NetworkSpec{
				Role: v1alpha1.Primary, NamespaceSelector: selects(corev1.LabelMetadataName, "bank"), Router: "open",
				Subnets: subnets("10.128.0.0/24"),
			})
			n.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController, v1alpha1.LabelNamespace: "bank"}
			return n
		}
		synctest.Wait()
		w.api.Add(made(0, ""))
		synctest.Wait()
		w.api.Add(made(9, "open"))
		if err := <-planned; err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %v for a Network of another name", waited)
		}
	})
}

// What a pod gets is that of the Network and Router as the agent knows them, not of an intent that
// has yet to follow, in whichever order they change.
func TestPlanDoesNotPrecedeIntent(t *testing.T) {
	spec := v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1400,
		DNS: &v1alpha1.DNS{Nameservers: []string{"10.2.0.53", "fd00::53"}, Searches: []string{"red.example"}, Options: []string{"ndots:2"}},
	}
	same := network("red", 3, "red", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300,
	})
	same.Status.AddressesUsed = 7
	changed, shared := network("red", 3, "red", spec), router("red", 3, true)
	of := func(mtu int, nodeAddresses bool, dns *cnitypes.DNS) attachment.Plan {
		return with(planned("eth0", "red", 3), func(i *attachment.Plan) {
			i.Primary, i.DefaultRoute, i.Subnets = true, true, subnet("10.2.0.0/24")
			i.MTU, i.NodeAddresses, i.DNS = mtu, nodeAddresses, dns
		})
	}
	dns := &cnitypes.DNS{Nameservers: []string{"10.2.0.53", "fd00::53"}, Search: []string{"red.example"}, Options: []string{"ndots:2"}}
	for _, tc := range []struct {
		name  string
		steps []metav1.Object
		want  attachment.Plan
	}{
		{"the Network", []metav1.Object{changed}, of(1400, true, dns)},
		{"its Router", []metav1.Object{shared}, of(1300, false, nil)},
		{"the Network, its Router", []metav1.Object{changed, shared}, of(1400, false, dns)},
		{"its Router, the Network", []metav1.Object{shared, changed}, of(1400, false, dns)},
		{"nothing but a count", []metav1.Object{same}, of(1300, true, nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, config.MapFlat)
				ask := w.pod("red", "p", nil)
				w.late = true
				for _, o := range tc.steps {
					w.api.Add(o)
				}
				_, err := w.Plan(t.Context(), ask)
				wantPlanError(t, err, "NetworkNotReady: network red: its flows are not there yet")
				var e *cni.PlanError
				if !errors.As(err, &e) || !e.Retry {
					t.Errorf("it is not to be tried again: %v", err)
				}
				var got []attachment.Plan
				done := make(chan struct{})
				go func() {
					defer close(done)
					got, err = w.Plan(t.Context(), ask)
				}()
				synctest.Wait()
				select {
				case <-done:
					t.Errorf("planned before intent has followed: %+v, %v", got, err)
				default:
				}
				w.source.Refresh()
				synctest.Wait()
				select {
				case <-done:
				default:
					t.Error("the plan still waits, and intent has followed")
				}
				<-done
				if diff := cmp.Diff([]attachment.Plan{tc.want}, got, values); diff != "" || err != nil {
					t.Errorf("%v; plan (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

// Addresses are not handed out by ranges that were in effect before a change that is known.
func TestRangesDoNotPrecedeIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		w.late = true
		w.api.Add(network("lan", 4, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: []v1alpha1.Subnet{{
			CIDR: "10.3.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.3.0.40", To: "10.3.0.41"}},
		}}}))
		_, err := w.Ranges(t.Context(), "lan", subnet("10.3.0.0/24"), nil)
		wantPlanError(t, err, "NetworkNotReady: network lan: its flows are not there yet")
		w.source.Refresh()
		ranges, err := w.Ranges(t.Context(), "lan", subnet("10.3.0.0/24"), nil)
		if err != nil || len(ranges) != 1 || ranges[0].Size() != 2 {
			t.Errorf("ranges %+v, %v; want one of two addresses", ranges, err)
		}
		w.late = false
		w.api.Add(network("lan", 4, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: []v1alpha1.Subnet{{
			CIDR: "10.3.0.0/24", Exclusions: []string{"10.3.0"},
		}}}))
		_, err = w.Ranges(t.Context(), "lan", subnet("10.3.0.0/24"), nil)
		wantPlanError(t, err, "NetworkNotReady: network lan: no address is handed out: network lan: spec.subnets[0].exclusions[0]")
	})
}

// A pod gets the Network of its tenant that has just been made, in whichever order its parts come.
func TestPlanOnANewNetwork(t *testing.T) {
	spec := v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "blue"), Subnets: subnets("10.7.0.0/24"), MTU: 1350}
	withID, itsRouter := network("blue", 9, "blue", spec), router("blue", 9, false)
	for _, steps := range [][]metav1.Object{{withID, itsRouter}, {itsRouter, withID}} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, config.MapFlat)
				w.api.Add(
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "azure", Labels: map[string]string{"tenant": "blue"}}},
					network("blue", 0, "", spec),
				)
				ask := w.pod("azure", "p", nil)
				w.late = late
				var got []attachment.Plan
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					got, err = w.Plan(t.Context(), ask)
				}()
				for _, o := range steps {
					synctest.Wait()
					select {
					case <-done:
						t.Errorf("planned before all is there: %+v, %v", got, err)
					default:
					}
					w.api.Add(o)
				}
				w.source.Refresh()
				<-done
				if err != nil || len(got) != 1 || got[0].NetworkName != "blue" || got[0].MTU != 1350 || !got[0].NodeAddresses {
					t.Errorf("planned %+v, %v", got, err)
				}
			})
		}
	}
}

// Waits end, with an error that says what to wait for.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapNamespace)
		_, err := w.Plan(t.Context(), w.pod("shop", "p", nil))
		wantPlanError(t, err, "NetworkNotFound: network ns-shop-n1 does not exist: the controller makes the "+
			"Network of namespace shop, or an Event of the namespace says why not")
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

func TestClaim(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	at := attachment.Attachment{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: "c", IfName: "net1"}, PodNamespace: "shop", PodName: "p", PortName: "p.net1", PodUID: "uid-p",
			NetworkName: "lan", BlockSpace: true,
		},
		FixedAddresses: true, MAC: intent.MAC{2, 0, 0, 0, 0, 1},
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
	// A Port that has another MAC at the moment may have the one that it asks for at any time.
	w.api.Add(&v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "asks"},
		Spec:       v1alpha1.PortSpec{Network: "lan", MAC: "02:00:00:00:00:03"},
		Status:     v1alpha1.PortStatus{MAC: "02:00:00:00:00:04"},
	})
	other.MAC = intent.MAC{2, 0, 0, 0, 0, 3}
	wantPlanError(t, w.Claim(t.Context(), other), "MACTaken: belongs to port shop/asks")
	if err := w.Unclaim(t.Context(), at); err != nil || !slices.Equal(w.ports.removed, []string{"shop/p.net1"}) {
		t.Errorf("removed: %v, %v", w.ports.removed, err)
	}
	at.BlockSpace = false
	if err := w.Claim(t.Context(), at); err != nil || len(w.ports.written) != 1 {
		t.Errorf("an address of the node's podCIDRs: %v, written %v", err, w.ports.written)
	}
}

// A Port that may not be on a Network, or not ask for the MAC, keeps no pod from having it, whether
// the controller has refused it already or not.
func TestClaimOfMACThatOthersAskForInVain(t *testing.T) {
	mac := intent.MAC{0x0a, 0xce, 10, 2, 0, 9} // that of the pod's address
	asks := func(namespace string, phase v1alpha1.PortPhase, addresses ...v1alpha1.Address) *v1alpha1.Port {
		return &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vm"},
			Spec:       v1alpha1.PortSpec{Network: "red", MAC: mac.String(), Addresses: addresses},
			Status:     v1alpha1.PortStatus{Phase: phase},
		}
	}
	for name, tc := range map[string]struct {
		port *v1alpha1.Port
		want string
	}{
		"of another namespace":              {asks("shop", "", "10.2.0.9"), ""},
		"of another namespace, and refused": {asks("shop", v1alpha1.PortFailed, "10.2.0.9"), ""},
		"refused":                           {asks("red", v1alpha1.PortFailed, "10.2.0.9"), ""},
		"without the address":               {asks("red", ""), ""},
		"with the address":                  {asks("red", "", "10.2.0.9"), "MACTaken: belongs to port red/vm"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, config.MapFlat)
			w.api.Add(tc.port)
			err := w.Claim(t.Context(), attachment.Attachment{
				Spec: attachment.Spec{
					Key: attachment.Key{ContainerID: "c", IfName: "eth0"}, PodNamespace: "red", PodName: "p", PortName: "p.eth0",
					PodUID: "uid-p", NetworkName: "red", BlockSpace: true,
				},
				FixedMAC: true, MAC: mac, Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.9/24")},
			})
			if tc.want != "" {
				wantPlanError(t, err, tc.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
