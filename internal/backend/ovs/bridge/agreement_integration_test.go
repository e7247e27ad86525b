// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"coelan.io/coelan/openflow"
)

// genMessage makes messages of which some are refused: by what they are, or by
// what is there.
func genMessage(t *rapid.T) openflow.Message {
	group := openflow.Group{ID: uint32(rapid.IntRange(1, 3).Draw(t, "group")), Buckets: []openflow.Bucket{
		{Actions: []openflow.Action{openflow.Resubmit(20)}},
	}}
	switch rapid.IntRange(0, 14).Draw(t, "message") {
	case 0:
		return &openflow.GroupMod{Command: openflow.GroupAdd, Group: group}
	case 1:
		group.Type = openflow.GroupIndirect
		return &openflow.GroupMod{Command: openflow.GroupModify, Group: group}
	case 2:
		return &openflow.GroupMod{Command: openflow.GroupDelete, Group: openflow.Group{ID: group.ID}}
	case 3:
		return openflow.DeleteFlow(genRefusable(t))
	case 4:
		f := genRefusable(t)
		return &openflow.FlowMod{Command: openflow.FlowDelete, Flow: openflow.Flow{Table: f.Table, Match: f.Match}}
	case 5:
		return &openflow.FlowMod{Command: openflow.FlowModify, Flow: genRefusable(t)}
	case 6, 7:
		return &openflow.GroupMod{Command: openflow.GroupAddOrModify, Group: genGroup(t, group.ID)}
	case 8, 9, 10:
		return genBucketMod(t, group.ID)
	}
	return openflow.AddFlow(genRefusable(t))
}

// genBucketMod changes buckets, of which it may know the wrong numbers.
func genBucketMod(t *rapid.T, group uint32) openflow.Message {
	m := &openflow.GroupMod{Command: openflow.GroupInsertBucket, Group: genGroup(t, group)}
	m.BucketID = rapid.OneOf(rapid.Uint32Range(0, 9), rapid.Uint32Range(openflow.BucketMax, openflow.BucketAll),
		rapid.Just(openflow.BucketLast)).Draw(t, "bucket")
	if rapid.IntRange(0, 5).Draw(t, "with method") > 0 {
		m.Group.SelectionMethod, m.Group.SelectionFields = "", nil
	}
	m.Group.Buckets = m.Group.Buckets[:min(2, len(m.Group.Buckets))]
	for i := range m.Group.Buckets {
		// Whether one fits depends on the group, which the switch does not check.
		m.Group.Buckets[i].Weight = 0
	}
	if rapid.Bool().Draw(t, "remove") {
		m.Command = openflow.GroupRemoveBucket
		if rapid.IntRange(0, 5).Draw(t, "with buckets") > 0 {
			m.Group.Buckets = nil
		}
	}
	return m
}

func genRefusable(t *rapid.T) openflow.Flow {
	f := genFlow(t, []openflow.Group{{ID: uint32(rapid.IntRange(1, 3).Draw(t, "of"))}}, nil)
	any4 := netip.MustParseAddr("10.0.0.1")
	switch rapid.IntRange(0, 15).Draw(t, "twist") {
	case 0:
		f.Goto = f.Table
	case 1:
		f.Actions = append(f.Actions, openflow.DecTTL())
	case 2:
		f.Actions = append(f.Actions, openflow.SetField(openflow.IPSrc(any4)))
	case 3:
		f.Actions = append(f.Actions, openflow.SetField(openflow.L4Dst(openflow.IPProtoTCP, 80)))
	case 4:
		f.Actions = append(f.Actions, openflow.CT{Commit: true, NAT: &openflow.NAT{DNAT: true, AddrMin: any4}})
	case 5:
		f.Actions = append(f.Actions, openflow.SetField(openflow.ARPOp(2)))
	case 6:
		f.Actions = append(f.Actions, openflow.ResubmitCT(20))
	case 8:
		f.Match = openflow.NewMatch(openflow.L4Dst(openflow.IPProtoUDP, 53))
	case 9:
		f.Match = f.Match.With(openflow.CTState(openflow.CTTrk|openflow.CTEst, openflow.CTNew))
	case 10:
		f.Actions = []openflow.Action{openflow.Conjunction(1, uint8(rapid.IntRange(0, 3).Draw(t, "clause")), 2)}
	case 11:
		f.Actions = append(f.Actions, openflow.Clone(openflow.ToGroup(uint32(rapid.IntRange(1, 3).Draw(t, "cloned")))))
	}
	return f
}

// pair is a fake and Open vSwitch that get the same messages.
type pair struct {
	fake              *Fake
	conn              *openflow.Conn
	accepted, refused int
}

