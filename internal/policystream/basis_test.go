// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/streamtest"
)

// at is a Basis with NetworkPolicies of a resource version, and pods that are no newer.
func at(version uint64) policy.Basis {
	return policy.Basis{
		"NetworkPolicy.networking.k8s.io": {Changed: version, Seen: version}, "Pod": {Changed: 5, Seen: version},
	}
}

// denied is view after a policy has taken back what it allowed.
func denied() policy.View {
	return policy.View{Subjects: []intent.Subject{{Key: intent.PodSubject("1"), IngressIsolation: []intent.PolicyRef{ofPolicy("web")}}}}
}

// newest is what the API server has of all kinds.
func newest(version uint64) map[string]uint64 {
	return map[string]uint64{"NetworkPolicy.networking.k8s.io": version, "Pod": version}
}

// replicas are two controllers that hand out view of resource version 10. The second one's watches
// stand still from now on.
func replicas(t *testing.T) (first, frozen *streamtest.Controller) {
	t.Helper()
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, frozen = start(t, authority), start(t, authority)
	for _, c := range []*streamtest.Controller{first, frozen} {
		c.Hub.SetLagTimeout(100 * time.Millisecond)
		c.SetAt("a", view(), at(10))
		c.Versions.SetNewest(newest(20))
	}
	return first, frozen
}

// A denial is not undone by a replica with a stalled watch, neither when the agent moves to it nor
// after a restart of the agent. When that replica has caught up, it is as good as any.
func TestFrozenReplicaUndoesNothing(t *testing.T) {
	first, frozen := replicas(t)
	o := first.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	a, stop := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, view()))
	first.SetAt("a", denied(), at(20))
	a.Await(t, "the denial", has(a, denied()))
	stop()

	refused := func(a *streamtest.Agent, log *logged) {
		t.Helper()
		log.await(t, "no controller serves policies")
		if s := a.Status(); s.Connected || !strings.Contains(s.LastError, "behind") ||
			!strings.Contains(s.LastError, "NetworkPolicy.networking.k8s.io: changes are seen up to resource version 10, and 20") {
			t.Errorf("status %+v", s)
		}
		if !has(a, denied())() {
			t.Errorf("the view is %v", a.View())
		}
	}
	moved, log := o, newLog()
	moved.Controllers, moved.Log = frozen.ClientOptions("a").Controllers, slog.New(log)
	b, stop := streamtest.StartAgent(t, moved)
	refused(b, log)
	frozen.SetAt("a", denied(), at(20))
	b.Await(t, "a stream", func() bool { return b.Status().Connected })
	if !has(b, denied())() {
		t.Errorf("the view is %v", b.View())
	}
	stop()
}

// The agent that moves while it runs keeps what it knows as well.
func TestMoveToFrozenReplica(t *testing.T) {
	first, frozen := replicas(t)
	log := newLog()
	o := first.ClientOptions("a", frozen)
	o.Log = slog.New(log)
	first.SetAt("a", denied(), at(20))
	a, _ := streamtest.StartAgent(t, o)
	if a.Await(t, "a stream", func() bool { return a.Status().Connected }); a.Status().Controller == frozen.Address {
		frozen.Hub.SetBehind("its watch stands still")
	}
	a.Await(t, "the denial", has(a, denied()))
	log.forget() // that it came from the other replica
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	log.await(t, "no controller serves policies")
	if s := a.Status(); s.Connected || !has(a, denied())() {
		t.Errorf("status %+v, view %v", s, a.View())
	}
}

// What is mostly the case: a replica lags for a moment.
func TestReplicaThatCatchesUp(t *testing.T) {
	first, second := replicas(t)
	second.Hub.SetLagTimeout(time.Hour)
	first.SetAt("a", denied(), at(20))
	o := first.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	a, stop := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, denied()))
	stop()
	o.Controllers = second.ClientOptions("a").Controllers
	b, _ := streamtest.StartAgent(t, o)
	time.AfterFunc(200*time.Millisecond, func() { second.SetAt("a", denied(), at(20)) })
	b.Await(t, "a stream", func() bool { return b.Status().Connected })
	if s := b.Status(); s.Streams != 1 || s.LastError != "" || !has(b, denied())() {
		t.Errorf("status %+v, view %v", s, b.View())
	}
}

// An API with data restored from a backup has resource versions that go back, and its data then
// counts. While the API server does not answer, that is not known.
func TestRestoredAPI(t *testing.T) {
	first, second := replicas(t)
	first.SetAt("a", denied(), at(20))
	o := first.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	a, stop := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, denied()))
	stop()
	second.Versions.SetNewest(nil)
	log := newLog()
	o.Controllers, o.Log = second.ClientOptions("a").Controllers, slog.New(log)
	b, stop := streamtest.StartAgent(t, o)
	log.await(t, "no controller serves policies")
	if !has(b, denied())() {
		t.Errorf("the view is %v", b.View())
	}
	second.Versions.SetNewest(newest(12))
	b.Await(t, "the restored view", has(b, view()))
	stop()
	// From then on the versions of now count.
	second.SetAt("a", denied(), at(13))
	d, _ := streamtest.StartAgent(t, o)
	d.Await(t, "the next change", has(d, denied()))
}

// Controllers of releases that do not say what they know are believed.
func TestControllerWithoutBasis(t *testing.T) {
	first, older := replicas(t)
	first.SetAt("a", denied(), at(20))
	o := first.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	a, stop := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, denied()))
	stop()
	older.SetAt("a", view(), nil)
	o.Controllers = older.ClientOptions("a").Controllers
	b, stop := streamtest.StartAgent(t, o)
	b.Await(t, "its view", has(b, view()))
	stop()
}

// The agents of a replica that is behind move to another one.
func TestReplicaThatIsBehind(t *testing.T) {
	first, second := replicas(t)
	a, _ := streamtest.StartAgent(t, first.ClientOptions("a", second))
	a.Await(t, "a stream", func() bool { return a.Status().Connected })
	from, to := first, second
	if a.Status().Controller == second.Address {
		from, to = second, first
	}
	from.Hub.SetBehind("its watch stands still")
	a.Await(t, "another controller", func() bool { s := a.Status(); return s.Connected && s.Controller == to.Address })
	if from.Hub.Behind() == "" || to.Hub.Behind() != "" {
		t.Error("the wrong replica is behind")
	}
}
