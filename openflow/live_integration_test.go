// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/ovstest"
)

// liveBridge connects to bridge br0 of a new Open vSwitch, with what the golden flows need:
// groups, meters, tunnel options.
func liveBridge(t *testing.T) (*Conn, *ovstest.OVS, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	drop := []MeterBand{{Type: MeterDrop, Rate: 1000}}
	err = c.Do(ctx, []Message{
		&TLVTableMod{Command: TLVAdd, Mappings: []TLVMapping{{0xffff, 0, 4, 0}, {0xffff, 1, 8, 1}}},
		AddGroup(Group{ID: 7, Type: GroupAll, Buckets: []Bucket{{Actions: []Action{Output(3)}}}}),
		&MeterMod{MeterAdd, Meter{256, MeterPktps, drop}},
		&MeterMod{MeterAdd, Meter{5, MeterPktps, drop}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, ovs, ctx
}

// TestLiveDumpIsWhatWasSent adds every flow of the golden files to a real Open vSwitch and
// compares what it dumps.
func TestLiveDumpIsWhatWasSent(t *testing.T) {
	c, _, ctx := liveBridge(t)
	sent := map[uint16]Flow{}
	for _, file := range []string{"matches", "actions"} {
		for _, g := range readGolden(t, file) {
			_, m, err := Decode(g.wire)
			if err != nil {
				t.Fatal(err)
			}
			if m := m.(*FlowMod); m.Command == FlowAdd {
				f := m.Flow
				if f.Match.Validate() == nil && f.Validate() != nil {
					continue // dp_hash, recirc_id
				}
				f.Priority = uint16(len(sent) + 1)
				sent[f.Priority] = f
				if err := c.Do(ctx, []Message{AddFlow(f)}); err != nil {
					t.Errorf("%s: %v", g.input, err)
				}
			}
		}
	}
	compareDump(t, c, ctx, sent)
}

// compareDump compares what the switch dumps with what was sent, by priority.
func compareDump(t *testing.T, c *Conn, ctx context.Context, sent map[uint16]Flow) {
	got, err := c.Flows(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		want := sent[d.Flow.Priority]
		if !d.Flow.Equal(&want) {
			t.Errorf("sent   %s\ndumped %s", want.String(), d.Flow.String())
		}
		delete(sent, d.Flow.Priority)
	}
	for _, f := range sent {
		t.Errorf("not dumped: %s", f.String())
	}
}

// TestLiveGeneratedFlows does the same with generated flows, and checks that the switch
// accepts all that Validate accepts.
func TestLiveGeneratedFlows(t *testing.T) {
	c, _, ctx := liveBridge(t)
	gen := rapid.Custom(genFlow)
	sent := map[uint16]Flow{}
	for i := range 3000 {
		f := gen.Example(i)
		f.Priority = uint16(i + 1)
		f.IdleTimeout |= 0x4000 // not to expire during the test
		f.HardTimeout |= 0x4000
		if err := c.Do(ctx, []Message{AddFlow(f)}); err != nil {
			t.Errorf("%v: %s", err, f.String())
			continue
		}
		sent[f.Priority] = f
	}
	compareDump(t, c, ctx, sent)
}

// TestLiveRefusals checks that the switch refuses what Validate refuses.
func TestLiveRefusals(t *testing.T) {
	c, _, ctx := liveBridge(t)
	for _, tt := range badFlows {
		if err := tt.flow.Validate(); err == nil {
			t.Errorf("%s: Validate accepts %s", tt.name, tt.flow.String())
		}
		if err := c.Do(ctx, []Message{AddFlow(tt.flow)}); err == nil && !tt.ours {
			t.Errorf("%s: the switch accepts %s", tt.name, tt.flow.String())
		} else if err != nil && tt.ours {
			t.Errorf("%s: the switch refuses too: %v", tt.name, err)
		} else if err != nil {
			t.Logf("%s: %v", tt.name, err)
		}
	}
}

// TestLiveGroupsAndMeters compares what a real Open vSwitch dumps with what was sent.
func TestLiveGroupsAndMeters(t *testing.T) {
	c, _, ctx := liveBridge(t)
	if err := c.Do(ctx, []Message{DeleteGroup(GroupAllGroups), &MeterMod{MeterDelete, Meter{ID: MeterAll}}}); err != nil {
		t.Fatal(err)
	}
	to := func(port uint32) []Action { return []Action{Output(port)} }
	groups := map[uint32]Group{}
	for _, g := range []Group{
		{Type: GroupAll, Buckets: []Bucket{{Actions: to(1)}, {Actions: to(2)}}},
		{Type: GroupAll},
		{Type: GroupSelect, Buckets: []Bucket{{Weight: 1, Actions: to(1)}, {Weight: 100, Actions: to(2)}, {Actions: to(3)}}},
		{Type: GroupSelect, SelectionMethod: "dp_hash", Buckets: []Bucket{{ID: 7, Weight: 1, Actions: to(1)}}},
		{Type: GroupSelect, SelectionMethod: "hash", SelectionParam: 5,
			SelectionFields: HashOn(FieldTCPSrc, FieldIPv4Dst, FieldIPv4Src, FieldIPProto), Buckets: []Bucket{{Weight: 1}}},
		{Type: GroupIndirect, Buckets: []Bucket{{Actions: []Action{SetField(FieldReg0.Value(1)), Resubmit(5)}}}},
		{Type: GroupFastFailover, Buckets: []Bucket{{WatchPort: 1, Actions: to(1)}, {WatchGroup: 1, Actions: []Action{ToGroup(1)}}}},
	} {
		g.ID = uint32(len(groups) + 1)
		groups[g.ID] = g
		if err := c.Do(ctx, []Message{AddGroup(g)}); err != nil {
			t.Errorf("%s: %v", g.String(), err)
		}
	}
	dumped, err := c.Groups(ctx)
	if err != nil || len(dumped) != len(groups) {
		t.Errorf("%d groups dumped, %v", len(dumped), err)
	}
	for _, got := range dumped {
		if want := groups[got.ID]; !want.Equal(&got) {
			t.Errorf("sent   %s\ndumped %s", want.String(), got.String())
		}
	}

	meters := map[uint32]Meter{}
	for _, m := range []Meter{
		{Flags: MeterKbps, Bands: []MeterBand{{Type: MeterDrop, Rate: 1000}}},
		{Flags: MeterPktps | MeterBurst, Bands: []MeterBand{{Type: MeterDrop, Rate: 100, Burst: 50}}},
		{Flags: MeterPktps | MeterCount, Bands: []MeterBand{{Type: MeterDrop, Rate: 100}}},
		{Flags: MeterPktps | MeterBurst | MeterCount, Bands: []MeterBand{{Type: MeterDrop, Rate: 100, Burst: 5}}},
	} {
		m.ID = uint32(len(meters) + 1)
		meters[m.ID] = m
		if err := c.Do(ctx, []Message{&MeterMod{MeterAdd, m}}); err != nil {
			t.Errorf("%s: %v", m.String(), err)
		}
	}
	all, err := c.Meters(ctx)
	if err != nil || len(all) != len(meters) {
		t.Errorf("%d meters dumped, %v", len(all), err)
	}
	for _, got := range all {
		if want := meters[got.ID]; !want.Equal(&got) {
			t.Errorf("sent   %s\ndumped %s", want.String(), got.String())
		}
	}
}

// TestLiveAccepts sends what has no answer of its own and no effect that a dump shows.
func TestLiveAccepts(t *testing.T) {
	c, _, ctx := liveBridge(t)
	bucket := func(id uint32) Group { return Group{ID: 7, Buckets: []Bucket{{ID: id, Actions: []Action{Output(id)}}}} }
	for _, m := range []Message{
		&SetAsync{[]AsyncMask{{AsyncPacketIn, 7}, {AsyncPacketIn | AsyncPrimary, 7}, {AsyncFlowRemoved | AsyncPrimary, 0xf},
			{AsyncPortStatus | AsyncPrimary, 7}}},
		&SetControllerID{5}, &SetPacketInFormat{PacketInNXT2}, &SetConfig{SwitchConfig{MissSendLen: 128}},
		&CTFlushZone{7}, &CTFlush{Proto: IPProtoICMP, Orig: CTTuple{Src: tenOne, ICMPID: 5, ICMPType: 8}},
		&GroupMod{Command: GroupInsertBucket, Group: bucket(9), BucketID: BucketLast},
		&GroupMod{Command: GroupInsertBucket, Group: bucket(8), BucketID: BucketFirst},
		&GroupMod{Command: GroupRemoveBucket, Group: Group{ID: 7}, BucketID: 9},
		&GroupMod{Command: GroupModify, Group: bucket(3)},
		&GroupMod{Command: GroupAddOrModify, Group: bucket(4)},
		&MeterMod{MeterModify, Meter{5, MeterPktps, []MeterBand{{Type: MeterDrop, Rate: 7}}}},
		AddFlow(Flow{Match: ipMatch}),
		&FlowMod{Command: FlowModify, Flow: Flow{Match: ipMatch, Actions: []Action{Output(1)}, Cookie: 1}, CookieMask: 1},
		&FlowMod{Command: FlowModifyStrict, Flow: Flow{Match: ipMatch, Actions: []Action{Output(1)}}},
		&FlowMod{Command: FlowDelete, Flow: Flow{Table: TableAll}, OutPort: 1, OutGroup: 7},
		DeleteFlow(Flow{Match: ipMatch}), DeleteAllFlows(), DeleteGroup(7),
		&TLVTableMod{Command: TLVDelete, Mappings: []TLVMapping{{0xffff, 1, 8, 1}}}, &TLVTableMod{Command: TLVClear},
	} {
		if err := c.Do(ctx, []Message{m}); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
