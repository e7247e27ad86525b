// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/openflow"
)

// endpoint is a bucket as Services need them.
func endpoint(id uint32) openflow.Bucket {
	return openflow.Bucket{ID: id, Weight: 100, Actions: []openflow.Action{
		openflow.SetField(openflow.Reg(3).Value(uint64(id))), openflow.Resubmit(20)}}
}

// endpoints is a group that changes by buckets.
func endpoints(group uint32, ids ...uint32) openflow.Group {
	g := openflow.Group{ID: group, Type: openflow.GroupSelect, SelectionMethod: "hash"}
	for _, id := range ids {
		g.Buckets = append(g.Buckets, endpoint(id))
	}
	return g
}

// upTo is the numbers from first to before end.
func upTo(first, end uint32) (ids []uint32) {
	for id := first; id < end; id++ {
		ids = append(ids, id)
	}
	return ids
}

// short prints what a group mod does to which buckets.
func short(m openflow.Message) string {
	mod := m.(*openflow.GroupMod)
	var ids []uint32
	for _, b := range mod.Group.Buckets {
		ids = append(ids, b.ID)
	}
	switch mod.Command {
	case openflow.GroupInsertBucket:
		return fmt.Sprintf("insert %d", ids)
	case openflow.GroupRemoveBucket:
		return fmt.Sprintf("remove %d", mod.BucketID)
	case openflow.GroupModify:
		return fmt.Sprintf("modify %d", ids)
	}
	return fmt.Sprintf("%d %d", mod.Command, ids)
}

func TestGroupChanges(t *testing.T) {
	of := func(kind openflow.Group, ids ...uint32) openflow.Group {
		g := endpoints(1, ids...)
		g.Type, g.SelectionMethod = kind.Type, kind.SelectionMethod
		for i := range g.Buckets {
			if kind.Type != openflow.GroupSelect {
				g.Buckets[i].Weight = 0
			}
			if kind.Type == openflow.GroupFastFailover {
				g.Buckets[i].WatchPort = 1
			}
		}
		return g
	}
	changed := endpoints(1, 1, 2, 3)
	changed.Buckets[1].Actions = []openflow.Action{openflow.Resubmit(21)}
	unnumbered := endpoints(1, 0, 0, 0)
	for i := range unnumbered.Buckets {
		unnumbered.Buckets[i].Weight = uint16(i)
	}
	fewer := unnumbered
	fewer.Buckets = slices.Concat(fewer.Buckets[:1], fewer.Buckets[2:])
	all, failover := openflow.Group{}, openflow.Group{Type: openflow.GroupFastFailover}
	dpHash := openflow.Group{Type: openflow.GroupSelect, SelectionMethod: "dp_hash"}
	tests := []struct {
		name       string
		have, want openflow.Group
		messages   []string
	}{
		{"nothing", endpoints(1, 1, 2), endpoints(1, 1, 2), nil},
		{"other order", endpoints(1, 1, 2, 3), endpoints(1, 3, 1, 2), nil},
		{"one more", endpoints(1, 1, 3), endpoints(1, 1, 2, 3), []string{"insert [2]"}},
		{"the first", endpoints(1), endpoints(1, 1), []string{"insert [1]"}},
		{"several more", endpoints(1, 2), endpoints(1, 3, 2, 1), []string{"insert [3 1]"}},
		{"one less", endpoints(1, 1, 2, 3), endpoints(1, 1, 3), []string{"remove 2"}},
		{"one for another", endpoints(1, 1, 2, 3), endpoints(1, 1, 3, 4), []string{"remove 2", "insert [4]"}},
		{"one is another", endpoints(1, 1, 2, 3), changed, []string{"remove 2", "insert [2]"}},
		{"most go", endpoints(1, 1, 2, 3), endpoints(1, 1), []string{"modify [1]"}},
		{"all go", endpoints(1, 1, 2, 3), endpoints(1), []string{"modify []"}},
		{"the only one changes", endpoints(1, 1), endpoints(1, 2), []string{"modify [2]"}},
		{"numbered by position", unnumbered, fewer, []string{"modify [0 0]"}},
		{"group all", of(all, 1, 2), of(all, 3, 2, 1), []string{"insert [3]"}},
		{"other type", of(all, 1, 2), endpoints(1, 1, 2), []string{"modify [1 2]"}},
		{"other method", of(dpHash, 1, 2), endpoints(1, 1, 2), []string{"modify [1 2]"}},
		{"dp_hash", of(dpHash, 1, 2), of(dpHash, 1, 2, 3), []string{"modify [1 2 3]"}},
		{"the switch's method", of(openflow.Group{Type: openflow.GroupSelect}, 1, 2), of(openflow.Group{Type: openflow.GroupSelect}, 1), []string{"modify [1]"}},
		{"order of failover", of(failover, 1, 2), of(failover, 2, 1), []string{"modify [2 1]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := NewFake(20, 21)
			b := New(Options{Connect: fake.Connect})
			for _, g := range []openflow.Group{tt.have, tt.want} {
				fake.Sent()
				if _, err := b.Sync(t.Context(), desired(map[string]*Rules{"a": {Groups: []openflow.Group{g}}})); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, msgs := range fake.Sent() {
				for _, m := range msgs {
					got = append(got, short(m))
				}
			}
			if diff := cmp.Diff(tt.messages, got); diff != "" {
				t.Error(diff)
			}
			if groups, _ := fake.Groups(t.Context()); !groups[0].Equal(&tt.want) {
				t.Errorf("the switch has %s", fake.Text())
			}
		})
	}
}

// Between any two states, buckets that are in both are not sent, unless more go
// than stay or the switch could not do it.
func TestGroupChangesAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := NewFake(tables...)
		b := New(Options{Connect: fake.Connect})
		have, want := genRules(t), genRules(t)
		if _, err := b.Sync(t.Context(), desired(map[string]*Rules{"a": have})); err != nil {
			t.Fatal(err)
		}
		fake.Sent()
		d := desired(map[string]*Rules{"a": want})
		if rapid.Bool().Draw(t, "new agent") {
			b = New(Options{Connect: fake.Connect})
		}
		if _, err := b.Sync(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text(d), sorted(fake.Text())); diff != "" {
			t.Fatalf("switch (-want +got):\n%s", diff)
		}
		inserted, removed, inserts, modified := map[uint32]int{}, map[uint32]int{}, map[uint32]int{}, map[uint32]bool{}
		for _, msgs := range bundles(fake.Sent()) {
			for _, m := range msgs {
				if mod, ok := m.(*openflow.GroupMod); ok {
					switch mod.Command {
					case openflow.GroupInsertBucket:
						inserts[mod.Group.ID]++
						inserted[mod.Group.ID] += len(mod.Group.Buckets)
					case openflow.GroupRemoveBucket:
						removed[mod.Group.ID]++
					case openflow.GroupModify:
						modified[mod.Group.ID] = true
					}
				}
			}
		}
		for _, w := range want.Groups {
			i := slices.IndexFunc(have.Groups, func(h openflow.Group) bool { return h.ID == w.ID })
			if i < 0 || modified[w.ID] && mayModify(&have.Groups[i], &w) {
				continue
			}
			stay := common(&have.Groups[i], &w)
			wantRemoved, wantInserted := len(have.Groups[i].Buckets)-stay, len(w.Buckets)-stay
			if modified[w.ID] || removed[w.ID] != wantRemoved || inserted[w.ID] != wantInserted || inserts[w.ID] > 1 {
				t.Fatalf("%s to %s: %d removed, %d inserted in %d messages, modified %v",
					groupText(&have.Groups[i]), groupText(&w), removed[w.ID], inserted[w.ID], inserts[w.ID], modified[w.ID])
			}
		}
	})
}

