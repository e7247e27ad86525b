// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/openflow"
)

func TestFakeRefuses(t *testing.T) {
	add := func(f openflow.Flow) openflow.Message { return openflow.AddFlow(f) }
	group := func(cmd openflow.GroupModCommand, g openflow.Group) openflow.Message {
		return &openflow.GroupMod{Command: cmd, Group: g}
	}
	bucket := func(cmd openflow.GroupModCommand, group, id uint32, ids ...uint32) openflow.Message {
		m := &openflow.GroupMod{Command: cmd, Group: openflow.Group{ID: group}, BucketID: id}
		for _, n := range ids {
			m.Group.Buckets = append(m.Group.Buckets, openflow.Bucket{ID: n})
		}
		return m
	}
	const insert, remove = openflow.GroupInsertBucket, openflow.GroupRemoveBucket
	tests := []struct {
		name string
		msg  openflow.Message
		want string // of the error, empty: accepted
	}{
		{"flow", add(flow(0, 1, openflow.Output(2))), ""},
		{"replacement", add(flow(5, 9, openflow.Output(2))), ""},
		{"unknown table", add(flow(1, 1)), "table 1 does not exist"},
		{"goto unknown table", add(openflow.Flow{Goto: 6}), "table 6 does not exist"},
		{"goto back", add(openflow.Flow{Table: 10, Goto: 5}), "does not lead forward"},
		{"resubmit to unknown table", add(flow(0, 1, openflow.Resubmit(6))), "table 6 does not exist"},
		{"resubmit to the same", add(flow(0, 1, openflow.Resubmit(255))), ""},
		{"ct to unknown table", add(openflow.Flow{
			Match:   openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4)),
			Actions: []openflow.Action{openflow.CT{Table: openflow.Table(6)}}}), "table 6 does not exist"},
		{"nested reference", add(flow(0, 1, openflow.Clone(openflow.ToGroup(8)))), "group 8 does not exist"},
		{"group", add(flow(0, 1, openflow.ToGroup(7))), ""},
		{"missing group", add(flow(0, 1, openflow.ToGroup(8))), "group 8 does not exist"},
		{"missing meter", add(flow(0, 1, openflow.ToMeter(8))), "meter 8 does not exist"},
		{"meter of controller", add(flow(0, 1, openflow.Controller{Meter: 8})), "meter 8 does not exist"},
		{"bad prerequisite", add(openflow.Flow{
			Match: openflow.NewMatch(openflow.EthType(openflow.EthTypeARP), openflow.L4Dst(openflow.IPProtoTCP, 1))}), "needs eth_type"},
		{"action without prerequisite", add(flow(0, 1, openflow.DecTTL())), "dec_ttl"},
		{"overlap", add(openflow.Flow{
			Table: 5, Priority: 1, Flags: openflow.FlowCheckOverlap,
			Match: openflow.NewMatch(openflow.IPDst(netip.MustParseAddr("10.0.0.1")))}), "overlaps"},
		{"no overlap", add(openflow.Flow{
			Table: 5, Priority: 2, Flags: openflow.FlowCheckOverlap,
			Match: openflow.NewMatch(openflow.IPDst(netip.MustParseAddr("10.0.0.1")))}), ""},
		{"group exists", group(openflow.GroupAdd, openflow.Group{ID: 7}), "group 7 exists"},
		{"no group to modify", group(openflow.GroupModify, openflow.Group{ID: 8}), "group 8 does not exist"},
		{"delete of no group", group(openflow.GroupDelete, openflow.Group{ID: 8}), ""},
		{"delete with more than a number", group(openflow.GroupDelete, openflow.Group{ID: 7, SelectionMethod: "hash"}), "by its number alone"},
		{"bucket to itself", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{
			{Actions: []openflow.Action{openflow.ToGroup(8)}}}}), "refers to itself"},
		{"bucket to missing group", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{
			{Actions: []openflow.Action{openflow.ToGroup(3)}}}}), "group 3 does not exist"},
		{"bucket with dead actions", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{
			{Actions: []openflow.Action{openflow.CT{Commit: true}, openflow.Output(1)}}}}), "only one"},
		{"bucket number twice", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{{ID: 1}, {ID: 1}}}), "given twice"},
		{"weight in group all", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{{Weight: 1}}}), "weights"},
		{"bucket with a reserved number", bucket(openflow.GroupAdd, 8, 0, openflow.BucketMax+1), "the greatest is"},
		{"method of group all", group(openflow.GroupAdd, openflow.Group{ID: 8, SelectionMethod: "hash"}), "only select groups"},
		{"unknown method", group(openflow.GroupAdd, openflow.Group{ID: 8, Type: openflow.GroupSelect, SelectionMethod: "best"}), "neither hash nor dp_hash"},
		{"fields of dp_hash", group(openflow.GroupAdd, openflow.Group{ID: 8, Type: openflow.GroupSelect, SelectionMethod: "dp_hash",
			SelectionFields: openflow.HashOn(openflow.FieldIPv4Src)}), "takes no fields"},
		{"watching in group all", group(openflow.GroupAdd, openflow.Group{ID: 8, Buckets: []openflow.Bucket{{WatchPort: 1}}}), "watches"},
		{"failover without watching", group(openflow.GroupAdd, openflow.Group{ID: 8, Type: openflow.GroupFastFailover, Buckets: []openflow.Bucket{{}}}), "watches"},
		{"insertion at the end", bucket(insert, 6, openflow.BucketLast, 4, 5), ""},
		{"insertion after a bucket", bucket(insert, 6, 1, 4), ""},
		{"insertion into no group", bucket(insert, 8, openflow.BucketLast, 4), "group 8 does not exist"},
		{"insertion after no bucket", bucket(insert, 6, 3, 4), "bucket number 3 does not exist"},
		{"insertion after itself", bucket(insert, 6, 4, 4), "bucket number 4 does not exist"},
		{"insertion after all", bucket(insert, 6, openflow.BucketAll, 4), "does not exist"},
		{"insertion of a bucket that is there", bucket(insert, 6, openflow.BucketLast, 2), "bucket number 2 is there"},
		{"insertion of one twice", bucket(insert, 6, openflow.BucketLast, 4, 4), "given twice"},
		{"insertion with a method", &openflow.GroupMod{Command: insert, BucketID: openflow.BucketLast,
			Group: openflow.Group{ID: 6, Type: openflow.GroupSelect, SelectionMethod: "hash"}}, "with a change of buckets"},
		{"insertion of nothing", bucket(insert, 6, openflow.BucketLast), "an insertion of no bucket"},
		{"insertion into dp_hash", bucket(insert, 5, openflow.BucketLast, 4), "must be written whole"},
		{"removal", bucket(remove, 6, 2), ""},
		{"removal of all", bucket(remove, 6, openflow.BucketAll), ""},
		{"removal of no bucket", bucket(remove, 6, 3), "bucket number 3 does not exist"},
		{"removal from no group", bucket(remove, 8, 1), "group 8 does not exist"},
		{"removal with a bucket", bucket(remove, 6, 1, 1), "and gives none"},
		{"message too long", group(openflow.GroupAdd, endpoints(8, upTo(0, 3000)...)), "longer than 65535"},
		{"deletion of a group in use", group(openflow.GroupDelete, openflow.Group{ID: 9}), "flows still use it"},
		{"meter in bundle", &openflow.MeterMod{Meter: openflow.Meter{ID: 1, Bands: make([]openflow.MeterBand, 1)}}, "cannot be in a bundle"},
		{"other message", &openflow.BarrierRequest{}, "not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := NewFake(0, 5, 10, 20)
			if err := fake.Bundle(t.Context(), []openflow.Message{
				group(openflow.GroupAdd, openflow.Group{ID: 7}), add(flow(5, 9)),
				group(openflow.GroupAdd, openflow.Group{ID: 9}), add(flow(5, 10, openflow.ToGroup(9))),
				bucket(openflow.GroupAdd, 6, 0, 2, 1),
				group(openflow.GroupAdd, openflow.Group{ID: 5, Type: openflow.GroupSelect, SelectionMethod: "dp_hash"}),
			}); err != nil {
				t.Fatal(err)
			}
			before := strings.Join(fake.Text(), "\n")
			extra := flow(10, 3)
			err := fake.Bundle(t.Context(), []openflow.Message{add(extra), tt.msg})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if after := strings.Join(fake.Text(), "\n"); (after != before) != (err == nil) {
				t.Errorf("after %v:\n%s", err, after)
			}
		})
	}
}

