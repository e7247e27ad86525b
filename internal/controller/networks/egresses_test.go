// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
)

// testEgress is the Egress bank for pods with the label app=web. It asks for addresses of the
// Network lan, and has some by its status.
func testEgress(asks, has string) *v1alpha1.Egress {
	e := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: "bank", UID: "bank", CreationTimestamp: ago(time.Hour)}}
	e.Spec.Network, e.Spec.PodSelector = "lan", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	e.Spec.Addresses, e.Status.Addresses = strings.Fields(asks), strings.Fields(has)
	return e
}

// ofEgress is the block of an address that the controller has made for the Egress bank.
func ofEgress(address, active string) *v1alpha1.AddressBlock {
	b := testBlock("lan-"+strings.ReplaceAll(address, ".", "-")+"-32", address+"/32", "", "", time.Minute)
	b.Spec.Egress, b.Status.ActiveNode = "bank", active
	return b
}

// egressed is an Egress after its reconciliation, with the blocks of single addresses that are
// there then.
func egressed(t *testing.T, a *reconcile.Access, name string) string {
	t.Helper()
	r, o := &egresses{Access: a, claims: claims{a}}, &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		t.Fatal(err)
	}
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	text := fmt.Sprintf("%s %s %v as %v", c.Status, c.Reason, singles(t, a), o.Status.Addresses)
	if len(o.Status.ActiveNodes) > 0 {
		text += fmt.Sprintf(" on %v", o.Status.ActiveNodes)
	}
	return text
}

