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
