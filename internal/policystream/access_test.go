// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

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

// Each token can have a controller hold a few streams, and the newest are served.
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

// An agent that reads nothing does not delay others, and its stream ends when it is old.
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

// A controller with a certificate of another authority is refused.
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
			log.await(t, "no controller serves policies")
			if s := a.Status(); s.Connected || s.Received != 0 || s.LastError == "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A controller with incomplete caches serves no agent.
func TestNotReady(t *testing.T) {
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	hub := server.NewHub(policy.NewPublisher(policy.NewEngine()))
	c, err := streamtest.NewOf(authority, hub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	log := newLog()
	o := c.ClientOptions("a")
	o.Log = slog.New(log)
	a, _ := streamtest.StartAgent(t, o)
	log.await(t, "no controller serves policies")
	if s := a.Status(); s.Complete || !strings.Contains(s.LastError, "does not know all policies yet") {
		t.Errorf("status %+v", s)
	}
	hub.Ready()
	a.Await(t, "a stream", func() bool { return a.Status().Complete })
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