// What an Egress has it keeps; what it may not have, it does not get; and what it asks for no more,
// it gives back.
func TestEgresses(t *testing.T) {
	own := testBlock("lan-10-0-0-240-28", "10.0.0.240/28", "", "", time.Hour)
	good := []client.Object{connectedNode("w1", "office"), connectedNode("w2", "office"), own}
	with := func(more ...client.Object) []client.Object { return append(slices.Clone(good), more...) }
	change := func(e *v1alpha1.Egress, change func(*v1alpha1.EgressSpec)) *v1alpha1.Egress {
		change(&e.Spec)
		return e
	}
	inner := externalNetwork()
	inner.Spec.External = false
	for _, c := range []struct {
		name    string
		egress  *v1alpha1.Egress
		network *v1alpha1.Network // nil: a good one
		others  []client.Object
		want    string
	}{
		{"of a Network that is not there", change(testEgress("", "10.0.0.245"), func(s *v1alpha1.EgressSpec) { s.Network = "nowhere" }), nil,
			with(ofEgress("10.0.0.245", "")), "False NetworkNotFound [10.0.0.245=bank] as []"},
		{"of a Network that does not lead outside", testEgress("", "10.0.0.245"), inner, with(ofEgress("10.0.0.245", "")),
			"False NetworkNotExternal [] as []"},
		{"without selectors", change(testEgress("10.0.0.246", "10.0.0.245"), func(s *v1alpha1.EgressSpec) { s.PodSelector = nil }), nil,
			with(ofEgress("10.0.0.245", "w1")), "False Invalid [10.0.0.245=bank] as [10.0.0.245] on [w1]"},
		{"of no connected node", testEgress("", ""), nil, []client.Object{connectedNode("w1", "other"), own},
			"False NoConnectedNode [10.0.0.240=bank] as [10.0.0.240]"},
		{"outside", testEgress("10.0.1.5 10.0.0.246", ""), nil, good, "False AddressOutside [10.0.0.246=bank] as [10.0.0.246]"},
		{"of a Router", testEgress("10.0.0.246", ""), nil, with(gatewayOf("10.0.0.246", "red/*", 0)), "False AddressTaken [10.0.0.246=red/*] as []"},
		{"of a FloatingIP", testEgress("10.0.0.246", ""), nil, with(claimed("10.0.0.246", "f")), "False AddressTaken [10.0.0.246=a/f] as []"},
		{"to the other family", change(testEgress("", ""), func(s *v1alpha1.EgressSpec) { s.Destinations = []string{"2001:db8::/32"} }), nil, good,
			"False WrongFamily [10.0.0.240=bank] as [10.0.0.240]"},

		{"new", testEgress("", ""), nil, good, "True Ready [10.0.0.240=bank] as [10.0.0.240]"},
		{"three", change(testEgress("", "10.0.0.245"), func(s *v1alpha1.EgressSpec) { s.Count = 3 }), nil,
			with(ofEgress("10.0.0.245", "w2"), claimed("10.0.0.240", "f")),
			"True Ready [10.0.0.240=a/f 10.0.0.241=bank 10.0.0.242=bank 10.0.0.245=bank] as [10.0.0.241 10.0.0.242 10.0.0.245] on [w2]"},
		{"one less", change(testEgress("", "10.0.0.245 10.0.0.246 10.0.0.247"), func(s *v1alpha1.EgressSpec) { s.Count = 2 }), nil,
			with(ofEgress("10.0.0.245", "w1"), ofEgress("10.0.0.246", "w2"), ofEgress("10.0.0.247", "w3")),
			"True Ready [10.0.0.245=bank 10.0.0.246=bank] as [10.0.0.245 10.0.0.246] on [w1 w2]"},
		{"more than there are", change(testEgress("", "10.0.0.5"), func(s *v1alpha1.EgressSpec) { s.Count = 16 }),
			func() *v1alpha1.Network {
				n := externalNetwork()
				n.Spec.Subnets[0].Ranges = []v1alpha1.AddressRange{{From: "10.0.0.4", To: "10.0.0.5"}}
				return n
			}(), []client.Object{connectedNode("w1", "office"), ofEgress("10.0.0.5", "")},
			"False AddressesExhausted [10.0.0.4=bank 10.0.0.5=bank] as [10.0.0.4 10.0.0.5]"},
		{"with other addresses", testEgress("10.0.0.246", "10.0.0.245"), nil, with(ofEgress("10.0.0.245", "w1")),
			"True Ready [10.0.0.246=bank] as [10.0.0.246]"},
		{"with another address that is taken", testEgress("10.0.0.246", "10.0.0.245"), nil,
			with(ofEgress("10.0.0.245", "w1"), claimed("10.0.0.246", "f")),
			"False AddressTaken [10.0.0.245=bank 10.0.0.246=a/f] as [10.0.0.245] on [w1]"},
		{"with its claim, of which the status does not know", testEgress("", ""), nil, with(ofEgress("10.0.0.245", "w1")),
			"True Ready [10.0.0.245=bank] as [10.0.0.245] on [w1]"},
	} {
		network := c.network
		if network == nil {
			network = externalNetwork()
		}
		network = network.DeepCopy()
		network.Spec.PhysicalNetwork = "office"
		objects := []client.Object{c.egress.DeepCopy(), network}
		for _, o := range c.others {
			objects = append(objects, o.DeepCopyObject().(client.Object))
		}
		a := reconciletest.Access(objects...)
		// The nodes that have reported are seen at the second time, if the addresses are new.
		egressed(t, a, "bank")
		got := egressed(t, a, "bank")
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if again := egressed(t, a, "bank"); again != got {
			t.Errorf("%s, once more: %s, was %s", c.name, again, got)
		}
	}
}

