// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
)

// beyond adds a field to an item that no release has.
func beyond(item []byte, number protowire.Number) []byte {
	return protowire.AppendVarint(protowire.AppendTag(append([]byte(nil), item...), number, protowire.VarintType), 1)
}

// A node with three pods: one with a Rule that names a group, one with a Rule that names none, one
// without Rules.
var (
	blockRule = intent.Rule{
		ID: "NetworkPolicy/default/db/ingress/1", Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
		Policy: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "db"}, Action: intent.Allow,
	}
	blockPod = intent.Subject{Key: intent.PodSubject("2"), Rules: []string{blockRule.ID}}
	freePod  = intent.Subject{Key: intent.PodSubject("3")}
	mixed    = policy.View{
		Rules:    []intent.Rule{rule, blockRule},
		Subjects: []intent.Subject{pod, blockPod, freePod}, Peers: []intent.Peer{peer},
	}
)

// view is all that an agent's intent has of policies.
func view(s *intent.State) (v policy.View) {
	v.Rules = slices.Collect(s.Rules().All())
	v.Subjects = slices.Collect(s.Subjects().All())
	v.Peers = slices.Collect(s.Peers().All())
	return v
}

// put makes intent of a change.
func put(t *testing.T, store *intent.Store, c client.Change) policy.View {
	t.Helper()
	state, err := store.Update(func(tx *intent.Tx) error { c.Apply(tx); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return view(state)
}

// closedPods are the keys of the Subjects that are closed. The Rules of the others are all known.
func closedPods(t *testing.T, v policy.View) (closed []string) {
	t.Helper()
	for _, s := range v.Subjects {
		if s.Closed != "" {
			if !strings.Contains(s.Closed, "upgrade the agent") {
				t.Errorf("%s is closed because %q, which does not say what to do", s.Key, s.Closed)
			}
			closed = append(closed, s.Key)
		}
		for _, id := range s.Rules {
			if !slices.ContainsFunc(v.Rules, func(r intent.Rule) bool { return r.ID == id }) {
				t.Errorf("%s is open, and its rule %s is not known", s.Key, id)
			}
		}
	}
	return closed
}

// A controller of a newer release closes what the agent does not understand, and no more: at once,
// after a start with what is on disk, and until it says so no more.
func TestWhatIsNotUnderstoodIsClosed(t *testing.T) {
	another := intent.Peer{Space: "default", Address: netip.MustParseAddr("10.0.0.2"), Groups: []string{"other"}}
	for name, tc := range map[string]struct {
		item []byte
		want []string
	}{
		"field to be skipped":  {beyond(wire.EncodeRule(rule), wire.FirstSkippable), nil},
		"rule":                 {beyond(wire.EncodeRule(rule), 99), []string{pod.Key}},
		"rule of no group":     {beyond(wire.EncodeRule(blockRule), 99), []string{blockPod.Key}},
		"subject":              {beyond(wire.EncodeSubject(freePod), 99), []string{freePod.Key}},
		"peer":                 {beyond(wire.EncodePeer(peer), 99), []string{pod.Key}},
		"peer of other groups": {beyond(wire.EncodePeer(another), 99), []string{pod.Key}},
	} {
		t.Run(name, func(t *testing.T) {
			known, store := client.NewKnown(), intent.NewStore()
			change := func(m *wire.Update) policy.View {
				t.Helper()
				c, err := known.Apply(m)
				if err != nil {
					t.Fatal(err)
				}
				return put(t, store, c)
			}
			all := change(&wire.Update{Items: items(mixed)})
			if closed := closedPods(t, all); closed != nil {
				t.Fatalf("closed from the start: %v", closed)
			}
			now := change(&wire.Update{Items: [][]byte{tc.item}})
			if diff := cmp.Diff(tc.want, closedPods(t, now)); diff != "" {
				t.Errorf("closed pods (-want +got):\n%s", diff)
			}
			path := filepath.Join(t.TempDir(), "policies.db")
			if err := client.Save(path, known.Items()); err != nil {
				t.Fatal(err)
			}
			started := client.New(client.Options{File: path, Log: slog.New(slog.DiscardHandler)})
			if diff := cmp.Diff(now, put(t, intent.NewStore(), started.Load()), compareAddresses); diff != "" {
				t.Errorf("after a start (-before +after):\n%s", diff)
			}
			if s := started.Status(); s.Unknown > 0 != (tc.want != nil) {
				t.Errorf("status %+v", s)
			}
			// A change of something else leaves it closed, and the next release of
			// the item opens it.
			now = change(&wire.Update{Items: [][]byte{wire.EncodePeer(intent.Peer{
				Space: "default", Address: netip.MustParseAddr("10.0.0.3"), Groups: []string{"g"},
			})}})
			if diff := cmp.Diff(tc.want, closedPods(t, now)); diff != "" {
				t.Errorf("closed pods after another change (-want +got):\n%s", diff)
			}
			now = change(&wire.Update{
				Items: items(mixed),
				Gone:  []*wire.Key{wire.PeerID("default 10.0.0.2").Message(), wire.PeerID("default 10.0.0.3").Message()},
			})
			if diff := cmp.Diff(all, now, compareAddresses); diff != "" {
				t.Errorf("understood again (-want +got):\n%s", diff)
			}
		})
	}
}
