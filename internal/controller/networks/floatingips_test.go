// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/translate"
)

func externalNetwork() *v1alpha1.Network {
	n := testNetwork(2 * time.Hour)
	n.Spec.Type, n.Spec.External = v1alpha1.Flat, true
	n.Spec.Subnets[0].Ranges = []v1alpha1.AddressRange{{From: "10.0.0.4", To: "10.0.0.15"}, {From: "10.0.0.240", To: "10.0.0.254"}}
	return n
}

func testFloatingIP(name string, spec v1alpha1.FloatingIPSpec, address string) *v1alpha1.FloatingIP {
	spec.Network = "lan"
	return &v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: ago(time.Hour)}, Spec: spec,
		Status: v1alpha1.FloatingIPStatus{Address: address},
	}
}

// claimed is the block of an address that the controller has made for a FloatingIP of namespace a.
func claimed(address, name string) *v1alpha1.AddressBlock {
	b := testBlock("lan-"+strings.ReplaceAll(address, ".", "-")+"-32", address+"/32", "", "", time.Minute)
	b.Spec.FloatingIP = "a/" + name
	return b
}

func grantedBy(b *v1alpha1.AddressBlock, status metav1.ConditionStatus, message string) *v1alpha1.AddressBlock {
	b.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionGranted, Status: status, Reason: "R", Message: message, LastTransitionTime: ago(0),
	}}
	return b
}

// reconciled is the FloatingIP after its reconciliation, with the blocks of single addresses that
// are there then.
func reconciled(t *testing.T, a *reconcile.Access, f *v1alpha1.FloatingIP) string {
	t.Helper()
	r := &floatingIPs{Access: a, claims: claims{a}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f)}); err != nil {
		t.Fatal(err)
	}
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(f), f); err != nil {
		t.Fatal(err)
	}
	left := singles(t, a)
	c := f.Status.Conditions[0]
	return fmt.Sprintf("%q on %q %s %s %v", f.Status.Address, f.Status.Node, c.Status, c.Reason, left)
}

