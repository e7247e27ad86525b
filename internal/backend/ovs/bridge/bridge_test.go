// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"coelan.io/coelan/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is what a switch should hold after a Sync of d, by the simplest code
// that can be: owners in order, the first one wins.
func text(d *Desired) []string {
	keys := map[any]bool{}
	var meters, groups, flows []string
	for _, owner := range slices.Sorted(maps.Keys(d.owners)) {
		r := d.Get(owner)
		for _, m := range r.Meters {
			if k := fmt.Sprint("meter", m.ID); !keys[k] {
				keys[k], meters = true, append(meters, m.String())
			}
		}
		for _, g := range r.Groups {
			if k := fmt.Sprint("group", g.ID); !keys[k] {
				keys[k], groups = true, append(groups, groupText(&g))
			}
		}
		for _, f := range r.Flows {
			if k := f.Key(); !keys[k] {
				keys[k], flows = true, append(flows, f.String())
			}
		}
	}
	all := slices.Concat(meters, groups, flows)
	slices.Sort(all)
	return all
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// Whatever sequence of desired states a switch went through, it ends as the
// last one says, by one bundle each, and by nothing if nothing differs.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := NewFake(tables...)
		b := New(Options{Connect: fake.Connect})
		d, followed := NewDesired(), rapid.Bool().Draw(t, "by one that follows")
		follower := NewDesired()
		for range rapid.IntRange(1, 6).Draw(t, "syncs") {
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				owner := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner")
				if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
					d.Remove(owner)
				} else {
					d.Set(owner, genRules(t))
				}
			}
			for range rapid.SampledFrom([]int{0, 0, 0, 300}).Draw(t, "rules set again") {
				d.Set("b", d.Get("b")) // more changes than it remembers
			}
			if rapid.IntRange(0, 4).Draw(t, "new agent") == 0 {
				b = New(Options{Connect: fake.Connect})
			}
			wanted := d
			if followed {
				if rapid.IntRange(0, 4).Draw(t, "compiled anew") == 0 {
					d = anew(d)
				}
				follower.Follow(d)
				wanted = follower
			}
			res, err := b.Sync(t.Context(), wanted)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(text(d), sorted(fake.Text())); diff != "" {
				t.Fatalf("switch (-want +got):\n%s", diff)
			}
			if got := res.Flows + res.Groups + res.Meters; got != len(fake.Text()) {
				t.Fatalf("result counts %d rules: %+v", got, res)
			}
			if n := len(bundles(fake.Sent())); n > 1 || n == 0 && res.Added+res.Changed+res.Deleted > 3 {
				t.Fatalf("%d bundles for %+v", n, res)
			}
			same := d
			if rapid.IntRange(0, 2).Draw(t, "by another") == 0 {
				same = anew(d)
			}
			if _, err := b.Sync(t.Context(), same); err != nil || len(fake.Sent()) > 0 {
				t.Fatalf("the same again was sent, %v", err)
			}
			if lines, err := b.Diff(t.Context(), d); err != nil || len(lines) > 0 {
				t.Fatalf("Diff = %v, %v", lines, err)
			}
		}
	})
}

// anew is another Desired that wants the same.
func anew(d *Desired) *Desired {
	other := NewDesired()
	other.Follow(d)
	return other
}

// bundles leaves out what are meter mods.
func bundles(sent [][]openflow.Message) (out [][]openflow.Message) {
	for _, msgs := range sent {
		if _, meter := msgs[0].(*openflow.MeterMod); !meter {
			out = append(out, msgs)
		}
	}
	return out
}

func flow(table uint8, port uint32, actions ...openflow.Action) openflow.Flow {
	return openflow.Flow{Table: table, Priority: 1, Match: openflow.NewMatch(openflow.InPort(port)), Actions: actions}
}

func desired(rules map[string]*Rules) *Desired {
	d := NewDesired()
	for owner, r := range rules {
		d.Set(owner, r)
	}
	return d
}

