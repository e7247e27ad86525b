// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"net/netip"

	"pgregory.net/rapid"

	"coelan.io/coelan/openflow"
)

// The rules of these tests: few enough keys that owners get into each other's
// way, and contents of all kinds.

var matches = []openflow.Match{
	openflow.NewMatch(),
	openflow.NewMatch(openflow.InPort(16)),
	openflow.NewMatch(openflow.InPort(16), openflow.IPDst(netip.MustParsePrefix("10.0.0.0/24"))),
	openflow.NewMatch(openflow.IPDst(netip.MustParseAddr("fd00::1"))),
	openflow.NewMatch(openflow.EthType(openflow.EthTypeARP), openflow.ARPOp(1)),
	openflow.NewMatch(openflow.Reg(1).Value(7), openflow.Reg(2).Masked(0x10, 0xf0)),
	openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4), openflow.L4Dst(openflow.IPProtoTCP, 80)),
}

func genFlow(t *rapid.T, groups []openflow.Group, meters []openflow.Meter) openflow.Flow {
	f := openflow.Flow{
		Table:    rapid.SampledFrom([]uint8{0, 5, 10}).Draw(t, "table"),
		Priority: rapid.SampledFrom([]uint16{100, 200}).Draw(t, "priority"),
		Match:    rapid.SampledFrom(matches).Draw(t, "match"),
		Cookie:   rapid.Uint64Range(0, 1).Draw(t, "cookie"),
	}
	switch rapid.IntRange(0, 5).Draw(t, "actions") {
	case 0:
	case 1:
		f.Actions = []openflow.Action{openflow.SetField(openflow.Reg(3).Value(uint64(rapid.IntRange(1, 3).Draw(t, "value"))))}
		f.Goto = 20
	case 2:
		f.Actions = []openflow.Action{openflow.Output(16), openflow.Resubmit(20)}
	case 3:
		f.Actions = []openflow.Action{openflow.OutputField(openflow.Reg(3).Bits(0, 15))}
	case 4:
		if len(groups) > 0 {
			f.Actions = []openflow.Action{openflow.ToGroup(groups[0].ID)}
		}
	case 5:
		if len(meters) > 0 {
			f.Actions = []openflow.Action{openflow.ToMeter(meters[0].ID), openflow.Output(16)}
		}
	}
	return f
}

// genGroup makes a group of any kind, with buckets in any order.
func genGroup(t *rapid.T, id uint32) openflow.Group {
	g := rapid.SampledFrom([]openflow.Group{
		{Type: openflow.GroupAll}, {Type: openflow.GroupSelect}, {Type: openflow.GroupFastFailover},
		{Type: openflow.GroupSelect, SelectionMethod: "dp_hash"},
		{Type: openflow.GroupSelect, SelectionMethod: "hash"},
		{Type: openflow.GroupSelect, SelectionMethod: "hash", SelectionFields: openflow.HashOn(openflow.FieldIPv4Src)},
	}).Draw(t, "kind")
	g.ID = id
	for _, n := range rapid.SliceOfNDistinct(rapid.Uint32Range(0, 9), 0, 8, rapid.ID).Draw(t, "buckets") {
		b := openflow.Bucket{ID: n, Actions: []openflow.Action{openflow.Resubmit(uint8(20 + n%3))}}
		switch g.Type {
		case openflow.GroupSelect:
			b.Weight = rapid.SampledFrom([]uint16{100, 100, 100, 50}).Draw(t, "weight")
		case openflow.GroupFastFailover:
			b.WatchPort = 16
		}
		g.Buckets = append(g.Buckets, b)
	}
	return g
}

// genRules makes the rules of one owner: no key twice, and groups that point
// at the next one.
func genRules(t *rapid.T) *Rules {
	r := &Rules{}
	for id := uint32(1); id <= 3; id++ {
		if !rapid.Bool().Draw(t, fmt.Sprintf("group %d", id)) {
			continue
		}
		g := genGroup(t, id)
		if n := len(r.Groups); n > 0 && len(g.Buckets) > 0 {
			g.Buckets[0].Actions = []openflow.Action{openflow.ToGroup(r.Groups[n-1].ID)}
		}
		r.Groups = append(r.Groups, g)
	}
	if rapid.Bool().Draw(t, "meter") {
		r.Meters = append(r.Meters, openflow.Meter{
			ID:    uint32(rapid.IntRange(1, 2).Draw(t, "id")),
			Flags: rapid.SampledFrom([]openflow.MeterFlags{openflow.MeterKbps, openflow.MeterPktps | openflow.MeterBurst}).Draw(t, "flags"),
			Bands: []openflow.MeterBand{{Type: openflow.MeterDrop, Rate: uint32(rapid.IntRange(1, 2).Draw(t, "rate")), Burst: 5}},
		})
	}
	seen := map[openflow.FlowKey]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "flows") {
		f := genFlow(t, r.Groups, r.Meters)
		if !seen[f.Key()] {
			seen[f.Key()] = true
			r.Flows = append(r.Flows, f)
		}
	}
	return r
}

// tables that the rules use.
var tables = []uint8{0, 5, 10, 20, 21, 22}