// What a FloatingIP has, it keeps; what it may not have, it does not get, and leaves to others.
func TestFloatingIPAddresses(t *testing.T) {
	block := func(cidr, node string) *v1alpha1.AddressBlock {
		return testBlock("lan-"+strings.NewReplacer(".", "-", "/", "-").Replace(cidr), cidr, node, "", time.Hour)
	}
	own, theirs := block("10.0.0.240/28", ""), block("10.0.0.0/28", "worker1")
	asks := func(address string) v1alpha1.FloatingIPSpec { return v1alpha1.FloatingIPSpec{Address: address} }
	byNode := translate.GrantMessage("worker1")
	notReady := externalNetwork()
	notReady.Status.ID = 0
	inner := externalNetwork()
	inner.Spec.External = false
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.240"}},
	}}
	for _, c := range []struct {
		name    string
		ip      *v1alpha1.FloatingIP
		network *v1alpha1.Network // nil: a good one
		others  []client.Object
		want    string
	}{
		{"new", testFloatingIP("f", asks(""), ""), nil, nil, `"10.0.0.240" on "" True Unassociated [10.0.0.240=a/f]`},
		{"without what a node has", testFloatingIP("f", asks(""), ""), nil, []client.Object{node},
			`"10.0.0.241" on "" True Unassociated [10.0.0.241=a/f]`},
		{"beside another", testFloatingIP("f", asks(""), ""), nil, []client.Object{own, claimed("10.0.0.240", "g")},
			`"10.0.0.241" on "" True Unassociated [10.0.0.240=a/g 10.0.0.241=a/f]`},
		{"with its claim, as before a crash", testFloatingIP("f", asks(""), ""), nil, []client.Object{own, claimed("10.0.0.245", "f")},
			`"10.0.0.245" on "" True Unassociated [10.0.0.245=a/f]`},
		{"with its claim", testFloatingIP("f", asks(""), "10.0.0.245"), nil, []client.Object{own, claimed("10.0.0.245", "f")},
			`"10.0.0.245" on "" True Unassociated [10.0.0.245=a/f]`},
		{"with two claims", testFloatingIP("f", asks(""), "10.0.0.246"), nil,
			[]client.Object{own, claimed("10.0.0.245", "f"), claimed("10.0.0.246", "f")},
			`"10.0.0.246" on "" True Unassociated [10.0.0.246=a/f]`},
		{"whose claims are gone", testFloatingIP("f", asks(""), "10.0.0.246"), nil, nil,
			`"10.0.0.246" on "" True Unassociated [10.0.0.246=a/f]`},
		{"whose address is another's now", testFloatingIP("f", asks(""), "10.0.0.246"), nil,
			[]client.Object{own, claimed("10.0.0.246", "g")},
			`"10.0.0.240" on "" True Unassociated [10.0.0.240=a/f 10.0.0.246=a/g]`},
		{"whose address is not handed out any more", testFloatingIP("f", asks(""), "10.0.0.99"), nil,
			[]client.Object{claimed("10.0.0.99", "f")}, `"10.0.0.99" on "" True Unassociated [10.0.0.99=a/f]`},
		{"whose lost address is not handed out any more", testFloatingIP("f", asks(""), "10.0.0.99"), nil, nil,
			`"10.0.0.240" on "" True Unassociated [10.0.0.240=a/f]`},
		{"of a name that had another address", testFloatingIP("f", asks("10.0.0.250"), ""), nil,
			[]client.Object{own, claimed("10.0.0.245", "f")}, `"10.0.0.250" on "" True Unassociated [10.0.0.250=a/f]`},
		{"of a Network that is not ready", testFloatingIP("f", asks(""), "10.0.0.245"), notReady,
			[]client.Object{own, claimed("10.0.0.245", "f")}, `"10.0.0.245" on "" False NetworkNotReady [10.0.0.245=a/f]`},
		{"that may have none", testFloatingIP("f", asks(""), "10.0.0.245"), inner,
			[]client.Object{own, claimed("10.0.0.245", "f"), claimed("10.0.0.246", "g")}, `"" on "" False NetworkNotExternal [10.0.0.246=a/g]`},
		{"that asks for another's", testFloatingIP("f", asks("10.0.0.246"), ""), nil, []client.Object{claimed("10.0.0.246", "g")},
			`"" on "" False AddressTaken [10.0.0.246=a/g]`},
		{"that asks for a Port's", testFloatingIP("f", asks("10.0.0.246"), ""), nil,
			[]client.Object{testBlock("lan-10-0-0-246-32", "10.0.0.246/32", "", "a/vm", time.Minute)},
			`"" on "" False AddressTaken [10.0.0.246=a/vm]`},
		{"that asks for a node's", testFloatingIP("f", asks("10.0.0.240"), ""), nil, []client.Object{node},
			`"" on "" False AddressTaken []`},

		{"in a node's block", testFloatingIP("f", asks("10.0.0.5"), ""), nil, []client.Object{theirs},
			`"" on "" False WaitingForNode [10.0.0.5=a/f]`},
		{"that its node grants", testFloatingIP("f", asks("10.0.0.5"), ""), nil,
			[]client.Object{theirs, grantedBy(claimed("10.0.0.5", "f"), metav1.ConditionTrue, byNode)},
			`"10.0.0.5" on "" True Unassociated [10.0.0.5=a/f]`},
		{"that its node has granted", testFloatingIP("f", asks("10.0.0.5"), "10.0.0.5"), nil,
			[]client.Object{theirs, grantedBy(claimed("10.0.0.5", "f"), metav1.ConditionTrue, byNode)},
			`"10.0.0.5" on "" True Unassociated [10.0.0.5=a/f]`},
		{"that its node refuses", testFloatingIP("f", asks("10.0.0.5"), ""), nil,
			[]client.Object{theirs, grantedBy(claimed("10.0.0.5", "f"), metav1.ConditionFalse, translate.RefusalMessage("worker1", "a pod has it"))},
			`"" on "" False AddressTaken [10.0.0.5=a/f]`},
		{"that another node grants", testFloatingIP("f", asks("10.0.0.5"), ""), nil,
			[]client.Object{theirs, grantedBy(claimed("10.0.0.5", "f"), metav1.ConditionTrue, translate.GrantMessage("worker2"))},
			`"" on "" False WaitingForNode [10.0.0.5=a/f]`},
		{"whose address is in a node's block now", testFloatingIP("f", asks(""), "10.0.0.5"), nil, []client.Object{theirs},
			`"10.0.0.5" on "" False WaitingForNode [10.0.0.5=a/f]`},
		{"with two claims in a node's block", testFloatingIP("f", asks(""), "10.0.0.6"), nil,
			[]client.Object{theirs, claimed("10.0.0.5", "f"), claimed("10.0.0.6", "f")},
			`"10.0.0.6" on "" False WaitingForNode [10.0.0.6=a/f]`},
		{"whose address a node has handed out since", testFloatingIP("f", asks(""), "10.0.0.5"), nil,
			[]client.Object{theirs, grantedBy(claimed("10.0.0.5", "f"), metav1.ConditionFalse, translate.RefusalMessage("worker1", "a pod has it"))},
			`"10.0.0.240" on "" True Unassociated [10.0.0.240=a/f]`},
	} {
		network := c.network
		if network == nil {
			network = externalNetwork()
		}
		objects := []client.Object{c.ip, network, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		for _, o := range c.others {
			objects = append(objects, o.DeepCopyObject().(client.Object))
		}
		a := reconciletest.Access(objects...)
		got := reconciled(t, a, c.ip)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if again := reconciled(t, a, c.ip); again != got {
			t.Errorf("%s, once more: %s, was %s", c.name, again, got)
		}
	}
}

