// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
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

// Nobody sees a part of a change.
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
	// While nobody hears of it: a peer is new, one is gone, one is in another group, too.
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

// The view follows from the token and from nothing else, and an unknown token has none.
func TestTokensOfOthers(t *testing.T) {
	c := streamtest.Start(t)
	other := policy.View{
		Rules: []intent.Rule{allow("secret", "s")}, Subjects: []intent.Subject{governed("2", "secret")}, Peers: []intent.Peer{in("s", "10.2.2.2")},
	}
	c.Set("a", view())
	c.Set("b", other)
	thief := c.ClientOptions("b")
	thief.Token = streamtest.TokenOf("a")
	b, _ := streamtest.StartAgent(t, thief)
	b.Await(t, "the view of the token's node", has(b, view()))
	c.Set("b", policy.View{Subjects: []intent.Subject{governed("3")}})
	c.Set("a", policy.View{Subjects: []intent.Subject{governed("4")}})
	b.Await(t, "a change of the token's node", has(b, policy.View{Subjects: []intent.Subject{governed("4")}}))
	for _, change := range b.Changes() {
		for _, s := range change.Subjects {
			if s.Key == intent.PodSubject("2") || s.Key == intent.PodSubject("3") {
				t.Errorf("the token of node a has read node b's %s", s.Key)
			}
		}
	}

	for name, token := range map[string]client.Token{
		"unknown":      func() (string, error) { return "garbage", nil },
		"none":         func() (string, error) { return "", nil },
		"a controller": streamtest.TokenOf("controller"),
	} {
		code := call(t, c, token)
		want := codes.Unauthenticated
		if name == "a controller" {
			want = codes.PermissionDenied
		}
		if code != want {
			t.Errorf("%s: %s, want %s", name, code, want)
		}
	}
}

// call is what comes of one stream with that token.
func call(t *testing.T, c *streamtest.Controller, token client.Token) codes.Code {
	t.Helper()
	o := c.ClientOptions("a")
	addresses, roots := o.Controllers.Current()
	conn, err := client.Dial(addresses[0], wire.ServerName(streamtest.Namespace), roots, token)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := wire.NewPoliciesClient(conn).Sync(ctx)
	if err != nil {
		return status.Code(err)
	}
	_ = stream.Send(&wire.AgentMessage{Kind: &wire.AgentMessage_Inventory{Inventory: &wire.Inventory{Last: true}}})
	_, err = stream.Recv()
	return status.Code(err)
}

// Whoever has a token can have a controller hold a few streams, and the newest are served.
func TestManyStreamsOfANode(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	c.Set("b", view())
	b, _ := streamtest.StartAgent(t, c.ClientOptions("b"))
	o := c.ClientOptions("a")
	addresses, roots := o.Controllers.Current()
	const thieves, served = 10, 4
	ended := make(chan error, thieves)
	for range thieves {
		conn, err := client.Dial(addresses[0], wire.ServerName(streamtest.Namespace), roots, o.Token)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// They never say all that they have.
		stream, err := wire.NewPoliciesClient(conn).Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&wire.AgentMessage{Kind: &wire.AgentMessage_Inventory{Inventory: &wire.Inventory{}}}); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	for range thieves - served {
		select {
		case err := <-ended:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a stream ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("all streams are served")
		}
	}
	a, _ := streamtest.StartAgent(t, o)
	a.Await(t, "its view", has(a, view()))
	if s := b.Status(); s.Streams > 1 {
		t.Errorf("another node's stream has ended: %+v", s)
	}
}

// An agent that takes nothing holds up nobody, and its stream ends when it is old.
func TestStuckAgent(t *testing.T) {
	c := streamtest.Start(t)
	c.SetStreamAge(2 * time.Second)
	large := view()
	for i := range 30_000 { // more than a connection holds
		large.Peers = append(large.Peers, in("a", netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}).String()))
	}
	c.Set("a", large)
	o := c.ClientOptions("a")
	addresses, roots := o.Controllers.Current()
	conn, err := client.Dial(addresses[0], wire.ServerName(streamtest.Namespace), roots, o.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := wire.NewPoliciesClient(conn).Sync(t.Context())
	if err == nil {
		err = stream.Send(&wire.AgentMessage{Kind: &wire.AgentMessage_Inventory{Inventory: &wire.Inventory{Last: true}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	agents := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); c.Hub.Agents() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d agents, want %d", c.Hub.Agents(), want)
			}
		}
	}
	agents(1)
	b, stop := streamtest.StartAgent(t, c.ClientOptions("b"))
	for range 10 {
		c.Set("a", view())
		c.Set("a", large)
	}
	c.Set("b", view())
	b.Await(t, "its view", has(b, view()))
	stop()
	agents(0)
}

