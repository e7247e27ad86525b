// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// egress is one for the pods of a namespace.
func egress(name, network, namespace string, addresses ...string) *v1alpha1.Egress {
	e := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	e.Spec.Network, e.Spec.Addresses = network, addresses
	e.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	return e
}

// leaves waits until an Egress has these addresses, and the condition has the reason, and for
// nothing to change that. A number in place of addresses is how many.
func (w *world) leaves(name, reason string, addresses ...string) *v1alpha1.Egress {
	w.Helper()
	e := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.settles(func() string {
		if !w.get(e) {
			return "egress " + name + " is not there"
		}
		blocks := w.egressBlocks(name)
		c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != reason || c.Message == "" || c.ObservedGeneration != e.Generation ||
			!slices.Equal(e.Status.Addresses, addresses) && fmt.Sprint(addresses) != fmt.Sprintf("[%d]", len(e.Status.Addresses)) ||
			len(blocks) != len(e.Status.Addresses) {
			return fmt.Sprintf("egress %s, want %s with %v: %d blocks, %+v", name, reason, addresses, len(blocks), e.Status)
		}
		return ""
	})
	return e
}

func (w *world) egressBlocks(name string) []v1alpha1.AddressBlock {
	w.Helper()
	list := &v1alpha1.AddressBlockList{}
	if err := w.client.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.AddressBlock) bool { return b.Spec.Egress != name })
}

// testEgresses keep their addresses over restarts of everything, change them without being without
// any, and give them back when they go.
func testEgresses(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	w.connected(1, "office")
	second := w.connected(2, "office")
	w.namespace("bank", nil)
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), egress("bank", "office", "bank"))
	two := w.leaves("bank", v1alpha1.ReasonReady, "2").Status.Addresses
	if strings.Contains(two[0], ":") || !strings.Contains(two[1], ":") {
		t.Errorf("not one of each family: %v", two)
	}
	for i, b := range w.egressBlocks("bank") {
		w.status(&b, func() { b.Status.ActiveNode = fmt.Sprintf("worker%d", 2-i%2) })
	}
	w.until(func() string {
		e := w.leaves("bank", v1alpha1.ReasonReady, two...)
		return want(fmt.Sprint(e.Status.ActiveNodes) == "[worker1 worker2]", fmt.Sprint(e.Status))
	})

	// More, fewer, and others; and no node, without a controller.
	e := egress("bank", "", "")
	w.change(e, func() { e.Spec.Count = 3 })
	six := w.leaves("bank", v1alpha1.ReasonReady, "6").Status.Addresses
	if !slices.Contains(six, two[0]) || !slices.Contains(six, two[1]) {
		t.Errorf("%v are not among %v", two, six)
	}
	w.change(e, func() { e.Spec.Count = 0 })
	w.leaves("bank", v1alpha1.ReasonReady, "2")
	w.change(e, func() { e.Spec.Addresses = []string{"192.0.2.40"} })
	w.leaves("bank", v1alpha1.ReasonReady, "192.0.2.40")
	stop()
	w.connect(second, "lab")
	w.change(e, func() {
		e.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": "true"}}
	})
	w.create(floatingIP("default", "beside", v1alpha1.FloatingIPSpec{Network: "office"}))
	stop = w.start(nil)
	w.leaves("bank", v1alpha1.ReasonNoConnectedNode, "192.0.2.40")
	w.event("Egress", "bank", v1alpha1.ReasonNoConnectedNode)
	w.change(e, func() { e.Spec.Nodes = nil })
	w.leaves("bank", v1alpha1.ReasonReady, "192.0.2.40")
	w.floats("default", "beside", v1alpha1.ReasonUnassociated, readyIP("", ""))

	// A younger one for the same pods, and for no more of them.
	w.pod("bank", "web", "worker1")
	w.create(egress("late", "office", "bank"))
	w.leaves("late", v1alpha1.ReasonPodsTaken, "2")
	w.event("Egress", "late", v1alpha1.ReasonPodsTaken)
	late := w.leaves("late", v1alpha1.ReasonPodsTaken, "2")
	if m := late.Status.Conditions[0].Message; !strings.Contains(m, "pod bank/web leaves by Egress bank, which is older") {
		t.Errorf("%q", m)
	}
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web"}})
	w.leaves("late", v1alpha1.ReasonReady, "2")

	// The Network waits for them.
	w.delete(floatingIP("default", "beside", v1alpha1.FloatingIPSpec{}))
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	w.delete(office)
	w.blocked(office, "egress bank", "egress late")
	w.leaves("bank", v1alpha1.ReasonNetworkNotReady, "192.0.2.40")
	stop()
	w.delete(late)
	w.start(nil)
	w.until(func() string { return want(len(w.egressBlocks("late")) == 0, "addresses are left") })
	w.delete(e)
	w.until(func() string { return want(!w.get(office), "the Network is left") })
}

