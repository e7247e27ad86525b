// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]translate.Range{
		"70000-16777215": translate.DefaultVNIs, "2-2": {First: 2, Last: 2}, "2-16777215": {First: 2, Last: 16777215},
	} {
		if got, err := ParseRange(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "5", "5-", "-5", "1-5", "6-5", "5-16777216", "a-b", "5-6-7", "5 - 6"} {
		if got, err := ParseRange(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestMapping(t *testing.T) {
	var m Mapping
	for _, text := range []string{"flat", "namespace"} {
		if err := m.UnmarshalText([]byte(text)); err != nil || string(m) != text {
			t.Errorf("%q is %q, %v", text, m, err)
		}
	}
	for _, text := range []string{"", "Flat", "node"} {
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestEnumerate(t *testing.T) {
	var users []string
	for i := range 9 {
		users = append(users, fmt.Sprintf("pod a/%d", 8-i))
	}
	for _, c := range []struct {
		users []string
		want  string
	}{
		{users[:1], "pod a/8"},
		{users[:5], "pod a/4, pod a/5, pod a/6, pod a/7, pod a/8"},
		{append(users[:2:2], users...), "pod a/0, pod a/1, pod a/2, pod a/3, pod a/4 and 4 more"},
	} {
		if got := enumerate(c.users); got != c.want {
			t.Errorf("enumerate = %q, want %q", got, c.want)
		}
	}
}

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

// What was written is known before a watch tells of it, and forgotten when it does, or when the object is gone.
func TestMemory(t *testing.T) {
	network := func(name, version string, id int32) *v1alpha1.Network {
		return &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version},
			Status:     v1alpha1.NetworkStatus{ID: id},
		}
	}
	there := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(network("created", "", 9)).Build()
	a := &access{Client: there, live: there}
	var m memory[*v1alpha1.Network]
	m.keep(network("written", "10", 7))
	m.keep(network("seen", "10", 8))
	m.keep(network("created", "10", 9))
	m.keep(network("deleted", "10", 10))
	ids := func(list []*v1alpha1.Network) map[string]int32 {
		got, err := m.merge(t.Context(), a, list)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]int32{}
		for _, n := range got {
			ids[n.Name] = n.Status.ID
		}
		return ids
	}
	got := ids([]*v1alpha1.Network{network("written", "9", 0), network("seen", "11", 5), network("other", "3", 4)})
	want := map[string]int32{"written": 7, "seen": 5, "other": 4, "created": 9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with what is known (-want +got):\n%s", diff)
	}
	got = ids([]*v1alpha1.Network{network("written", "10", 7), network("seen", "9", 1), network("created", "999", 3)})
	want = map[string]int32{"written": 7, "seen": 1, "created": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

// A failure of one is none of the others', and what somebody else was faster at is no failure.
func TestEach(t *testing.T) {
	done := make([]bool, 100)
	broken := fmt.Errorf("broken")
	list := make([]int, len(done))
	for i := range list {
		list[i] = i
	}
	err := each(t.Context(), list, func(_ context.Context, i int) error {
		done[i] = true
		if i == 50 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	for i, d := range done {
		if !d {
			t.Errorf("%d was left out", i)
		}
	}
}

// Without an API server the controller waits, and ends when it is told to.
func TestRunWithoutAPI(t *testing.T) {
	asked := make(chan bool, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer api.Close()
	o := DefaultOptions()
	o.REST, o.Log, o.MetricsBindAddress, o.LeaderElect = &rest.Config{Host: api.URL}, slog.New(slog.DiscardHandler), "0", false
	o.PolicyBindAddress, o.Socket = "0", ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	for range 2 {
		select {
		case <-asked:
		case err := <-ended:
			t.Fatalf("it ends: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("it does not try again")
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// A Network that could not join a Router any more does not keep it from going: both would wait for each other.
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