// A controller that somebody else's authority vouches for is not listened to.
func TestOtherAuthority(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	other, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]client.Options{
		"another authority": with(c.ClientOptions("a"), func(o *client.Options) { o.Controllers = client.Fixed(other.Roots, c.Address) }),
		"no authority":      with(c.ClientOptions("a"), func(o *client.Options) { o.Controllers = client.Fixed(nil, c.Address) }),
		"no authorities":    with(c.ClientOptions("a"), func(o *client.Options) { o.Controllers = client.Fixed(x509.NewCertPool(), c.Address) }),
		"another namespace": with(c.ClientOptions("a"), func(o *client.Options) { o.Namespace = "elsewhere" }),
	} {
		t.Run(name, func(t *testing.T) {
			log := newLog()
			o.Log = slog.New(log)
			a, _ := streamtest.StartAgent(t, o)
			log.await(t, "no controller tells of policies")
			if s := a.Status(); s.Connected || s.Received != 0 || s.LastError == "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func with(o client.Options, change func(*client.Options)) client.Options {
	change(&o)
	return o
}

// A controller that does not know everything yet serves nobody.
func TestNotReady(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	hub := server.NewHub(policy.NewEngine())
	c, err := streamtest.NewOf(authority, hub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	log := newLog()
	o := c.ClientOptions("a")
	o.Log = slog.New(log)
	a, _ := streamtest.StartAgent(t, o)
	log.await(t, "no controller tells of policies")
	if s := a.Status(); s.Complete || !strings.Contains(s.LastError, "does not know all policies yet") {
		t.Errorf("status %+v", s)
	}
	hub.Ready()
	a.Await(t, "a stream", func() bool { return a.Status().Complete })
}

func TestRealised(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	c.Set("b", view())
	check := func(want int) {
		t.Helper()
		timeout := time.After(10 * time.Second)
		for {
			got := c.Hub.Realised(ofPolicy("web"))
			if got == (server.Realised{Wanted: 2, Realised: want}) {
				return
			}
			select {
			case <-c.Hub.RealisedChanged():
			case <-timeout:
				t.Fatalf("%+v, want %d of 2", got, want)
			}
		}
	}
	check(0)
	// One agent does nothing of what it is told.
	lazy := client.New(with(c.ClientOptions("b"), func(o *client.Options) {
		o.OnChange = func(client.Change) {}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { lazy.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	_, stop := streamtest.StartAgent(t, c.ClientOptions("a"))
	check(1)
	v := view()
	v.Rules[0].Groups = []string{"a", "b"}
	c.Set("a", v)
	check(1)
	for lazy.Status().Version == 0 {
		time.Sleep(time.Millisecond)
	}
	lazy.Realised(1)
	check(2)
	stop()
	check(1)
}

// Two controllers add up what their agents say.
func TestRealisedElsewhere(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, second := start(t, authority), start(t, authority)
	for _, c := range []*streamtest.Controller{first, second} {
		c.Set("a", view())
		c.Set("b", view())
		c.Follow(t, first, second)
	}
	streamtest.StartAgent(t, first.ClientOptions("a"))
	_, stop := streamtest.StartAgent(t, second.ClientOptions("b"))
	check := func(want int) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for _, c := range []*streamtest.Controller{first, second} {
			for c.Hub.Realised(ofPolicy("web")) != (server.Realised{Wanted: 2, Realised: want}) {
				select {
				case <-c.Hub.RealisedChanged():
				case <-timeout:
					t.Fatalf("controller %s: %+v, want %d of 2", c.Address, c.Hub.Realised(ofPolicy("web")), want)
				}
			}
		}
	}
	check(2)
	stop()
	check(1)
}

// A controller that has an address of each family is one.
func TestRealisedAtTwoAddresses(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, second := start(t, authority), start(t, authority)
	for _, c := range []*streamtest.Controller{first, second} {
		c.Set("a", view())
		c.Set("b", view())
	}
	again := *second
	again.Address = strings.Replace(second.Address, "127.0.0.1", "[::ffff:127.0.0.1]", 1)
	first.Follow(t, second, &again)
	streamtest.StartAgent(t, second.ClientOptions("b"))
	// The news of the second address may come with those of the first, or after it.
	timeout, late := time.After(20*time.Second), (<-chan time.Time)(nil)
	for {
		switch r := first.Hub.Realised(ofPolicy("web")); {
		case r.Realised > 1:
			t.Fatalf("%+v: one agent counts twice", r)
		case r.Realised == 1 && late == nil:
			late = time.After(300 * time.Millisecond)
		}
		select {
		case <-first.Hub.RealisedChanged():
		case <-late:
			return
		case <-timeout:
			t.Fatal("the other controller is not heard")
		}
	}
}

// All controllers hear of a pod that one's agent has attached, and on which node.
func TestAttached(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, second := start(t, authority), start(t, authority)
	heard := map[*streamtest.Controller]chan server.NodeAttachment{}
	for _, c := range []*streamtest.Controller{first, second} {
		heard[c] = make(chan server.NodeAttachment, 10)
		c.Hub.OnAttached = func(a server.NodeAttachment) { heard[c] <- a }
		c.Set("a", view())
		c.Set("b", view())
		c.Follow(t, first, second)
	}
	agent := streamtest.NewAgent(first.ClientOptions("a"))
	want := server.NodeAttachment{Node: "a", Attachment: policy.Attachment{
		Namespace: "default", Name: "web", Subject: intent.PodSubject("2"), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
	}}
	agent.Attached(want.Attachment) // before there is a stream
	expect := func(c *streamtest.Controller) {
		t.Helper()
		select {
		case got := <-heard[c]:
			if !cmp.Equal(got, want, compareAddresses) {
				t.Errorf("%+v, want %+v", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("controller %s has not heard of the pod", c.Address)
		}
	}
	// Second has to follow first before first hears of anything that it is to pass on.
	streamtest.StartAgent(t, first.ClientOptions("b"))
	for second.Hub.Realised(ofPolicy("web")).Realised == 0 {
		<-second.Hub.RealisedChanged()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { agent.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	expect(first)
	expect(second)
	want.Name = "web2"
	agent.Attached(want.Attachment)
	expect(first)
	expect(second)
	// What makes no sense ends the stream, and the next one is as good as the first.
	agent.Attached(policy.Attachment{Namespace: "default"})
	agent.Await(t, "another stream", func() bool { return agent.Status().Streams == 2 })
	agent.Attached(want.Attachment)
	expect(first)
	expect(second)
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

// A node without pods has an empty view, which is in effect like others.
func TestEmptyView(t *testing.T) {
	c := streamtest.Start(t)
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	a.Await(t, "a stream", func() bool { return a.Status().Complete })
	c.Set("a", view())
	a.Await(t, "its first pod", has(a, view()))
	timeout := time.After(10 * time.Second)
	for c.Hub.Realised(ofPolicy("web")).Realised != 1 {
		select {
		case <-c.Hub.RealisedChanged():
		case <-timeout:
			t.Fatal("its policy is not in effect")
		}
	}
	if s := a.Status(); s.Streams != 1 {
		t.Errorf("%d streams: %s", s.Streams, s.LastError)
	}
}

// A smaller cluster than that of the bench.
func TestLoad(t *testing.T) {
	l := streamtest.Load{Nodes: 50, PodsPerNode: 10, Namespaces: 50}
	if os.Getenv("COELAN_LOAD") != "" {
		l = streamtest.DefaultLoad
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Connect.Agents != l.Nodes || r.Connect.Items < l.Nodes*l.PodsPerNode {
		t.Errorf("connect: %+v", r.Connect)
	}
	if r.Change.Agents != l.Nodes || r.Change.Items != l.Nodes {
		t.Errorf("one rule has changed: %+v", r.Change)
	}
	if r.Pod.Agents == 0 || r.Pod.Agents > 10 {
		t.Errorf("a pod has changed that 10 nodes are to know: %+v", r.Pod)
	}
	if r.Reconnect.Agents != l.Nodes || r.Reconnect.Items != 0 {
		t.Errorf("nothing is new: %+v", r.Reconnect)
	}
}

// Streams end when they are old, and nothing is late or lost by that.
func TestOldStreams(t *testing.T) {
	c := streamtest.Start(t)
	c.SetStreamAge(1200 * time.Millisecond)
	v := view()
	c.Set("a", v)
	log := newLog()
	o := c.ClientOptions("a")
	o.Log = slog.New(log)
	a, _ := streamtest.StartAgent(t, o)
	var worst time.Duration
	for i := 0; a.Status().Streams < 3; i++ {
		v.Peers = []intent.Peer{in("a", fmt.Sprintf("10.0.%d.%d", i/250, i%250))}
		start := time.Now()
		c.Set("a", v)
		a.Await(t, "a change", has(a, v))
		worst = max(worst, time.Since(start))
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("the latest change came after %s", worst)
	if worst > 900*time.Millisecond {
		t.Errorf("a change came after %s", worst)
	}
	for len(log.messages) > 0 {
		if m := <-log.messages; strings.HasPrefix(m, "no controller") {
			t.Error("an old stream is reported as trouble")
		}
	}
}
