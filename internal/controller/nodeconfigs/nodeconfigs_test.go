// SPDX-License-Identifier: Apache-2.0

package nodeconfigs

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/nodeconfig"
)

func testNode(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return n
}

func testConfig(name, node string, mtu int32) *v1alpha1.NodeNetworkConfig {
	c := &v1alpha1.NodeNetworkConfig{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", Generation: 3}}
	c.Spec.NodeName, c.Spec.MTU = node, mtu
	return c
}

// Each node gets what holds for it, with the addresses that it may ask from.
func TestAnswers(t *testing.T) {
	nodes := []*corev1.Node{testNode("a", "192.0.2.1", "2001:db8::1"), testNode("b", "192.0.2.2"), testNode("c")}
	all := compute(nodes, []*v1alpha1.NodeNetworkConfig{testConfig("x", "a", 1400)})
	for name, want := range map[string]string{
		"a": `[192.0.2.1 2001:db8::1] x 3 {"mtu":1400}`, "b": "[192.0.2.2]  0 ", "c": "[]  0 ",
	} {
		n := all[name]
		got := fmt.Sprint(n.Addresses, " ", n.Answer.GetName(), " ", n.Answer.GetGeneration(), " ", string(n.Answer.GetSettings()))
		if got != want {
			t.Errorf("node %s: %q, want %q", name, got, want)
		}
	}
}

// A call from elsewhere is an Event of the node.
func TestRefusedCall(t *testing.T) {
	a := reconciletest.Access(testNode("a", "192.0.2.1"))
	s := newSource(slog.New(slog.DiscardHandler), nil, a, a.Events, heartbeat.New(heartbeat.Bound))
	if _, known := s.Of("a"); known {
		t.Error("known before anything is listed")
	}
	changed := s.Changed()
	if err := s.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	if c, known := s.Of("a"); !known || len(c.Addresses) != 1 {
		t.Errorf("%+v, %t", c, known)
	}
	s.Refused("a", errors.New("192.0.2.9 is not an address of node a"))
	s.Refused("gone", errors.New("of a node that is not there"))
	select {
	case e := <-a.Events.(*record.FakeRecorder).Events:
		if !strings.Contains(e, "AddressNotOfNode 192.0.2.9 is not an address of node a") {
			t.Errorf("Event %q", e)
		}
	default:
		t.Error("no Event")
	}
}

// The status follows what nodes report, and a conflict is an Event of the loser that names both.
func TestStatusOfObjects(t *testing.T) {
	old, young := testConfig("old", "a", 1400), testConfig("young", "a", 1300)
	old.CreationTimestamp = metav1.Unix(1, 0)
	young.UID, young.CreationTimestamp = "another", metav1.Unix(2, 0)
	n := testNode("a", "192.0.2.1")
	a := reconciletest.Access(old, young, n)
	check := func(name, want string) *v1alpha1.NodeNetworkConfig {
		t.Helper()
		if _, err := (&status{a}).Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		c := &v1alpha1.NodeNetworkConfig{}
		if err := a.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if got := fmt.Sprintf("%s %d/%d", ready.Reason, c.Status.AppliedNodes, c.Status.SelectedNodes); got != want {
			t.Errorf("%s: %s, want %s: %s", name, got, want, ready.Message)
		}
		return c
	}
	check("old", "Pending 0/1")
	check("young", "NodesTaken 0/0")
	event := <-a.Events.(*record.FakeRecorder).Events
	if !strings.Contains(event, "NodesTaken") || !strings.Contains(event, "old") || !strings.Contains(event, "young") {
		t.Errorf("Event %q", event)
	}
	report := func(r nodeconfig.Report) {
		t.Helper()
		text, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		before := n.DeepCopy()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationNetworkConfig, text)
		if err := a.Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	report(nodeconfig.Report{Applied: &nodeconfig.Applied{Name: "old", UID: string(old.UID), Generation: 3, Time: metav1.Unix(100, 0).Time}})
	first := check("old", "Ready 1/1")
	if again := check("old", "Ready 1/1"); again.ResourceVersion != first.ResourceVersion {
		t.Error("what has not changed is written again")
	}
	report(nodeconfig.Report{Refused: &nodeconfig.Refused{Name: "old", UID: string(old.UID), Generation: 3, Message: "no card"}})
	if c := check("old", "RefusedByNodes 0/1"); c.Status.Nodes[0].Message != "no card" {
		t.Errorf("%+v", c.Status)
	}
	select {
	case e := <-a.Events.(*record.FakeRecorder).Events:
		if !strings.Contains(e, "RefusedByNodes") || !strings.Contains(e, "no card") {
			t.Errorf("Event %q", e)
		}
	default:
		t.Error("that a node refuses it is no Event")
	}
}
