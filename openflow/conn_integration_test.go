// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow_test

import (
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// dial connects to bridge br0 of a new Open vSwitch.
func dial(t testing.TB, opts openflow.ConnOptions) (*openflow.Conn, *ovstest.OVS, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	c, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, ovs, ctx
}

func ofctl(t testing.TB, ovs *ovstest.OVS, args ...string) string {
	t.Helper()
	out, err := ovs.Ofctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLiveQuestions(t *testing.T) {
	c, ovs, ctx := dial(t, openflow.ConnOptions{})
	if f, err := c.Features(ctx); err != nil || f.NTables != 254 || f.DatapathID == 0 {
		t.Errorf("Features = %+v, %v", f, err)
	}
	if d, err := c.Desc(ctx); err != nil || d.Hardware != "Open vSwitch" {
		t.Errorf("Desc = %+v, %v", d, err)
	}
	if _, err := ovs.Vsctl(ctx, "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=internal", "ofport_request=7"); err != nil {
		t.Fatal(err)
	}
	ports, err := c.Ports(ctx)
	if err != nil || len(ports) != 2 || !slices.ContainsFunc(ports, func(p openflow.Port) bool { return p.No == 7 && p.Name == "p1" }) {
		t.Errorf("Ports = %+v, %v", ports, err)
	}
	if s, err := c.PortStats(ctx); err != nil || len(s) != 2 {
		t.Errorf("PortStats = %+v, %v", s, err)
	}
	if s, err := c.TableStats(ctx); err != nil || len(s) != 254 {
		t.Errorf("%d TableStats, %v", len(s), err)
	}
}

func TestLiveBundle(t *testing.T) {
	c, ovs, ctx := dial(t, openflow.ConnOptions{})
	group := openflow.Group{ID: 7, Type: openflow.GroupSelect, SelectionMethod: "dp_hash", Buckets: []openflow.Bucket{
		{ID: 0, Weight: 100, Actions: []openflow.Action{openflow.Resubmit(9)}},
	}}
	flow := openflow.Flow{
		Table: 4, Priority: 300, Cookie: 0xc0e0,
		Match:   openflow.NewMatch(openflow.IPDst(netip.MustParsePrefix("10.96.0.0/16"))),
		Actions: []openflow.Action{openflow.SetField(openflow.Reg(3).Value(5)), openflow.ToGroup(7)},
	}
	good := []openflow.Message{&openflow.GroupMod{Command: openflow.GroupAdd, Group: group}, openflow.AddFlow(flow)}
	if err := c.Bundle(ctx, good); err != nil {
		t.Fatal(err)
	}
	flows, err := c.Flows(ctx)
	if err != nil || len(flows) != 1 || !flows[0].Flow.Equal(&flow) {
		t.Errorf("Flows = %v, %v", flows, err)
	}
	groups, err := c.Groups(ctx)
	if err != nil || len(groups) != 1 || !groups[0].Equal(&group) {
		t.Errorf("Groups = %v, %v", groups, err)
	}
	if s, err := c.GroupStats(ctx); err != nil || len(s) != 1 || s[0].RefCount != 1 {
		t.Errorf("GroupStats = %+v, %v", s, err)
	}

	before := ofctl(t, ovs, "--no-stats", "dump-flows", "br0")
	for _, tt := range []struct {
		name string
		bad  openflow.Flow
	}{
		// Found when the message is added to the bundle.
		{"goto back", openflow.Flow{Table: 4, Goto: 4}},
		// Found when the bundle is committed.
		{"missing group", openflow.Flow{Actions: []openflow.Action{openflow.ToGroup(8)}}},
	} {
		other := flow
		other.Priority = 301
		err := c.Bundle(ctx, []openflow.Message{openflow.AddFlow(other), openflow.DeleteFlow(flow), openflow.AddFlow(tt.bad), openflow.AddFlow(flow)})
		var refused *openflow.MessageError
		if !errors.As(err, &refused) || refused.Index != 2 {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if diff := cmp.Diff(before, ofctl(t, ovs, "--no-stats", "dump-flows", "br0")); diff != "" {
			t.Errorf("%s: the refused bundle left traces: %s", tt.name, diff)
		}
	}
}

// Bundles, dumps and questions at once on one connection keep apart: each gets
// its own answer and its own error.
func TestLiveMuchAtOnce(t *testing.T) {
	c, _, ctx := dial(t, openflow.ConnOptions{})
	const workers, rounds, size = 8, 10, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				msgs := make([]openflow.Message, size)
				for i := range msgs {
					msgs[i] = openflow.AddFlow(openflow.Flow{Table: uint8(w), Priority: uint16(i), Cookie: uint64(r)})
				}
				bad := -1
				if r%2 == 1 {
					bad = (w + 7*r) % size
					msgs[bad] = openflow.AddFlow(openflow.Flow{Table: uint8(w), Actions: []openflow.Action{openflow.ToGroup(99)}})
				}
				var refused *openflow.MessageError
				err := c.Bundle(ctx, msgs)
				if bad < 0 && err != nil || bad >= 0 && (!errors.As(err, &refused) || refused.Index != bad) {
					t.Errorf("worker %d round %d: error %v, want one about message %d", w, r, err, bad)
				}
				flows, err := c.FlowsOf(ctx, &openflow.FlowDescRequest{Table: uint8(w)})
				if err != nil || len(flows) != size || flows[0].Flow.Cookie != uint64(r-r%2) {
					t.Errorf("worker %d round %d: %d flows, %v", w, r, len(flows), err)
				}
				if f, err := c.Features(ctx); err != nil || f.NTables != 254 {
					t.Errorf("Features = %+v, %v", f, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestLiveMeters(t *testing.T) {
	c, _, ctx := dial(t, openflow.ConnOptions{})
	meter := openflow.Meter{ID: 3, Flags: openflow.MeterPktps, Bands: []openflow.MeterBand{{Type: openflow.MeterDrop, Rate: 100}}}
	add := &openflow.MeterMod{Command: openflow.MeterAdd, Meter: meter}
	if err := c.Do(ctx, []openflow.Message{add}); err != nil {
		t.Fatal(err)
	}
	var refused *openflow.MessageError
	if err := c.Do(ctx, []openflow.Message{add}); !errors.As(err, &refused) || refused.Index != 0 {
		t.Errorf("the same meter again: %v", err)
	}
	meters, err := c.Meters(ctx)
	if err != nil || len(meters) != 1 || !meters[0].Equal(&meter) {
		t.Errorf("Meters = %+v, %v", meters, err)
	}
	if s, err := c.MeterStats(ctx); err != nil || len(s) != 1 || s[0].Meter != 3 {
		t.Errorf("MeterStats = %+v, %v", s, err)
	}
}

// arp is an ARP request in an Ethernet frame.
var arp, _ = hex.DecodeString("ffffffffffff0a0000000001" + "0806" + "00010800060400010a00000000010a0000010000000000000a000002")

// A packet goes to the controller, which lets the pipeline go on.
func TestLivePacketInAndResume(t *testing.T) {
	in := make(chan *openflow.PacketIn2, 10)
	c, ovs, ctx := dial(t, openflow.ConnOptions{Async: true, ControllerID: 5, Handler: func(m openflow.Message) {
		if p, ok := m.(*openflow.PacketIn2); ok {
			in <- p
		}
	}})
	err := c.Bundle(ctx, []openflow.Message{
		openflow.AddFlow(openflow.Flow{Cookie: 9, Actions: []openflow.Action{
			openflow.SetField(openflow.Reg(2).Value(0x77)),
			openflow.Controller{ID: 5, MaxLen: 0xffff, Userdata: "why", Pause: true},
			openflow.Resubmit(3),
		}}),
		openflow.AddFlow(openflow.Flow{Table: 3, Match: openflow.NewMatch(openflow.Reg(2).Value(0x78))}),
	})
	if err != nil {
		t.Fatal(err)
	}
	out := &openflow.PacketOut{InPort: openflow.PortLocal, Actions: []openflow.Action{openflow.Output(openflow.PortTable)}, Packet: arp}
	if err := c.Do(ctx, []openflow.Message{out}); err != nil {
		t.Fatal(err)
	}
	var p *openflow.PacketIn2
	select {
	case p = <-in:
	case <-ctx.Done():
		t.Fatal("no packet-in")
	}
	if v, _ := p.Metadata.Get(openflow.Reg(2).Bits(0, 31)); string(p.Userdata) != "why" || !slices.Equal(p.Packet, arp) || v != 0x77 || len(p.Continuation) == 0 {
		t.Errorf("packet-in %+v", p)
	}
	fields := slices.DeleteFunc(p.Metadata.Fields(), func(v openflow.FieldValue) bool { return v.Field() == openflow.XReg(1) })
	p.Metadata = openflow.NewMatch(append(fields, openflow.Reg(2).Value(0x78))...)
	if err := c.Do(ctx, []openflow.Message{&openflow.Resume{PacketIn: *p}}); err != nil {
		t.Fatal(err)
	}
	if got := ofctl(t, ovs, "dump-flows", "br0", "table=3"); !strings.Contains(got, "n_packets=1,") {
		t.Errorf("the pipeline did not go on: %s", got)
	}
}

func TestLiveNotices(t *testing.T) {
	notices := make(chan openflow.Message, 100)
	c, ovs, ctx := dial(t, openflow.ConnOptions{Async: true, Handler: func(m openflow.Message) { notices <- m }})
	next := func() openflow.Message {
		t.Helper()
		select {
		case m := <-notices:
			return m
		case <-ctx.Done():
			t.Fatal("nothing came")
			return nil
		}
	}
	if _, err := ovs.Vsctl(ctx, "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=internal"); err != nil {
		t.Fatal(err)
	}
	if p, ok := next().(*openflow.PortStatus); !ok || p.Reason != openflow.PortAdded || p.Port.Name != "p1" {
		t.Errorf("after a port: %+v", p)
	}
	flow := openflow.Flow{Cookie: 3, Flags: openflow.FlowSendFlowRem}
	if err := c.Do(ctx, []openflow.Message{openflow.AddFlow(flow), openflow.DeleteFlow(flow)}); err != nil {
		t.Fatal(err)
	}
	for {
		if m, ok := next().(*openflow.FlowRemoved); ok {
			if m.Reason != openflow.RemovedDelete || m.Flow.Cookie != 3 {
				t.Errorf("%+v", m)
			}
			break
		}
	}
	if err := c.Send(ctx, openflow.AddFlow(openflow.Flow{Table: 4, Goto: 3})); err != nil {
		t.Fatal(err)
	}
	for {
		if _, ok := next().(*openflow.Error); ok {
			break
		}
	}
}

func TestLiveConntrackFlushAndTLVs(t *testing.T) {
	c, _, ctx := dial(t, openflow.ConnOptions{})
	zone := uint16(7)
	err := c.Do(ctx, []openflow.Message{
		&openflow.CTFlushZone{Zone: 7},
		&openflow.CTFlush{Zone: &zone, Proto: openflow.IPProtoUDP, Orig: openflow.CTTuple{Dst: netip.MustParseAddr("10.0.0.1"), DstPort: 53}},
		&openflow.TLVTableMod{Command: openflow.TLVAdd, Mappings: []openflow.TLVMapping{{Class: 0xffff, Type: 1, Length: 4, Index: 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tlv, err := c.TLVTable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]openflow.TLVMapping{{Class: 0xffff, Type: 1, Length: 4, Index: 2}}, tlv.Mappings); diff != "" {
		t.Error(diff)
	}
}

// A bridge that does not speak OpenFlow 1.5.
func TestLiveOldVersion(t *testing.T) {
	_, ovs, ctx := dial(t, openflow.ConnOptions{})
	if _, err := ovs.Vsctl(ctx, "set", "bridge", "br0", "protocols=OpenFlow13"); err != nil {
		t.Fatal(err)
	}
	c, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), openflow.ConnOptions{})
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "add OpenFlow15 to the bridge's protocols") {
		t.Errorf("error %v", err)
	}
}