func TestDiffOfChanges(t *testing.T) {
	before := desired(map[string]*Rules{
		"a": {Flows: []openflow.Flow{flow(0, 1, openflow.Output(2)), flow(0, 2)}},
		"b": {Flows: []openflow.Flow{flow(1, 3)}},
	})
	after := desired(map[string]*Rules{
		"a": {Flows: []openflow.Flow{flow(0, 1, openflow.Output(3)), flow(0, 4)}},
		"b": {Flows: []openflow.Flow{flow(1, 3)}},
	})
	fake := NewFake()
	b := New(Options{Connect: fake.Connect})
	if _, err := b.Sync(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	lines, err := b.Diff(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	f1, f2, f4 := flow(0, 1, openflow.Output(3)), flow(0, 2), flow(0, 4)
	want := sorted([]string{"~ " + f1.String(), "- " + f2.String(), "+ " + f4.String()})
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	fake.Sent()
	res, err := b.Sync(t.Context(), after)
	if err != nil || res.Added != 1 || res.Changed != 1 || res.Deleted != 1 || res.Dumped {
		t.Errorf("%+v, %v", res, err)
	}
	for _, m := range bundles(fake.Sent())[0] {
		if mod := m.(*openflow.FlowMod); mod.Command != openflow.FlowAdd && mod.Flow.Match == f1.Match {
			t.Error("a changed flow was deleted first")
		}
	}
}

// A rule that two owners want goes to the first by name, and to the other when
// the first lets it go.
func TestConflict(t *testing.T) {
	mine, theirs := flow(0, 1, openflow.Output(1)), flow(0, 1, openflow.Output(2))
	fake := NewFake()
	b := New(Options{Connect: fake.Connect})
	d := desired(map[string]*Rules{"b": {Flows: []openflow.Flow{theirs}}})
	steps := []struct {
		name      string
		change    func()
		want      openflow.Flow
		conflicts []Conflict
	}{
		{"alone", func() {}, theirs, nil},
		{"taken over", func() { d.Set("a", &Rules{Flows: []openflow.Flow{mine}}) }, mine, []Conflict{{"a", "b", theirs.String()}}},
		{"unrelated change", func() { d.Set("c", &Rules{Groups: []openflow.Group{{ID: 1}}}) }, mine, []Conflict{{"a", "b", theirs.String()}}},
		{"given back", func() { d.Remove("a"); d.Remove("c") }, theirs, nil},
	}
	for _, s := range steps {
		s.change()
		res, err := b.Sync(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		flows, _ := fake.Flows(t.Context())
		if len(flows) != 1 || !flows[0].Flow.Equal(&s.want) {
			t.Errorf("%s: %v", s.name, fake.Text())
		}
		if diff := cmp.Diff(s.conflicts, res.Conflicts); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
	}
}

func TestRefused(t *testing.T) {
	fake := NewFake()
	b := New(Options{Connect: fake.Connect})
	good := flow(0, 1)
	d := desired(map[string]*Rules{"port/default/web-0": {Flows: []openflow.Flow{good}}})
	if _, err := b.Sync(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	bad := flow(0, 2, openflow.ToGroup(7))
	d.Set("service/default/db", &Rules{Flows: []openflow.Flow{flow(0, 3), bad}})
	_, err := b.Sync(t.Context(), d)
	var refused *Refused
	if !errors.As(err, &refused) || refused.Owner != "service/default/db" || refused.Rule != strings.TrimSpace(bad.String()) {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff([]string{good.String()}, fake.Text()); diff != "" {
		t.Errorf("after the refusal: %s", diff)
	}
	d.Set("service/default/db", &Rules{Flows: []openflow.Flow{bad}, Groups: []openflow.Group{{ID: 7}}})
	res, err := b.Sync(t.Context(), d)
	if err != nil || res.Dumped || res.Added != 2 {
		// nothing was written, so what is known of the switch holds.
		t.Errorf("%+v, %v", res, err)
	}
}

// A rule that uses what goes is an error, and stays: the switch would delete it
// without a word.
func TestDanglingReference(t *testing.T) {
	meter := openflow.Meter{ID: 7, Flags: openflow.MeterKbps, Bands: []openflow.MeterBand{{Type: openflow.MeterDrop, Rate: 1, Burst: 1}}}
	bucket := openflow.Bucket{Actions: []openflow.Action{openflow.ToGroup(7)}}
	tests := []struct {
		name string
		user Rules
		used Rules
	}{
		{"flow to group", Rules{Flows: []openflow.Flow{flow(0, 1, openflow.ToGroup(7))}}, Rules{Groups: []openflow.Group{{ID: 7}}}},
		{"flow in clone", Rules{Flows: []openflow.Flow{flow(0, 1, openflow.Clone(openflow.ToGroup(7)))}}, Rules{Groups: []openflow.Group{{ID: 7}}}},
		{"bucket to group", Rules{Groups: []openflow.Group{{ID: 8, Buckets: []openflow.Bucket{bucket}}}}, Rules{Groups: []openflow.Group{{ID: 7}}}},
		{"flow to meter", Rules{Flows: []openflow.Flow{flow(0, 1, openflow.ToMeter(7))}}, Rules{Meters: []openflow.Meter{meter}}},
	}
	for _, tt := range tests {
		for _, fresh := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new bridge %v", tt.name, fresh), func(t *testing.T) {
				fake := NewFake()
				b := New(Options{Connect: fake.Connect})
				d := desired(map[string]*Rules{"user": &tt.user, "used": &tt.used})
				if _, err := b.Sync(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				before := fake.Text()
				if fresh {
					b = New(Options{Connect: fake.Connect})
				}
				d.Remove("used")
				var refused *Refused
				if _, err := b.Sync(t.Context(), d); !errors.As(err, &refused) || refused.Owner != "user" || refused.Rule == "" {
					t.Errorf("error %v", err)
				}
				if diff := cmp.Diff(before, fake.Text()); diff != "" {
					t.Error(diff)
				}
				d.Remove("user")
				if _, err := b.Sync(t.Context(), d); err != nil || len(fake.Text()) != 0 {
					t.Errorf("%v, left %v", err, fake.Text())
				}
			})
		}
	}
}

// learner learns flows of table 9.
func learner(cookie uint64, deletes bool) openflow.Flow {
	f := flow(0, uint32(cookie), openflow.Learn{Table: 9, Cookie: cookie, DeleteLearned: deletes})
	f.Cookie = cookie
	return f
}

// Flows that were not made by Sync go, but for those of a table that packets fill.
// These go with the flow that they were learned from.
func TestLearned(t *testing.T) {
	fake := NewFake()
	if err := fake.Do(t.Context(), []openflow.Message{openflow.AddFlow(flow(8, 1))}); err != nil {
		t.Fatal(err)
	}
	table9 := func(table uint8) bool { return table == 9 }
	b, d := New(Options{Connect: fake.Connect, Learned: table9}), NewDesired()
	d.Set("a", &Rules{Flows: []openflow.Flow{learner(1, true), learner(2, true)}})
	sync := func(b *Bridge) {
		t.Helper()
		if _, err := b.Sync(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	sync(b)
	one, two := openflow.Flow{Table: 9, Cookie: 1, Priority: 1}, openflow.Flow{Table: 9, Cookie: 2, Priority: 2}
	if err := errors.Join(fake.Learn(one), fake.Learn(two)); err != nil {
		t.Fatal(err)
	}
	if err := fake.Learn(openflow.Flow{Table: 9, Cookie: 3}); err == nil {
		t.Error("no flow learns it, but it was accepted")
	}
	present := func(f openflow.Flow) bool { return slices.Contains(fake.Text(), f.String()) }
	sync(b)
	again := New(Options{Connect: fake.Connect, Learned: table9}) // with a dump
	sync(again)
	if lines, err := again.Diff(t.Context(), d); err != nil || len(lines) > 0 || !present(one) || !present(two) {
		t.Fatalf("learned flows are not left alone: %v, %v, %v", lines, err, fake.Text())
	}
	changed := learner(1, true) // in place, and still the same is learned
	changed.Actions = append(changed.Actions, openflow.Output(1))
	d.Set("a", &Rules{Flows: []openflow.Flow{changed}})
	sync(b)
	if !present(one) || present(two) {
		t.Errorf("a learned flow lives as long as one that it may be from: %v", fake.Text())
	}
	d.Set("a", &Rules{Flows: []openflow.Flow{one}})
	if _, err := b.Sync(t.Context(), d); err == nil || !strings.Contains(err.Error(), "a: rule refused: only packets make flows of table 9") {
		t.Errorf("a flow of a learned table: %v", err)
	}
}

// lossy is a connection that breaks at the nth call.
type lossy struct {
	*Fake
	calls *int
}

func (l lossy) Bundle(ctx context.Context, msgs []openflow.Message) error {
	if *l.calls--; *l.calls == 0 {
		return openflow.ErrDisconnected
	}
	return l.Fake.Bundle(ctx, msgs)
}

func TestLostConnection(t *testing.T) {
	for breaksAt := 1; breaksAt <= 4; breaksAt++ {
		fake, calls := NewFake(), breaksAt
		b := New(Options{Connect: func(context.Context) (Switch, error) { return lossy{fake, &calls}, nil }})
		d := NewDesired()
		for i := range uint32(5) {
			d.Set(fmt.Sprint(i), &Rules{Flows: []openflow.Flow{flow(0, i)}})
			if _, err := b.Sync(t.Context(), d); err != nil {
				if !errors.Is(err, openflow.ErrDisconnected) {
					t.Fatal(err)
				}
				fake.rules.flows = map[openflow.FlowKey]openflow.Flow{} // it restarted
				if res, err := b.Sync(t.Context(), d); err != nil || !res.Dumped {
					t.Fatalf("%+v, %v", res, err)
				}
			}
		}
		if diff := cmp.Diff(text(d), sorted(fake.Text())); diff != "" {
			t.Error(diff)
		}
	}
}

// refusing is a switch that refuses the flows of a table, all at once as Open vSwitch does when
// they are added to a bundle.
type refusing struct {
	*Fake
	table uint8
}

func (r refusing) Bundle(ctx context.Context, msgs []openflow.Message) error {
	var all []error
	for i, m := range msgs {
		if mod, ok := m.(*openflow.FlowMod); ok && mod.Flow.Table == r.table {
			all = append(all, &openflow.MessageError{Index: i, Message: m, Err: errors.New("no room")})
		}
	}
	if len(all) > 0 {
		return errors.Join(all...)
	}
	return r.Fake.Bundle(ctx, msgs)
}

func TestAllRefusals(t *testing.T) {
	fake := NewFake()
	b := New(Options{Connect: func(context.Context) (Switch, error) { return refusing{fake, 3}, nil }})
	d := desired(map[string]*Rules{
		"a": {Flows: []openflow.Flow{flow(3, 1)}}, "b": {Flows: []openflow.Flow{flow(0, 2)}}, "c": {Flows: []openflow.Flow{flow(3, 3), flow(0, 4)}},
	})
	_, err := b.Sync(t.Context(), d)
	var owners []string
	for _, r := range Refusals(err) {
		owners = append(owners, r.Owner)
	}
	if diff := cmp.Diff([]string{"a", "c"}, sorted(owners)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	d.Remove("a")
	d.Remove("c")
	res, err := b.Sync(t.Context(), d)
	if err != nil || res.Dumped || res.Added != 1 {
		t.Errorf("without them: %+v, %v", res, err)
	}
	if n := len(Refusals(nil)) + len(Refusals(errors.New("lost"))); n > 0 {
		t.Errorf("%d refusals of errors about no rule", n)
	}
}
