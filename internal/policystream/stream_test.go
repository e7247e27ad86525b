// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/streamtest"
)

func TestMain(m *testing.M) {
	streamtest.RunAgents()
	goleak.VerifyTestMain(m)
}

// ofPolicy names a NetworkPolicy.
func ofPolicy(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: name}
}

// allow is a rule of that policy, for peers of one group.
func allow(name, group string) intent.Rule {
	return intent.Rule{
		ID: "NetworkPolicy/default/" + name + "/ingress/1", Policy: ofPolicy(name), Number: 1, Direction: intent.Ingress,
		Tier: intent.NetworkPolicyTier, Action: intent.Allow, Groups: []string{group},
	}
}

// governed is a pod that the policies isolate.
func governed(uid string, policies ...string) intent.Subject {
	s := intent.Subject{Key: intent.PodSubject(uid)}
	for _, name := range policies {
		s.Rules = append(s.Rules, allow(name, "").ID)
		s.IngressIsolation = append(s.IngressIsolation, ofPolicy(name))
	}
	return s
}

func in(group string, address string) intent.Peer {
	return intent.Peer{Space: intent.DefaultRouterName, Address: netip.MustParseAddr(address), Groups: []string{group}}
}

// view is one pod with one policy.
func view() policy.View {
	return policy.View{
		Rules: []intent.Rule{allow("web", "a")}, Subjects: []intent.Subject{governed("1", "web")},
		Peers: []intent.Peer{in("a", "10.0.0.1"), in("a", "fd00::1")},
	}
}

var compareAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func has(a *streamtest.Agent, v policy.View) func() bool {
	return func() bool { return cmp.Equal(streamtest.ViewOf(v), a.View(), compareAddresses) }
}

func TestChangesArrive(t *testing.T) {
	c := streamtest.Start(t)
	v := view()
	c.Set("a", v)
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	a.Await(t, "its view", has(a, v))

	v.Rules = append(slices.Clone(v.Rules), allow("db", "b"))
	v.Peers = []intent.Peer{in("a", "10.0.0.1"), in("b", "10.0.0.2")}
	v.Subjects = []intent.Subject{governed("1", "db", "web")}
	c.Set("a", v)
	a.Await(t, "another rule", has(a, v))

	v.Rules, v.Subjects, v.Peers = nil, []intent.Subject{governed("1")}, nil
	c.Set("a", v)
	a.Await(t, "no rule", has(a, v))
	if s := a.Status(); !s.Connected || !s.Complete || s.Rules != 0 || s.Subjects != 1 || s.Peers != 0 || s.LastError != "" {
		t.Errorf("status %+v", s)
	}
}

// No agent applies a part of a change.
func TestLargeChangesAreWhole(t *testing.T) {
	c := streamtest.Start(t)
	const peers = 60_000
	v := view()
	for i := range peers {
		v.Peers = append(v.Peers, in("a", netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}).String()))
	}
	c.Set("a", v)
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	a.Await(t, "all peers", func() bool { return a.Status().Peers == len(v.Peers) })
	if changes := a.Changes(); len(changes) != 1 || len(changes[0].Peers) != len(v.Peers) {
		t.Errorf("%d changes, the first with %d peers", len(changes), len(changes[0].Peers))
	}
}

// After a reconnect only what has changed is sent, by another replica, too.
func TestOnlyWhatHasChangedIsSentAgain(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, second := start(t, authority), start(t, authority)
	v := view()
	for i := range 500 {
		v.Peers = append(v.Peers, in("a", fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
	}
	for _, c := range []*streamtest.Controller{first, second} {
		c.Set("a", v)
	}
	a, _ := streamtest.StartAgent(t, first.ClientOptions("a", second))
	a.Await(t, "its view", has(a, v))
	received := a.Status().Received
	if want := uint64(len(v.Rules) + len(v.Subjects) + len(v.Peers)); received != want {
		t.Fatalf("%d items were sent of %d", received, want)
	}
	alive := first
	if dies := a.Status().Controller; dies == first.Address {
		alive = second
	}
	// While no agent is connected: a peer is new, one is gone, one is in another group, too.
	v.Peers = append(slices.Clone(v.Peers[2:]), in("a", "10.9.9.9"))
	v.Peers[0].Groups = []string{"a", "b"}
	alive.Set("a", v)
	dead := first
	if alive == first {
		dead = second
	}
	if err := dead.Stop(); err != nil {
		t.Fatal(err)
	}
	a.Await(t, "what the other controller knows", has(a, v))
	s := a.Status()
	if s.Controller != alive.Address || s.Streams != 2 {
		t.Errorf("status %+v", s)
	}
	if s.Received-received != 2 {
		t.Errorf("%d items were sent again, 2 are new", s.Received-received)
	}
	last := a.Changes()[len(a.Changes())-1]
	if len(last.Peers) != 2 || len(last.RemovedPeers) != 2 || len(last.Rules)+len(last.Subjects) != 0 {
		t.Errorf("the change was %+v", last)
	}
}

func start(t *testing.T, a *streamtest.Authority) *streamtest.Controller {
	t.Helper()
	c, err := streamtest.NewFixed(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// What is on disk is enforced without any controller, and is not sent again.
func TestRestartWithoutController(t *testing.T) {
	c := streamtest.Start(t)
	v := view()
	c.Set("a", v)
	o := c.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	a, stop := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, v))
	stop()

	alone := o
	alone.Controllers = client.Fixed(nil)
	alone.Log = slog.New(slog.DiscardHandler)
	b, stop := streamtest.StartAgent(t, alone)
	if !has(b, v)() {
		t.Errorf("what is remembered is %v", b.View())
	}
	if s := b.Status(); s.Complete || s.Connected || s.Rules != 1 || s.Subjects != 1 || s.Peers != 2 {
		t.Errorf("status %+v", s)
	}
	stop()

	v.Peers = v.Peers[1:]
	c.Set("a", v)
	d, _ := streamtest.StartAgent(t, o)
	d.Await(t, "what the controller knows", has(d, v))
	if s := d.Status(); s.Received != 0 || !s.Complete {
		t.Errorf("nothing is new, and %d items were sent: %+v", s.Received, s)
	}
}

func with(o client.Options, change func(*client.Options)) client.Options {
	change(&o)
	return o
}

// An Engine's changes reach only the nodes that they are about.
func TestEngine(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := streamtest.NewController(authority)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	b, _ := streamtest.StartAgent(t, c.ClientOptions("b"))
	for _, x := range []*streamtest.Agent{a, b} {
		x.Await(t, "a stream", func() bool { return x.Status().Complete })
	}
	c.Update(func(e *policy.Engine) {
		e.SetNamespace(policy.Namespace{Name: "default"})
		e.SetEndpoint(policy.Endpoint{Key: intent.PodSubject("1"), Namespace: "default", Name: "web", Node: "a"})
	})
	a.Await(t, "its pod", func() bool { return a.Status().Subjects == 1 })
	c.Update(func(e *policy.Engine) {
		e.SetEndpoint(policy.Endpoint{Key: intent.PodSubject("1"), Namespace: "default", Name: "web", Node: "b"})
	})
	b.Await(t, "its pod", func() bool { return b.Status().Subjects == 1 })
	a.Await(t, "its pod gone", func() bool { return a.Status().Subjects == 0 })
}