func TestFakeDeletes(t *testing.T) {
	tests := []struct {
		name string
		mod  openflow.Message
		left int
	}{
		{"all", openflow.DeleteAllFlows(), 0},
		{"table", &openflow.FlowMod{Command: openflow.FlowDelete, Flow: openflow.Flow{Table: 1}}, 2},
		{"by match", &openflow.FlowMod{Command: openflow.FlowDelete, Flow: openflow.Flow{
			Table: openflow.TableAll, Match: openflow.NewMatch(openflow.InPort(1))}}, 2},
		{"strict", openflow.DeleteFlow(flow(0, 1)), 3},
		{"strict, nothing", openflow.DeleteFlow(flow(2, 1)), 4},
		{"by cookie", &openflow.FlowMod{Command: openflow.FlowDelete, CookieMask: ^uint64(0),
			Flow: openflow.Flow{Table: openflow.TableAll, Cookie: 5}}, 3},
		{"group and what uses it", &openflow.GroupMod{Command: openflow.GroupDelete, Group: openflow.Group{ID: 7}}, 3},
		{"all groups", &openflow.GroupMod{Command: openflow.GroupDelete, Group: openflow.Group{ID: openflow.GroupAllGroups}}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := NewFake()
			cookie := flow(1, 2)
			cookie.Cookie = 5
			err := fake.Bundle(t.Context(), []openflow.Message{
				&openflow.GroupMod{Command: openflow.GroupAdd, Group: openflow.Group{ID: 7}},
				openflow.AddFlow(flow(0, 1)), openflow.AddFlow(flow(0, 2, openflow.ToGroup(7))),
				openflow.AddFlow(flow(1, 1)), openflow.AddFlow(cookie),
			})
			err = errors.Join(err, fake.Do(t.Context(), []openflow.Message{tt.mod}))
			if err != nil {
				t.Fatal(err)
			}
			if flows, _ := fake.Flows(t.Context()); len(flows) != tt.left {
				t.Errorf("%d flows left, want %d", len(flows), tt.left)
			}
		})
	}
}