// common counts the buckets that are in both groups.
func common(have, want *openflow.Group) (n int) {
	for _, w := range want.Buckets {
		if slices.ContainsFunc(have.Buckets, func(h openflow.Bucket) bool { return h.Equal(&w) }) {
			n++
		}
	}
	return n
}

func mayModify(have, want *openflow.Group) bool {
	stay := common(have, want)
	return have.Type != want.Type || have.SelectionMethod != want.SelectionMethod ||
		len(have.SelectionFields) != len(want.SelectionFields) || want.Type == openflow.GroupFastFailover ||
		want.Type == openflow.GroupSelect && want.SelectionMethod != "hash" ||
		len(have.Buckets)-stay > stay
}

// careless is a switch that takes any bundle.
type careless struct {
	*Fake
	bundles int
}

func (c *careless) Bundle(context.Context, []openflow.Message) error {
	c.bundles++
	return nil
}

// A group that a switch could take but not dump never reaches it.
func TestTooBigGroups(t *testing.T) {
	longest := endpoints(1, upTo(0, 1363)...)
	if err := longest.Validate(); err != nil {
		t.Error(err)
	}
	for name, before := range map[string]uint32{"added": 0, "grown": 1300} {
		sw := &careless{Fake: NewFake()}
		b := New(Options{Connect: func(context.Context) (Switch, error) { return sw, nil }})
		d := desired(map[string]*Rules{"service/x": {Groups: []openflow.Group{endpoints(1, upTo(0, before)...)}}})
		if _, err := b.Sync(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.Set("service/x", &Rules{Groups: []openflow.Group{endpoints(1, upTo(0, 1364)...)}})
		_, err := b.Sync(t.Context(), d)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Owner != "service/x" || len(err.Error()) > 2000 || sw.bundles != 1 {
			t.Errorf("%s: %d bundles, error %.200v", name, sw.bundles, err)
		}
	}
}

func TestFakeRefusesLongGroups(t *testing.T) {
	fake := NewFake(20)
	more := openflow.Group{ID: 1, Type: openflow.GroupSelect, Buckets: endpoints(1, upTo(1300, 1400)...).Buckets}
	err := fake.Bundle(t.Context(), []openflow.Message{openflow.AddGroup(endpoints(1, upTo(0, 1300)...)),
		&openflow.GroupMod{Command: openflow.GroupInsertBucket, Group: more, BucketID: openflow.BucketLast}})
	if !errors.Is(err, errTooLong) {
		t.Errorf("error %v", err)
	}
}
