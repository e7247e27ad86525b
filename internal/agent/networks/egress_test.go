// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// selecting is an Egress for the pods with a label, so many seconds old.
func selecting(name, app string, age int) *v1alpha1.Egress {
	o := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9-age), 0)),
	}}
	o.Spec.Network, o.Spec.PodSelector = "office", &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return o
}

func podWith(name, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app},
	}}
}

// attached is the interface of a pod.
func attached(pod string) attachment.Attachment {
	return attachment.Attachment{Spec: attachment.Spec{
		Key: attachment.Key{ContainerID: pod, IfName: "eth0"}, PodNamespace: "shop", PodName: pod, PodUID: pod,
	}}
}

// egresses are those that the Ports of this node leave by, if any, by the Port's id.
func (w *world) egresses() map[string]string {
	got := map[string]string{}
	for p := range w.Intent.State().PortsAt("n1") {
		if p.Egress != "" {
			got[p.ID] = p.Egress
		}
	}
	return got
}

// Ports follow Egresses and the labels of pods and of namespaces; and are right from the first,
// also at a start without the API.
func TestEgressOfPorts(t *testing.T) {
	d := disk{}
	w := newWorld(t, d)
	attach := func(w *world, pods ...string) {
		t.Helper()
		w.update(func(tx *intent.Tx) {
			for _, pod := range pods {
				tx.SetPort(w.Port(attached(pod)))
			}
		})
	}
	check := func(when string, w *world, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, w.egresses()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	pods := func(w *world, list ...*corev1.Pod) {
		w.View.SetPods(kube.Whole(list))
		w.Refresh()
	}
	namespace := func(team string) []*corev1.Namespace {
		return []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": team}}}}
	}
	w.api.Namespaces(kube.Whole(namespace("a")))
	pods(w, podWith("web", "web"), podWith("db", "db"))
	attach(w, "web", "db")
	w.update(func(tx *intent.Tx) {
		tx.SetPort(intent.Port{ID: "port:shop/vm", Node: "n1", Network: "lan", Namespace: "shop", Pod: "web"})
	})
	check("without an Egress", w, map[string]string{})
	w.api.Egresses(kube.Whole([]*v1alpha1.Egress{selecting("bank", "web", 1)}))
	check("with one", w, map[string]string{"web/eth0": "bank"})
	older := selecting("old", "web", 2)
	older.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
	w.api.Egresses(kube.Whole([]*v1alpha1.Egress{selecting("bank", "web", 1), older}))
	check("with an older one for another namespace", w, map[string]string{"web/eth0": "bank"})
	w.api.Namespaces(kube.Whole(namespace("b")))
	check("of another namespace", w, map[string]string{"web/eth0": "old"})
	pods(w, podWith("web", "web"), podWith("db", "web"))
	check("with another label", w, map[string]string{"web/eth0": "old", "db/eth0": "old"})
	pods(w, podWith("web", "web"))
	check("gone from the API", w, map[string]string{"web/eth0": "old", "db/eth0": "old"})
	pods(w, podWith("web", "web"), podWith("new", "web"))
	attach(w, "new")
	check("a new pod", w, map[string]string{"web/eth0": "old", "db/eth0": "old", "new/eth0": "old"})
	if err := w.View.Save(); err != nil {
		t.Fatal(err)
	}
	again := newWorld(t, d)
	attach(again, "web", "new")
	check("after a restart without the API", again, map[string]string{"web/eth0": "old", "new/eth0": "old"})
	w.api.Egresses(kube.Whole[*v1alpha1.Egress](nil))
	check("without an Egress again", w, map[string]string{"db/eth0": "old"})
}

// An annotation and a label that change at once both take effect.
func TestPortsFollowBoth(t *testing.T) {
	c := config.Default()
	c.Policy.Mode = config.EnforcedPolicies
	w := newWorldWith(t, disk{}, c)
	w.View.SetPods(kube.Whole([]*corev1.Pod{podWith("web", "web")}))
	w.Refresh()
	w.api.Namespaces(kube.Whole([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}))
	w.update(func(tx *intent.Tx) { tx.SetPort(w.Port(attached("web"))) })
	e := selecting("bank", "web", 1)
	e.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	w.api.Egresses(kube.Whole([]*v1alpha1.Egress{e}))
	w.api.Namespaces(kube.Whole([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{v1alpha1.AnnotationAuditDenied: "true"},
	}}}))
	p, _ := w.Intent.State().Ports().Get("web/eth0")
	if !p.Audited || p.Egress != "bank" {
		t.Errorf("audited %t, by Egress %q", p.Audited, p.Egress)
	}
}

// An address that goes from a Router to an Egress at once is that of the Egress, and the reverse.
func TestAddressGoesToAnEgress(t *testing.T) {
	w := newWorld(t, disk{})
	routers, networks := lan()
	routers[0].Spec.Gateway = &v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT}
	routers[0].Status.GatewayAddresses = []string{"192.0.2.10"}
	bank := selecting("bank", "web", 1)
	bank.Status.Addresses = []string{"192.0.2.10"}
	block := func(gateway, egress string) []*v1alpha1.AddressBlock {
		b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "office-192-0-2-10-32"}}
		b.Spec.Network, b.Spec.CIDR, b.Spec.Gateway, b.Spec.Egress = "office", "192.0.2.10/32", gateway, egress
		return []*v1alpha1.AddressBlock{b}
	}
	w.api.Networks(kube.Whole(networks))
	w.api.Routers(kube.Whole(routers))
	w.api.Egresses(kube.Whole([]*v1alpha1.Egress{bank}))
	for _, step := range []struct{ gateway, egress, want string }{
		{"lan/*", "", "[router/lan]"}, {"", "bank", "[egress/bank]"}, {"lan/*", "", "[router/lan]"}, {"", "", "[]"},
	} {
		w.api.Blocks(kube.Whole(block(step.gateway, step.egress)))
		got := []string{}
		for e := range w.Intent.State().EgressAddresses().All() {
			got = append(got, e.User())
		}
		if fmt.Sprint(got) != step.want {
			t.Errorf("of %s%s: %v, want %s", step.gateway, step.egress, got, step.want)
		}
	}
	if n := w.Intent.State().EgressPaths().Len(); n != 1 {
		t.Errorf("%d paths", n)
	}
}
