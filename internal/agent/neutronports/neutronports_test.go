// SPDX-License-Identifier: Apache-2.0

package neutronports

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api tells of what is sent to it.
type api struct {
	ports chan kube.Delta[*v1alpha1.Port]
	nodes chan kube.Delta[*corev1.Node]
}

func (a api) WatchNodePorts(ctx context.Context, update func(kube.Delta[*v1alpha1.Port])) error {
	return tell(ctx, a.ports, update)
}

func (a api) WatchOwnNode(ctx context.Context, update func(kube.Delta[*corev1.Node])) error {
	return tell(ctx, a.nodes, update)
}

func tell[T any](ctx context.Context, from chan T, update func(T)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-from:
			update(d)
		}
	}
}

// Each change wakes what waits, and a port is known as long as it has the MAC of the attachment.
func TestFollows(t *testing.T) {
	a := api{make(chan kube.Delta[*v1alpha1.Port]), make(chan kube.Delta[*corev1.Node])}
	p := New(a)
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := trigger.New(), make(chan error, 1)
	go func() { ended <- p.Run(ctx, woken.Fire) }()
	change := func(send func()) {
		t.Helper()
		changed := p.Changed()
		send()
		for _, c := range []<-chan struct{}{changed, woken} {
			select {
			case <-c:
			case <-time.After(10 * time.Second):
				t.Fatal("nothing is woken")
			}
		}
	}
	mac, err := intent.ParseMAC("0a:ce:0a:f4:01:02")
	if err != nil {
		t.Fatal(err)
	}
	at := attachment.Attachment{Spec: attachment.Spec{PodNamespace: "shop", PortName: "web.eth0", PodUID: "a"}, MAC: mac}
	object := func(neutron *v1alpha1.NeutronPort) *v1alpha1.Port {
		return &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.eth0"}, Spec: v1alpha1.PortSpec{Pod: &v1alpha1.PortPod{UID: "a"}},
			Status: v1alpha1.PortStatus{Neutron: neutron},
		}
	}
	node := func(annotations map[string]string) {
		t.Helper()
		change(func() {
			a.nodes <- kube.Whole([]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: annotations}}})
		})
	}
	if p.Known() {
		t.Error("the node is known before it has been read")
	}
	node(nil)
	management := func() string {
		id, _ := p.Management("n1")
		return id
	}
	if !p.Known() || p.Trunk() || management() != "" {
		t.Error("a node without annotations is not known, or has a port")
	}
	former := object(&v1alpha1.NeutronPort{ID: "u1", MAC: mac.String()})
	former.Spec.Pod.UID = "before"
	for _, tc := range []struct {
		name  string
		delta kube.Delta[*v1alpha1.Port]
		want  string
	}{
		{"that of a former pod of the name", kube.Whole([]*v1alpha1.Port{former}), ""},
		{"no port yet", kube.Whole([]*v1alpha1.Port{object(nil)}), ""},
		{"a port", kube.Delta[*v1alpha1.Port]{Set: []*v1alpha1.Port{object(&v1alpha1.NeutronPort{ID: "u1", MAC: mac.String()})}}, "u1"},
		{"one that is about to be replaced",
			kube.Delta[*v1alpha1.Port]{Set: []*v1alpha1.Port{object(&v1alpha1.NeutronPort{ID: "u1", MAC: "0a:ce:0a:f4:01:09"})}}, ""},
		{"another", kube.Delta[*v1alpha1.Port]{Set: []*v1alpha1.Port{object(&v1alpha1.NeutronPort{ID: "u2", MAC: mac.String()})}}, "u2"},
		{"the Port is gone", kube.Delta[*v1alpha1.Port]{Gone: []*v1alpha1.Port{object(nil)}}, ""},
	} {
		change(func() { a.ports <- tc.delta })
		if got, vlan := p.Port(at); got != tc.want || vlan != 0 {
			t.Errorf("%s: %q in VLAN %d, want %q", tc.name, got, vlan, tc.want)
		}
	}
	node(map[string]string{v1alpha1.AnnotationNeutronPort: "u9"})
	if got := management(); got != "u9" {
		t.Errorf("the node's port: %q", got)
	}

	// A port that is not on the trunk of the node yet is not known.
	trunk := map[string]string{v1alpha1.AnnotationNeutronPort: "u9", v1alpha1.AnnotationTrunkPort: "u0"}
	node(trunk)
	for _, vlan := range []string{"", "0", "7"} {
		if got := management(); got != "" || !p.Trunk() {
			t.Errorf("the node's port is not on the trunk, and is %q", got)
		}
		trunk[v1alpha1.AnnotationNeutronVLAN] = vlan
		node(trunk)
	}
	change(func() {
		a.ports <- kube.Whole([]*v1alpha1.Port{object(&v1alpha1.NeutronPort{ID: "u1", MAC: mac.String()})})
	})
	if got, _ := p.Port(at); got != "" {
		t.Errorf("the pod's port is not on the trunk, and is %q", got)
	}
	change(func() {
		a.ports <- kube.Whole([]*v1alpha1.Port{object(&v1alpha1.NeutronPort{ID: "u1", MAC: mac.String(), VLAN: 8})})
	})
	if id, vlan := p.Management("n1"); id != "u9" || vlan != 7 {
		t.Errorf("the node's port on the trunk: %q in VLAN %d", id, vlan)
	}
	if id, vlan := p.Port(at); id != "u1" || vlan != 8 {
		t.Errorf("the pod's port on the trunk: %q in VLAN %d", id, vlan)
	}
	delete(trunk, v1alpha1.AnnotationTrunkPort)
	node(trunk)
	if id, vlan := p.Port(at); id != "u1" || vlan != 0 || p.Trunk() {
		t.Errorf("on a node that is no machine, the pod's port is %q in VLAN %d", id, vlan)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An interface of another program is plugged for what Neutron calls a port. On a machine of
// OpenStack there is none: its ports are in VLANs.
func TestGuests(t *testing.T) {
	const id = "11111111-0000-4000-8000-000000000001"
	trunk := map[string]string{v1alpha1.AnnotationTrunkPort: "u0"}
	for _, tc := range []struct {
		what, name  string
		annotations map[string]string // of the node
		want        bool
	}{
		{"a UUID", id, nil, true},
		{"a name", "shop/db", nil, false},
		{"on a machine of OpenStack", id, trunk, false},
	} {
		p := New(nil)
		p.node = parse(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}})
		if named, ok := p.Guest(tc.name); ok != tc.want || ok && named != id {
			t.Errorf("%s: %q, %v", tc.what, named, ok)
		}
	}
}