func TestFakeOverlaps(t *testing.T) {
	ip := func(s string, actions ...openflow.Action) openflow.Flow {
		return openflow.Flow{Priority: 5, Match: openflow.NewMatch(openflow.IPDst(netip.MustParsePrefix(s))), Actions: actions}
	}
	other := ip("10.0.0.0/8", openflow.Output(1))
	other.Priority = 6
	tests := []struct {
		name string
		a, b openflow.Flow
		want int
	}{
		{"nested", ip("10.0.0.0/8", openflow.Output(1)), ip("10.1.0.0/16"), 1},
		{"apart", ip("10.0.0.0/16", openflow.Output(1)), ip("10.1.0.0/16"), 0},
		{"same effect", ip("10.0.0.0/8"), ip("10.1.0.0/16"), 0},
		{"other priority", other, ip("10.1.0.0/16"), 0},
		{"other family", ip("10.0.0.0/8", openflow.Output(1)), ip("fd00::/8"), 0},
		{"conjunctions", ip("10.0.0.0/8", openflow.Conjunction(1, 1, 2)), ip("10.1.0.0/16", openflow.Conjunction(2, 1, 2)), 0},
	}
	for _, tt := range tests {
		fake := NewFake()
		if err := fake.Bundle(t.Context(), []openflow.Message{openflow.AddFlow(tt.a), openflow.AddFlow(tt.b)}); err != nil {
			t.Fatal(err)
		}
		if got := fake.Overlaps(); len(got) != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