// reset empties both.
func (p *pair) reset(t *rapid.T) {
	p.fake = NewFake()
	if err := p.conn.Bundle(t.Context(), []openflow.Message{openflow.DeleteAllFlows(), openflow.DeleteGroup(openflow.GroupAllGroups)}); err != nil {
		t.Fatal(err)
	}
}

// bundle checks that both accept or refuse msgs, and hold the same rules then.
func (p *pair) bundle(t *rapid.T, msgs ...openflow.Message) {
	ctx := t.Context()
	fakeErr := p.fake.Bundle(ctx, msgs)
	if errors.As(fakeErr, new(harmful)) {
		return // it would put Open vSwitch or packets at risk
	}
	liveErr := p.conn.Bundle(ctx, msgs)
	if (fakeErr == nil) != (liveErr == nil) {
		t.Fatalf("bundle %v: fake says %v, Open vSwitch %v", texts(msgs), fakeErr, liveErr)
	}
	if fakeErr == nil {
		p.accepted++
	} else {
		p.refused++
	}
	groups, err := p.conn.Groups(ctx)
	if have, _ := p.fake.Groups(ctx); err != nil || !sameOrder(have, groups) {
		t.Fatalf("after %v: fake has groups %v, Open vSwitch %v, %v", texts(msgs), have, groups, err)
	}
	live, err := dump(ctx, p.conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(plus(p.fake.Text()), diff(newState(0, 0, 0), live).lines(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("after %v (-fake +live):\n%s", texts(msgs), diff)
	}
}

func agreement(t *testing.T, check func(*rapid.T, *pair)) {
	_, _, client, ctx := live(t)
	conn, err := client.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{conn: conn}
	rapid.Check(t, func(t *rapid.T) {
		p.reset(t)
		check(t, p)
	})
	t.Logf("%d bundles accepted, %d refused", p.accepted, p.refused)
}

// The fake and Open vSwitch accept and refuse the same bundles, and hold the
// same rules after them.
func TestFakeAgreesWithLive(t *testing.T) {
	agreement(t, func(t *rapid.T, p *pair) {
		for range 8 {
			msgs := make([]openflow.Message, rapid.IntRange(1, 3).Draw(t, "length"))
			for i := range msgs {
				msgs[i] = genMessage(t)
			}
			// A loose change does not see all that the same bundle has added.
			if i := slices.IndexFunc(msgs, loose); i >= 0 {
				msgs = msgs[i : i+1]
			}
			p.bundle(t, msgs...)
		}
	})
}

// They agree on the buckets of one group, too, and on their order.
func TestFakeAgreesOnBuckets(t *testing.T) {
	agreement(t, func(t *rapid.T, p *pair) {
		group := rapid.Custom(func(t *rapid.T) openflow.Group { return genGroup(t, 1) }).
			Filter(func(g openflow.Group) bool { return !tabled(&g) && len(g.Buckets) > 1 }).Draw(t, "group")
		p.bundle(t, openflow.AddGroup(group), openflow.AddFlow(flow(0, 1, openflow.ToGroup(1))))
		for range 6 {
			msgs := []openflow.Message{genBucketMod(t, 1)}
			if rapid.Bool().Draw(t, "fails later") {
				msgs = append(msgs, openflow.AddFlow(flow(0, 2, openflow.ToGroup(uint32(rapid.IntRange(1, 2).Draw(t, "to"))))))
			}
			p.bundle(t, msgs...)
		}
	})
}

// sameOrder reports whether buckets stand in the same order.
func sameOrder(fake, live []openflow.Group) bool {
	slices.SortFunc(live, func(a, b openflow.Group) int { return cmp.Compare(a.ID, b.ID) })
	return slices.EqualFunc(fake, live, func(a, b openflow.Group) bool { return a.String() == b.String() })
}

// loose reports whether m is about all flows that its match includes.
func loose(m openflow.Message) bool {
	mod, ok := m.(*openflow.FlowMod)
	return ok && (mod.Command == openflow.FlowModify || mod.Command == openflow.FlowDelete)
}

func texts(msgs []openflow.Message) (out []string) {
	for _, m := range msgs {
		switch m := m.(type) {
		case *openflow.FlowMod:
			out = append(out, [...]string{"add ", "modify ", "modify_strict ", "delete ", "delete_strict "}[m.Command]+m.Flow.String())
		case *openflow.GroupMod:
			out = append(out, fmt.Sprintf("group command %d, bucket %d: %s", m.Command, m.BucketID, &m.Group))
		}
	}
	return out
}
