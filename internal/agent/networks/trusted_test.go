// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// A user's Port is trusted as its object says, from the first and when that changes, also after a
// start without the API. One that is a pod's is not, whatever its object says.
func TestTrustedPorts(t *testing.T) {
	d := disk{}
	w := newWorld(t, d)
	object := func(name string, trusted bool) *v1alpha1.Port {
		return &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       v1alpha1.PortSpec{Network: "lan", Trusted: trusted},
		}
	}
	pod := object("web.eth0", true)
	pod.Spec.Pod = &v1alpha1.PortPod{Name: "web", UID: "web", Interface: "eth0"}
	vm := attachment.Attachment{Spec: attachment.Spec{
		Key: attachment.PortKey("shop", "vm"), PodNamespace: "shop", PodName: "vm", PortName: "vm",
	}}
	attach := func(w *world) {
		w.update(func(tx *intent.Tx) {
			tx.SetPort(w.Port(vm))
			tx.SetPort(w.Port(attached("web")))
		})
	}
	check := func(when string, w *world, want bool) {
		t.Helper()
		got, _ := w.Intent.State().Ports().Get(vm.Key.String())
		if other, _ := w.Intent.State().Ports().Get("web/eth0"); got.Trusted != want || other.Trusted {
			t.Errorf("%s: the machine is trusted: %v, the pod: %v", when, got.Trusted, other.Trusted)
		}
	}
	attach(w)
	check("not known", w, false)
	w.api.Ports(kube.Whole([]*v1alpha1.Port{object("vm", true), pod}))
	check("trusted", w, true)
	attach(w)
	check("plugged anew", w, true)
	if err := w.View.Save(); err != nil {
		t.Fatal(err)
	}
	again := newWorld(t, d)
	attach(again)
	check("after a start without the API", again, true)
	w.api.Ports(kube.Whole([]*v1alpha1.Port{object("vm", false), pod}))
	check("not any more", w, false)
}
