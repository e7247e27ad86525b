// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
)

// An object holds the port that it was told of, by this controller or by one before; the next
// object of its name does not.
func TestHeldPorts(t *testing.T) {
	object := func(uid, port string) *v1alpha1.Port {
		o := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: types.UID(uid)}}
		if port != "" {
			o.Status.Neutron = &v1alpha1.NeutronPort{ID: port}
		}
		return o
	}
	of := func(uid string) resource.Resource {
		return resource.Resource{Ref: compile.PortRef("shop/web-0"), Object: compile.PortObject("shop/web-0"), Holder: uid}
	}
	port := func(id string) resource.Actual { return resource.Actual{ID: id} }
	type step = func(*identities)
	note := func(uid, port string) step { return func(i *identities) { i.note(object(uid, port)) } }
	found := func(uid, id string) step { return func(i *identities) { i.found(of(uid), port(id)) } }
	forget := func(uid string) step { return func(i *identities) { i.forget(object(uid, "")) } }
	for _, tc := range []struct {
		name  string
		steps []step
		held  bool // port p1 by the object u2
	}{
		{"a new object", []step{note("u2", "")}, false},
		{"told by this controller", []step{note("u2", ""), found("u2", "p1")}, true},
		{"told by the one before", []step{note("u2", "p1")}, true},
		{"told of another port", []step{note("u2", "p0"), found("u2", "p0")}, false},
		{"told of another one since", []step{note("u2", "p0"), found("u2", "p1")}, true},
		{"an object of that name before it was told", []step{note("u1", "p1"), found("u1", "p1"), forget("u1"), note("u2", "")}, false},
		{"and it is not known yet that that one is gone", []step{note("u1", "p1"), found("u1", "p1")}, false},
		{"and that is known late", []step{note("u1", "p1"), found("u2", "p1"), forget("u1")}, true},
		{"gone", []step{note("u2", "p1"), found("u2", "p1"), forget("u2")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := newIdentities(Options{}, func() {})
			t.Cleanup(i.queue.ShutDown)
			for _, s := range tc.steps {
				s(i)
			}
			if held := i.holds(of("u2"), port("p1")); held != tc.held {
				t.Errorf("held: %v, want %v", held, tc.held)
			}
		})
	}
}

// Nothing is kept of Ports that are gone, also if a comparison of before finds their ports. A port
// that is found before its Port is known is written when that is.
func TestPortsThatAreGone(t *testing.T) {
	port := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u1"}, Status: v1alpha1.PortStatus{MAC: "fa:16:3e:00:00:07"},
	}
	i := newIdentities(Options{Access: reconciletest.Access(port)}, func() {})
	t.Cleanup(i.queue.ShutDown)
	find := func() {
		i.found(resource.Resource{Ref: compile.PortRef("shop/web-0"), Object: compile.PortObject("shop/web-0"), Holder: "u1"},
			resource.Actual{ID: "p1", Attributes: resource.Attributes{"mac_address": port.Status.MAC}})
	}
	for range 3 {
		find()
		i.allFound(nil)
	}
	i.note(port)
	if err := i.write(t.Context(), targetOf(port)); err != nil {
		t.Fatal(err)
	}
	now := &v1alpha1.Port{}
	if err := i.Access.Get(t.Context(), client.ObjectKeyFromObject(port), now); err != nil {
		t.Fatal(err)
	}
	if now.Status.Neutron == nil || now.Status.Neutron.ID != "p1" {
		t.Errorf("the Port says that its port is %+v", now.Status.Neutron)
	}
	i.allFound(nil)
	if len(i.ports) != 1 {
		t.Errorf("of a Port with a port that is to be changed is known %v", i.ports)
	}
	i.forget(port)
	find()
	i.allFound(nil)
	i.allFound(nil)
	if len(i.ports) > 0 {
		t.Errorf("of a Port that is gone is known %v", i.ports)
	}
}