// The younger of two Egresses for a pod says so, by an Event too, which names both.
func TestEgressRivals(t *testing.T) {
	network := externalNetwork()
	network.Spec.PhysicalNetwork = "office"
	pod := func(namespace, name, app string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: "w1"},
		}
	}
	host, ended, waiting := pod("a", "host", "web"), pod("a", "ended", "web"), pod("a", "waiting", "web")
	host.Spec.HostNetwork, ended.Status.Phase, waiting.Spec.NodeName = true, corev1.PodSucceeded, ""
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	}
	older := testEgress("", "")
	older.Name, older.UID, older.CreationTimestamp = "old", "old", ago(2*time.Hour)
	older.Spec.PodSelector = nil
	older.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "a"}}
	a := reconciletest.Access(testEgress("", ""), older, network, connectedNode("w1", "office"), namespace("a"), namespace("b"),
		pod("a", "web", "web"), pod("a", "db", "db"), pod("b", "web", "web"), host, ended, waiting)
	if got := egressed(t, a, "old"); !strings.HasPrefix(got, "True Ready ") {
		t.Errorf("the older one: %s", got)
	}
	if got := egressed(t, a, "bank"); !strings.HasPrefix(got, "True PodsTaken ") {
		t.Errorf("the younger one: %s", got)
	}
	o := testEgress("", "")
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	const want = "1 node may be active for 10.0.0.241; pod a/web leaves by Egress old, which is older: change the selectors of one of them"
	if o.Status.Conditions[0].Message != want {
		t.Errorf("%q", o.Status.Conditions[0].Message)
	}
	if e := <-a.Events.(*record.FakeRecorder).Events; e != "Warning PodsTaken "+want {
		t.Errorf("Event %q", e)
	}
	w := watches{a}
	requests := func(list []ctrl.Request) (names []string) {
		for _, r := range list {
			names = append(names, r.Name)
		}
		slices.Sort(names)
		return names
	}
	for name, c := range map[string]struct {
		requests []ctrl.Request
		want     string
	}{
		"a pod that both select":     {w.rivalsOfPod(t.Context(), pod("a", "web", "web")), "[bank]"},
		"a pod of the older one":     {w.rivalsOfPod(t.Context(), pod("a", "db", "db")), "[]"},
		"a pod of the younger one":   {w.rivalsOfPod(t.Context(), pod("b", "web", "web")), "[]"},
		"a pod of the host":          {w.rivalsOfPod(t.Context(), host), "[]"},
		"a pod of no namespace":      {w.rivalsOfPod(t.Context(), pod("c", "web", "web")), "[]"},
		"a namespace":                {w.rivals(t.Context(), namespace("a")), "[bank old]"},
		"a node":                     {w.allEgresses(t.Context(), connectedNode("w1", "")), "[bank old]"},
		"the Network":                {w.egressesOfNetwork(t.Context(), network), "[bank old]"},
		"another Network":            {w.egressesOfNetwork(t.Context(), &v1alpha1.Network{}), "[]"},
		"its block":                  {egressOfBlock(t.Context(), ofEgress("10.0.0.245", "")), "[bank]"},
		"another block":              {egressOfBlock(t.Context(), claimed("10.0.0.245", "f")), "[]"},
		"an address, nothing lacked": {w.egressesWithout(t.Context(), claimed("10.0.0.245", "f")), "[]"},
	} {
		if got := fmt.Sprint(requests(c.requests)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	before, after := pod("a", "web", "web"), pod("a", "web", "web")
	after.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.5"}}
	if podSelectionChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("an address of a pod asks for Egresses")
	}
	if after.Labels = nil; !podSelectionChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("the labels of a pod ask for no Egress")
	}
	if err := a.Delete(t.Context(), pod("a", "web", "web")); err != nil {
		t.Fatal(err)
	}
	if got := egressed(t, a, "bank"); !strings.HasPrefix(got, "True Ready ") {
		t.Errorf("without the pod: %s", got)
	}
}

// What has no Egress any more is removed, and nothing else.
func TestEgressBlocksWithoutOwner(t *testing.T) {
	for name, left := range map[string]bool{"bank": true, "gone": false} {
		b := ofEgress("10.0.0.245", "w9")
		b.Spec.Egress = name
		a := reconciletest.Access(testEgress("", ""), externalNetwork(), b)
		r := &blocks{Access: a, claims: claims{a}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if is := a.Get(t.Context(), client.ObjectKeyFromObject(b), b) == nil; is != left {
			t.Errorf("%s: left %t", name, is)
		}
		if got := len((watches{a}).blocksBy(reconcile.ByEgress)(t.Context(), testEgress("", ""))); got > 0 != left {
			t.Errorf("%s: the Egress asks for %d blocks", name, got)
		}
	}
}