// A full Network is no endless search, also where a pool holds most of a large subnet.
func TestFloatingIPsExhausted(t *testing.T) {
	network := externalNetwork()
	network.Spec.Subnets = []v1alpha1.Subnet{{CIDR: "2001:db8::/64"}, {CIDR: "2001:db8:1::/126"}}
	pool := &v1alpha1.LoadBalancerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Status:     v1alpha1.LoadBalancerPoolStatus{Ranges: []string{"2001:db8::-2001:db8::ffff:ffff:ffff:ffff"}},
	}
	first, second := testFloatingIP("f", v1alpha1.FloatingIPSpec{}, ""), testFloatingIP("g", v1alpha1.FloatingIPSpec{}, "")
	third := testFloatingIP("h", v1alpha1.FloatingIPSpec{}, "")
	a := reconciletest.Access(network, pool, first, second, third, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	for f, want := range map[*v1alpha1.FloatingIP]bool{first: true, second: true} {
		reconciled(t, a, f)
		if got := strings.HasPrefix(f.Status.Address, "2001:db8:1::"); got != want {
			t.Errorf("%s: %+v", f.Name, f.Status)
		}
	}
	const want = "all addresses of 2001:db8::/64 and 2001:db8:1::/126 are taken or in blocks of nodes: add a subnet to the Network, or delete FloatingIPs that are not needed"
	reconciled(t, a, third)
	if c := third.Status.Conditions[0]; c.Reason != v1alpha1.ReasonExhausted || c.Message != want {
		t.Errorf("a third one: %+v", third.Status)
	}
}

// The Port of a pod on the Network default is no object.
func TestFloatingIPsOfPods(t *testing.T) {
	long := strings.Repeat("p", 251)
	for _, c := range []struct {
		name, port string
		pod        corev1.Pod
		want       string
	}{
		{"attached", "web-0.eth0", *attachedPod("web-0"), `"worker1" Bound`},
		{"by its name alone", "web-0", *attachedPod("web-0"), `"" NotBound`},
		{"another interface", "web-0.net1", *attachedPod("web-0"), `"" NotBound`},
		{"a very long name", attachment.PortName(long, "eth0"), *attachedPod(long), `"worker1" Bound`},
		{"without a node", "web-0.eth0", func() corev1.Pod {
			p := attachedPod("web-0")
			p.Spec.NodeName = ""
			return *p
		}(), `"" NotBound`},
		{"on the host's network", "web-0.eth0", func() corev1.Pod {
			p := attachedPod("web-0")
			p.Spec.HostNetwork = true
			return *p
		}(), `"" NotBound`},
		{"not attached yet", "web-0.eth0", func() corev1.Pod {
			p := attachedPod("web-0")
			p.Status.PodIPs = nil
			return *p
		}(), `"" NotBound`},
		{"ended", "web-0.eth0", func() corev1.Pod {
			p := attachedPod("web-0")
			p.Status.Phase = corev1.PodSucceeded
			return *p
		}(), `"" NotBound`},
	} {
		f := testFloatingIP("f", v1alpha1.FloatingIPSpec{Port: c.port}, "")
		a := reconciletest.Access(f, externalNetwork(), &c.pod, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		reconciled(t, a, f)
		if got := fmt.Sprintf("%q %s", f.Status.Node, f.Status.Conditions[0].Reason); got != c.want || f.Status.Address == "" {
			t.Errorf("%s: %s, want %s: %+v", c.name, got, c.want, f.Status)
		}
		requests := watches{a}.floatingIPsOfPod(t.Context(), &c.pod)
		if found := len(requests) == 1; found != (c.port != "web-0" && c.port != "web-0.net1") {
			t.Errorf("%s: a change of the pod asks for %v", c.name, requests)
		}
	}
}

func attachedPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.PodSpec{NodeName: "worker1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}}},
	}
}
