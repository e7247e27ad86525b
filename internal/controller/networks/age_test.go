// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/translate"
)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func testNetwork(age time.Duration) *v1alpha1.Network {
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "lan", CreationTimestamp: ago(age)},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, IPAM: v1alpha1.Blocks, Subnets: []v1alpha1.Subnet{{CIDR: "10.0.0.0/24"}},
		},
		Status: v1alpha1.NetworkStatus{ID: 2, VNI: 70000},
	}
}

func testBlock(name, cidr, node, port string, age time.Duration) *v1alpha1.AddressBlock {
	return &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(age)},
		Spec:       v1alpha1.AddressBlockSpec{Network: "lan", CIDR: cidr, Node: node, Port: port},
	}
}

// A node's refusal is believed for a while, and as long as a Port shows the owner of the address;
// then the node is asked again.
func TestRefusalIsNotForever(t *testing.T) {
	refused := func(since time.Duration) *v1alpha1.AddressBlock {
		b := testBlock("lan-10-0-0-5-32", "10.0.0.5/32", "", "a/vm", time.Hour)
		b.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionGranted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAddressTaken,
			Message: "a pod has it", LastTransitionTime: ago(since),
		}}
		return b
	}
	holder := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pod.net1"},
		Spec:       v1alpha1.PortSpec{Network: "lan", Pod: &v1alpha1.PortPod{Name: "pod"}},
		Status:     v1alpha1.PortStatus{Addresses: []string{"10.0.0.5"}},
	}
	for _, c := range []struct {
		name     string
		claim    *v1alpha1.AddressBlock
		holder   *v1alpha1.Port
		again    bool // looks again without anything else happening
		answered bool // the claim is the one that was refused
	}{
		{"just now", refused(time.Second), nil, true, true},
		{"long ago", refused(time.Hour), nil, false, false},
		{"long ago, and a Port has it", refused(time.Hour), holder, false, true},
	} {
		port := &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"},
			Spec:       v1alpha1.PortSpec{Network: "lan", Addresses: []string{"10.0.0.5"}},
		}
		objects := []client.Object{
			testNetwork(2 * time.Hour), c.claim, port, testBlock("lan-10-0-0-0-28", "10.0.0.0/28", "worker1", "", time.Hour),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		}
		if c.holder != nil {
			objects = append(objects, c.holder)
		}
		a := reconciletest.Access(objects...)
		r := &ports{Access: a, claims: claims{a}}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(port)})
		if err != nil || (result.RequeueAfter > 0) != c.again || result.RequeueAfter > askAgain {
			t.Errorf("%s: %+v, %v", c.name, result, err)
		}
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(port), port); err != nil || port.Status.Phase != v1alpha1.PortFailed {
			t.Errorf("%s: %+v, %v", c.name, port.Status, err)
		}
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(c.claim), c.claim); err != nil {
			t.Fatal(err)
		}
		if answered := meta.FindStatusCondition(c.claim.Status.Conditions, v1alpha1.ConditionGranted) != nil; answered != c.answered {
			t.Errorf("%s: the claim is %+v", c.name, c.claim)
		}
	}
}

// A Port has an address in a node's block if that node grants it, and no other node does, nor names
// the Port in a claim of its own.
func TestWhoMayGrant(t *testing.T) {
	const name = "lan-10-0-0-5-32"
	claim := func(node, by string) *v1alpha1.AddressBlock {
		b := testBlock(name, "10.0.0.5/32", node, "a/vm", time.Minute)
		b.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
			Message: translate.GrantMessage(by), LastTransitionTime: ago(0),
		}}
		return b
	}
	for _, c := range []struct {
		name     string
		claim    *v1alpha1.AddressBlock
		phase    v1alpha1.PortPhase
		answered bool // the claim is the one that was granted
	}{
		{"the node of the block", claim("", "worker1"), v1alpha1.PortReady, true},
		{"the controller, before the block", claim("", ""), v1alpha1.PortReady, true},
		{"another node", claim("", "worker2"), v1alpha1.PortPending, false},
		{"for another node", claim("worker2", "worker1"), v1alpha1.PortFailed, true},
	} {
		port := &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"},
			Spec:       v1alpha1.PortSpec{Network: "lan", Addresses: []string{"10.0.0.5"}},
		}
		a := reconciletest.Access(
			testNetwork(2*time.Hour), c.claim, port, testBlock("lan-10-0-0-0-28", "10.0.0.0/28", "worker1", "", time.Hour),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		)
		r := &ports{Access: a, claims: claims{a}}
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(port)})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		err = a.Get(t.Context(), client.ObjectKeyFromObject(port), port)
		if err != nil || port.Status.Phase != c.phase || (len(port.Status.Addresses) > 0) != (c.phase == v1alpha1.PortReady) {
			t.Errorf("%s: %+v, %v", c.name, port.Status, err)
		}
		now := &v1alpha1.AddressBlock{}
		if err := a.Get(t.Context(), client.ObjectKey{Name: name}, now); err != nil {
			t.Fatal(err)
		}
		if answered := len(now.Status.Conditions) > 0; answered != c.answered {
			t.Errorf("%s: the claim is %+v", c.name, now)
		}
	}
}

