// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
)

// talk is a client that a test speaks for.
type talk struct {
	changed    func(client.Change)
	words      chan client.Change
	programmed []uint64
	version    uint64
	complete   bool
}

func (s *talk) Load() client.Change {
	s.version = 1
	return client.Change{Version: 1, Delta: policy.Delta{View: policy.View{Subjects: []intent.Subject{{Key: "pod/old"}}, Rules: []intent.Rule{{ID: "old"}}}}}
}

func (s *talk) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-s.words:
			s.complete = true
			s.changed(c)
		}
	}
}

func (s *talk) Programmed(version uint64)  { s.programmed = append(s.programmed, version) }
func (s *talk) Attached(policy.Attachment) {}
func (s *talk) Refused([]policy.Refusal)   {}
func (s *talk) Status() client.Status      { return client.Status{Complete: s.complete} }

// What a controller says is intent at once, and it is told so when the flows are on the switch.
func TestWhatAControllerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := intent.NewStore(), &talk{words: make(chan client.Change)}
		applied, observed := make(chan error), 0
		p := New(Options{
			Log: slog.New(slog.DiscardHandler), Intent: store, Observe: func(time.Duration) { observed++ },
			NewClient: func(changed func(client.Change)) Client { s.changed = changed; return s },
			Applied: func(ctx context.Context, _ uint64) error {
				select {
				case err := <-applied:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		if _, err := store.Update(func(tx *intent.Tx) error { p.Load(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, ok := store.State().Subjects().Get("pod/old"); !ok {
			t.Fatal("what is remembered is no intent")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		applied <- nil // what is remembered
		synctest.Wait()
		if len(s.programmed) != 1 || s.programmed[0] != 1 {
			t.Errorf("versions %v are in effect, want the one that is remembered", s.programmed)
		}
		select {
		case <-p.Complete():
			t.Error("a controller is heard before it speaks")
		default:
		}
		peer := intent.Peer{Space: "default", Address: netip.MustParseAddr("10.0.0.1"), Groups: []string{"g"}}
		s.words <- client.Change{
			Version: 2,
			Delta: policy.Delta{
				View: policy.View{
					Rules: []intent.Rule{{ID: "new"}}, Subjects: []intent.Subject{{Key: "pod/new", Rules: []string{"new"}}}, Peers: []intent.Peer{peer},
				},
				RemovedSubjects: []string{"pod/old"}, RemovedRules: []string{"old"},
			},
		}
		synctest.Wait()
		<-p.Complete()
		now := store.State()
		_, kept := now.Subjects().Get("pod/old")
		if subject, ok := now.Subjects().Get("pod/new"); !ok || kept || len(subject.Rules) != 1 || now.Rules().Len() != 1 || now.Peers().Len() != 1 {
			t.Errorf("intent has %d rules, %d subjects, %d peers", now.Rules().Len(), now.Subjects().Len(), now.Peers().Len())
		}
		if len(s.programmed) > 1 {
			t.Errorf("versions %v are in effect before their flows are", s.programmed)
		}
		applied <- errors.New("the switch is away")
		synctest.Wait()
		if len(s.programmed) > 1 {
			t.Errorf("versions %v are in effect without the switch", s.programmed)
		}
		applied <- nil
		synctest.Wait()
		if n := len(s.programmed); n == 0 || s.programmed[n-1] != 2 || observed != 1 {
			t.Errorf("versions %v are in effect, %d times were taken", s.programmed, observed)
		}
		s.words <- client.Change{Version: 3, Delta: policy.Delta{RemovedPeers: []string{intent.PeerKey(peer.Space, peer.Address)}}}
		applied <- nil
		synctest.Wait()
		if store.State().Peers().Len() != 0 || s.programmed[len(s.programmed)-1] != 3 {
			t.Errorf("a peer that is gone is still there; versions %v", s.programmed)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