// testBadEgresses is every way in which one can be wrong that the API server lets through.
func testBadEgresses(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.connected(1, "tiny,office")
	at := w.connected(2, "tiny,office")
	w.status(at, func() {
		at.Status.Addresses = append(at.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.77"})
	})
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	w.create(external("office", "192.0.2.0/24"), external("tiny", "203.0.113.128/30"), egress("first", "office", "default", "192.0.2.66"))
	w.leaves("first", v1alpha1.ReasonReady, "192.0.2.66")
	for i, c := range []struct {
		network, address, reason, part string
		change                         func(*v1alpha1.EgressSpec)
	}{
		{"nowhere", "192.0.2.50", v1alpha1.ReasonNetworkNotFound, "create it", nil},
		{"default", "192.0.2.50", v1alpha1.ReasonNotExternal, "external: true", nil},
		{"office", "203.0.113.9", v1alpha1.ReasonAddressOutside, "spec.addresses[0]: 203.0.113.9 is in no subnet of the Network: ask for another one", nil},
		{"office", "192.0.2.1", v1alpha1.ReasonAddressOutside, "is the gateway of 192.0.2.0/24", nil},
		{"office", "192.0.2.77", v1alpha1.ReasonAddressTaken, "192.0.2.77 is that of node worker2: ask for another one", nil},
		{"office", "192.0.2.66", v1alpha1.ReasonAddressTaken, "192.0.2.66 is that of egress first: ask for another one", nil},
		{"office", "", v1alpha1.ReasonInvalid, "spec.podSelector", func(s *v1alpha1.EgressSpec) { s.PodSelector = near }},
		{"office", "", v1alpha1.ReasonInvalid, "spec.namespaceSelector", func(s *v1alpha1.EgressSpec) { s.NamespaceSelector = near }},
		{"office", "", v1alpha1.ReasonInvalid, "spec.nodes", func(s *v1alpha1.EgressSpec) { s.Nodes = near }},
	} {
		name := fmt.Sprintf("bad-%d", i)
		e := egress(name, c.network, "default", strings.Fields(c.address)...)
		if c.change != nil {
			c.change(&e.Spec)
		}
		w.create(e)
		e = w.leaves(name, c.reason)
		w.event("Egress", name, c.reason)
		if m := e.Status.Conditions[0]; m.Status != metav1.ConditionFalse || !strings.Contains(m.Message, c.part) {
			t.Errorf("%s: %+v", name, m)
		}
		w.delete(e)
	}
	other := egress("family", "office", "default")
	other.Spec.Destinations = []string{"2001:db8:1::/48"}
	w.create(other, egress("one", "tiny", "default"))
	w.leaves("family", v1alpha1.ReasonWrongFamily, "1")
	only := w.leaves("one", v1alpha1.ReasonReady, "1").Status.Addresses
	w.create(egress("two", "tiny", "kube-system"))
	w.leaves("two", v1alpha1.ReasonExhausted)
	w.event("Egress", "two", v1alpha1.ReasonExhausted)
	w.delete(egress("one", "", ""))
	w.leaves("two", v1alpha1.ReasonReady, only...)
}