// When a block may stay, and when it goes.
func TestBlocksGoInTime(t *testing.T) {
	port := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan"}}
	claim := testBlock("lan-10-0-0-241-32", "10.0.0.241/32", "", "a/vm", time.Hour)
	floating := testFloatingIP("f", v1alpha1.FloatingIPSpec{}, "10.0.0.5")
	for _, c := range []struct {
		name         string
		block        *v1alpha1.AddressBlock
		others       []client.Object
		gone, waits  bool
		networkIsNew bool
	}{
		{name: "a node's", block: testBlock("b", "10.0.0.0/28", "worker1", "", time.Hour)},
		{name: "a lost node's", block: testBlock("b", "10.0.0.0/28", "lost", "", time.Second), gone: true},
		{name: "of a Network that was made again", block: testBlock("b", "10.0.0.0/28", "worker1", "", time.Hour), networkIsNew: true, gone: true},
		{name: "a Port's", block: testBlock("b", "10.0.0.5/32", "", "a/vm", time.Second), others: []client.Object{port}},
		{name: "a lost Port's", block: testBlock("b", "10.0.0.5/32", "", "a/vm", time.Second), gone: true},
		{name: "a FloatingIP's", block: claimed("10.0.0.5", "f"), others: []client.Object{floating}},
		{name: "a lost FloatingIP's", block: claimed("10.0.0.5", "f"), gone: true},
		{name: "the controller's, used by a FloatingIP", block: testBlock("b", "10.0.0.240/28", "", "", time.Hour), others: []client.Object{claimed("10.0.0.245", "f"), floating}},
		{name: "a node's, before the Port", block: testBlock("b", "10.0.0.5/32", "worker1", "a/p.net1", time.Second), waits: true},
		{name: "a node's, after the Port", block: testBlock("b", "10.0.0.5/32", "worker1", "a/p.net1", time.Hour), gone: true},
		{name: "the controller's, new", block: testBlock("b", "10.0.0.240/28", "", "", time.Second), waits: true},
		{name: "the controller's, used", block: testBlock("b", "10.0.0.240/28", "", "", time.Hour), others: []client.Object{claim, port}},
		{name: "the controller's, not used", block: testBlock("b", "10.0.0.224/28", "", "", time.Hour), others: []client.Object{claim, port}, gone: true},
	} {
		network := testNetwork(2 * time.Hour)
		if c.networkIsNew {
			network = testNetwork(time.Minute)
		}
		a := reconciletest.Access(append(c.others, c.block, network, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1"}})...)
		r := &blocks{Access: a, claims: claims{a}}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c.block)})
		if err != nil || (result.RequeueAfter > 0) != c.waits || result.RequeueAfter > newBlockGrace {
			t.Errorf("%s: %+v, %v", c.name, result, err)
		}
		err = a.Get(t.Context(), client.ObjectKeyFromObject(c.block), c.block)
		if apierrors.IsNotFound(err) != c.gone {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// dynamicPort is what the agent of a node has made for a machine that is away.
func dynamicPort(node string) *v1alpha1.Port {
	return &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "guest"},
		Spec:       v1alpha1.PortSpec{Network: "lan", Node: node, MAC: "52:54:00:00:00:01", Dynamic: true},
		Status:     v1alpha1.PortStatus{Phase: v1alpha1.PortReady, MAC: "52:54:00:00:00:01", Addresses: []string{"10.0.0.9"}},
	}
}

// The Port that an agent has made for a machine is left to that agent, and goes with its node.
func TestDynamicPort(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1"}}
	for _, there := range []bool{true, false} {
		port := dynamicPort("worker1")
		a := reconciletest.Access(port)
		if there {
			a = reconciletest.Access(port, node, testNetwork(time.Hour))
		}
		r := &ports{Access: a, claims: claims{a}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(port)}); err != nil {
			t.Error(err)
		}
		err := a.Get(t.Context(), client.ObjectKeyFromObject(port), port)
		if apierrors.IsNotFound(err) == there {
			t.Errorf("the node is there: %v; the Port: %v", there, err)
		}
		if there && (len(port.Status.Conditions) > 0 || port.Status.Addresses[0] != "10.0.0.9") {
			t.Errorf("the controller has changed it: %+v", port.Status)
		}
		found, err := reconcile.All(t.Context(), a, &v1alpha1.PortList{}, client.MatchingFields{reconcile.ByNode: "worker1"})
		if err != nil || (len(found.Items) == 1) != there {
			t.Errorf("Ports of the node: %v, %v", found.Items, err)
		}
	}
}

// What memory does not have is asked for before anything is removed because of it.
func TestNothingIsRemovedOnHearsay(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "new"}, Spec: corev1.PodSpec{NodeName: "worker1"},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1"}}
	port := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p.eth0"},
		Spec:       v1alpha1.PortSpec{Network: "lan", Pod: &v1alpha1.PortPod{Name: "p", UID: "new"}},
	}
	vm := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan"},
		Status: v1alpha1.PortStatus{Node: "worker1", Phase: v1alpha1.PortBound},
	}
	machine := dynamicPort("worker1")
	old := testBlock("lan-10-0-0-5-32", "10.0.0.5/32", "worker1", "a/vm", time.Hour)
	known := reconciletest.Access(port, vm, machine, old)
	live := reconciletest.Access(pod, node, port, vm, machine, old, testNetwork(2*time.Hour))
	a := &reconcile.Access{Client: known, Live: live, Events: known.Events}
	for _, p := range []*v1alpha1.Port{port, vm, machine} {
		r := &ports{Access: a, claims: claims{a}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Error(err)
		}
		if err := known.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Errorf("port %s: %v", p.Name, err)
		}
	}
	if vm.Status.Node != "worker1" {
		t.Errorf("a Port was unbound: %+v", vm.Status)
	}
	r := &blocks{Access: a, claims: claims{a}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)}); err != nil {
		t.Error(err)
	}
	if err := known.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Errorf("block: %v", err)
	}
}
