// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
)

// started waits until all is in the queue that is looked at once.
func (w *world) started() {
	w.t.Helper()
	kubetest.Eventually(w.t, "Ports are listed and watched", func() bool {
		calls := w.api.Calls()
		return slices.Contains(calls, "list ports") && slices.Contains(calls, "watch ports")
	})
}

// withPort has a pod on the Network default that is in the API with its Port.
func (w *world) withPort(pod, uid, address string) attachment.Attachment {
	w.t.Helper()
	w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod, UID: types.UID(uid)}})
	kubetest.Eventually(w.t, "the pod is seen", func() bool { return w.view.State().Pods.Get(uid) != nil })
	at := w.attach(pod, uid, "default", address)
	w.Changed(at)
	kubetest.Eventually(w.t, "the Port is bound", func() bool { return w.bound(at) })
	return at
}

// bound says whether an attachment has a Port with addresses on this node.
func (w *world) bound(at attachment.Attachment) bool {
	o := w.port(at.PortKey())
	return o != nil && o.Spec.Node == "n1" && o.Status.Phase == v1alpha1.PortBound && len(o.Status.Addresses) > 0
}

// A Port that a user deletes, or gives to another node, while its pod is attached comes back: else
// policies would not reach the pod.
func TestPortsArePutBack(t *testing.T) {
	w := newWorld(t)
	w.All = true
	w.run()
	w.started()
	at := w.withPort("p", "u1", "10.244.1.9")
	w.api.RemovePort(at.PortKey())
	kubetest.Eventually(t, "the Port is back", func() bool { return w.bound(at) })

	moved := w.port(at.PortKey()).DeepCopy()
	moved.Spec.Node = "n2"
	w.api.Add(moved)
	kubetest.Eventually(t, "the Port is of this node again", func() bool { return w.bound(at) })
	if w.port(at.PortKey()).UID == moved.UID {
		t.Error("it is the one that was given to another node")
	}
	// What is as it should be costs no calls.
	before := len(w.api.Calls())
	w.withPort("q", "u2", "10.244.1.8")
	for _, call := range w.api.Calls()[before:] {
		if call == "create port "+at.PortKey() {
			t.Errorf("the Port is written for the change of another: %v", w.api.Calls()[before:])
		}
	}
}

// The Port of a pod that is gone from the API goes with it, and so does that of one that is being
// detached.
func TestPortsThatGoStayAway(t *testing.T) {
	w := newWorld(t)
	w.All = true
	w.run()
	w.started()
	gone, detached := w.withPort("gone", "u1", "10.244.1.7"), w.withPort("detached", "u2", "10.244.1.8")
	stays := w.withPort("stays", "u3", "10.244.1.9")
	w.api.RemovePod("shop/gone")
	kubetest.Eventually(t, "the pod is gone", func() bool { return w.view.State().Pods.Get("u1") == nil })
	w.api.RemovePort(gone.PortKey())
	w.Remove(detached)
	kubetest.Eventually(t, "the Port goes with its pod", func() bool { return w.port(detached.PortKey()) == nil })
	before := len(w.api.Calls())
	w.api.RemovePort(stays.PortKey())
	kubetest.Eventually(t, "the third one is back", func() bool { return w.bound(stays) })
	for _, at := range []attachment.Attachment{gone, detached} {
		if slices.Contains(w.api.Calls()[before:], "create port "+at.PortKey()) {
			t.Errorf("%s is made again", at.PortKey())
		}
	}
}
