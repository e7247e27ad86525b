// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"coelan.io/coelan/api/v1alpha1"
)

// What a status says after what went before.
func TestOutcome(t *testing.T) {
	ok := outcome{state: settled, addresses: []string{"10.0.0.5"}, mac: "0a:ce:0a:00:00:05"}
	wait := outcome{state: waiting, reason: reasonWaiting, message: "node worker1 has not said"}
	bad := refused(v1alpha1.ReasonMACTaken, "MAC is taken")
	complain := func(s *v1alpha1.PortStatus) { s.LastError = "BoundElsewhere: it is bound on node b" }
	silence := func(s *v1alpha1.PortStatus) { s.LastError = "" }
	bind := func(s *v1alpha1.PortStatus) { s.Node = "worker1" }
	for _, c := range []struct {
		name  string
		steps []any // outcome or what an agent does
		want  string
	}{
		{"new", []any{ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 True NotBound"},
		{"waiting has nothing yet", []any{wait}, "Pending []  False WaitingForNode node worker1 has not said"},
		{"after waiting", []any{wait, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 True NotBound"},
		{"waiting keeps what it has", []any{ok, wait}, "Pending [10.0.0.5] 0a:ce:0a:00:00:05 False WaitingForNode node worker1 has not said"},
		{"lost loses it", []any{ok, bad}, "Failed []  False MACTaken MAC is taken"},
		{"from bad to good", []any{bad, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 True NotBound"},
		{"bound", []any{ok, bind, ok}, "Bound [10.0.0.5] 0a:ce:0a:00:00:05 True Bound"},
		{"a node complains", []any{ok, complain, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 False BoundElsewhere BoundElsewhere: it is bound on node b"},
		{"and again", []any{ok, complain, ok, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 False BoundElsewhere BoundElsewhere: it is bound on node b"},
		{"and no more", []any{ok, complain, ok, silence, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 True NotBound"},
		{"another node complains", []any{ok, bind, complain, ok}, "Bound [10.0.0.5] 0a:ce:0a:00:00:05 True Bound BoundElsewhere: it is bound on node b"},
		{"strange complaint", []any{ok, func(s *v1alpha1.PortStatus) { s.LastError = "no idea: really" }, ok}, "Ready [10.0.0.5] 0a:ce:0a:00:00:05 True NotBound no idea: really"},
	} {
		p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
		for _, s := range c.steps {
			switch s := s.(type) {
			case outcome:
				s.apply(p)
			case func(*v1alpha1.PortStatus):
				s(&p.Status)
			}
		}
		s := p.Status
		got := fmt.Sprintf("%s %v %s %s %s", s.Phase, s.Addresses, s.MAC, s.Conditions[0].Status, s.Conditions[0].Reason)
		if s.LastError != "" {
			got += " " + s.LastError
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A Network that could not join a Router any more does not keep it from going: both would
// wait for each other.
func TestRouterUsers(t *testing.T) {
	network := func(name, router string, id int32) *v1alpha1.Network {
		return &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Router: router},
			Status:     v1alpha1.NetworkStatus{ID: id},
		}
	}
	got := routerUsers(&v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "r"}}, []*v1alpha1.Network{
		network("joined", "r", 5), network("too-late", "r", 0), network("elsewhere", "s", 6), network("r", "", 7),
	})
	if diff := cmp.Diff([]string{"network joined", "network r"}, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// A lease that is written makes no work; everything else of a Port does.
func TestPortChanged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.Port)
		want   bool
	}{
		{"nothing", func(*v1alpha1.Port) {}, false},
		{"the lease", func(p *v1alpha1.Port) { p.Status.Lease = &v1alpha1.PortLease{HostName: "db"} }, false},
		{"the lease, and the node", func(p *v1alpha1.Port) { p.Status.Lease, p.Status.Node = nil, "n1" }, true},
		{"the last error", func(p *v1alpha1.Port) { p.Status.LastError = "AddressTaken: it is" }, true},
		{"the spec", func(p *v1alpha1.Port) { p.Generation++ }, true},
		{"labels", func(p *v1alpha1.Port) { p.Labels = map[string]string{"a": "b"} }, true},
		{"it is being deleted", func(p *v1alpha1.Port) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		{"made anew", func(p *v1alpha1.Port) { p.UID = "another" }, true},
	} {
		before := &v1alpha1.Port{Status: v1alpha1.PortStatus{Lease: &v1alpha1.PortLease{HostName: "web"}}}
		now := before.DeepCopy()
		now.ResourceVersion = "2"
		tc.change(now)
		if got := portChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
