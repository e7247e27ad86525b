// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web  = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "web"}
	rule = intent.Rule{
		ID: "NetworkPolicy/default/web/ingress/1", Policy: web, Number: 1, Direction: intent.Ingress,
		Tier: intent.NetworkPolicyTier, Action: intent.Allow, Groups: []string{"g"},
	}
	pod  = intent.Subject{Key: intent.PodSubject("1"), Rules: []string{rule.ID}, IngressIsolation: []intent.PolicyRef{web}}
	peer = intent.Peer{Space: "default", Address: netip.MustParseAddr("10.0.0.1"), Groups: []string{"g"}}
	good = policy.View{Rules: []intent.Rule{rule}, Subjects: []intent.Subject{pod}, Peers: []intent.Peer{peer}}

	compareAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

// items are encoded.
func items(v policy.View) [][]byte {
	var list [][]byte
	for _, r := range v.Rules {
		list = append(list, wire.EncodeRule(r))
	}
	for _, s := range v.Subjects {
		list = append(list, wire.EncodeSubject(s))
	}
	for _, p := range v.Peers {
		list = append(list, wire.EncodePeer(p))
	}
	return list
}

// script is a controller that sends the first stream to an agent that knows nothing yet, and the
// last one to any other. It goes by what the agent knows, since a stream may end before anything of
// it has arrived.
type script struct {
	wire.UnimplementedPoliciesServer
	streams []stream
}

type stream struct {
	messages []*wire.Update
	err      error // at its end; nil: it does not end
}

func (s *script) Sync(to wire.Policies_SyncServer) error {
	m, err := to.Recv()
	if err != nil {
		return err
	}
	now := s.streams[0]
	if len(m.GetInventory().GetDigests()) > 0 {
		now = s.streams[len(s.streams)-1]
	}
	for _, m := range now.messages {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	if now.err != nil {
		return now.err
	}
	<-to.Context().Done()
	return nil
}

func serve(t *testing.T, streams ...stream) client.Options {
	t.Helper()
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- authority.Serve(ctx, l, &script{streams: streams}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return client.Options{
		Node: "a", Namespace: streamtest.Namespace, Token: streamtest.TokenOf("a"), Log: slog.New(slog.DiscardHandler),
		Controllers: client.Fixed(authority.Roots, l.Addr().String()),
	}
}

func TestGarbageFromTheController(t *testing.T) {
	otherRule := rule
	otherRule.ID = "NetworkPolicy/default/other/ingress/1"
	dangling := pod
	dangling.Rules = []string{rule.ID, "NetworkPolicy/default/missing/ingress/1"}
	open := policy.View{Subjects: []intent.Subject{{Key: pod.Key}}}
	whole := func(version uint64, m *wire.Update) *wire.Update {
		m.Version = version
		return m
	}
	digest := wire.DigestOf([]byte("x"))
	first := &wire.Update{Version: 1, Items: items(good)}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		then   []*wire.Update
		err    error
		silent bool   // the controller sends nothing more
		want   string // in the error, if what comes is garbage
	}{
		"bytes":               {then: []*wire.Update{whole(2, &wire.Update{Items: [][]byte{[]byte("garbage")}})}, want: "item: "},
		"half an item":        {then: []*wire.Update{whole(2, &wire.Update{Items: [][]byte{items(open)[0][:3]}})}, want: "item: "},
		"an item beside":      {then: []*wire.Update{whole(2, &wire.Update{Items: append(items(open), []byte{255})})}, want: "item: "},
		"a missing rule":      {then: []*wire.Update{whole(2, &wire.Update{Items: [][]byte{wire.EncodeSubject(dangling)}})}, want: "there is no rule"},
		"a rule gone":         {then: []*wire.Update{whole(2, &wire.Update{Gone: []*wire.Key{wire.RuleID(rule.ID).Message()}})}, want: "its rule"},
		"an unknown kind":     {then: []*wire.Update{whole(2, &wire.Update{Gone: []*wire.Key{{Kind: 9, Key: "x"}}})}, want: "kind 9"},
		"an empty key":        {then: []*wire.Update{whole(2, &wire.Update{Gone: []*wire.Key{{Kind: wire.Key_RULE}}})}, want: "key is empty"},
		"half a digest":       {then: []*wire.Update{whole(2, &wire.Update{Unknown: digest[1:]})}, want: "number of digests"},
		"a digest of nothing": {then: []*wire.Update{whole(2, &wire.Update{Unknown: digest[:]})}, want: "1 digests"},
		"there and gone": {then: []*wire.Update{whole(2, &wire.Update{
			Items: items(open), Gone: []*wire.Key{wire.SubjectID(pod.Key).Message()},
		})}, want: "both there and gone"},
		"twice":             {then: []*wire.Update{{Items: items(open)}, whole(2, &wire.Update{Items: items(open)})}, want: "comes twice"},
		"a version skipped": {then: []*wire.Update{whole(3, &wire.Update{Items: items(open)})}, want: "change 3 comes after 1"},
		"a version again":   {then: []*wire.Update{whole(1, &wire.Update{Items: items(open)})}, want: "change 1 comes after 1"},
		"half a change":     {then: []*wire.Update{{Items: items(open)}}, err: broken},
		"half, and silence": {then: []*wire.Update{{Items: items(open)}}, silent: true},
		"nothing more":      {err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			next := good
			next.Rules = []intent.Rule{rule, otherRule}
			again := &wire.Update{Version: 1, Items: [][]byte{wire.EncodeRule(otherRule)}}
			o := serve(t, stream{append([]*wire.Update{first}, tc.then...), tc.err}, stream{messages: []*wire.Update{again}})
			a := streamtest.NewAgent(o)
			if tc.silent {
				client.SetPatience(a.Client, 200*time.Millisecond)
			}
			run(t, a)
			a.Await(t, "the next stream", func() bool {
				v := a.View()
				if v["subject "+pod.Key] != nil && !cmp.Equal(v["subject "+pod.Key], any(pod)) {
					t.Fatalf("what makes no sense is in effect: %v", v)
				}
				return cmp.Equal(v, streamtest.ViewOf(next), compareAddresses)
			})
			s := a.Status()
			if s.Streams != 2 || s.InvalidUpdates != map[bool]uint64{true: 1, false: 0}[tc.want != ""] {
				t.Errorf("status %+v", s)
			}
			if got := len(a.Changes()); got != 2 {
				t.Errorf("%d changes, want those of two streams", got)
			}
		})
	}
}

// What is garbage from the start puts nothing into effect, and is asked forever more seldom.
func TestNothingButGarbage(t *testing.T) {
	dangling := pod
	o := serve(t, stream{messages: []*wire.Update{{Version: 1, Items: [][]byte{wire.EncodeSubject(dangling)}}}})
	a := streamtest.NewAgent(o)
	logged := make(chan string, 100)
	a.Log = slog.New(handler{logged})
	run(t, a)
	for range 3 {
		select {
		case text := <-logged:
			if !strings.Contains(text, "there is no rule") {
				t.Errorf("logged %q", text)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is logged")
		}
	}
	if s := a.Status(); s.Complete || s.Version != 0 || len(a.View()) > 0 {
		t.Errorf("status %+v, view %v", s, a.View())
	}
}

// run has an agent run until the test ends.
func run(t *testing.T, a *streamtest.Agent) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// handler hands on the errors in what is logged.
type handler struct{ to chan<- string }

func (handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			select {
			case h.to <- r.Message + ": " + a.Value.String():
			default:
			}
		}
		return true
	})
	return nil
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }
