// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"strings"
	"testing"
)

var (
	ten    = netip.MustParsePrefix("10.0.0.0/8")
	tenOne = netip.MustParseAddr("10.0.0.1")
	fdOne  = netip.MustParseAddr("fd00::1")
)

// badFlows are flows that Validate refuses, with a part of the error. Those marked as ours
// a switch accepts, though they make no sense.
var badFlows = []struct {
	name string
	flow Flow
	want string
	ours bool
}{
	{name: "port without a protocol", want: "nw_proto 0x6",
		flow: Flow{Match: NewMatch(FieldTCPDst.Value(80), EthType(EthTypeIPv4), IPProto(IPProtoUDP))}},
	{name: "port without an IP version", want: "eth_type 0x800 or 0x86dd",
		flow: Flow{Match: NewMatch(FieldTCPDst.Value(80))}},
	{name: "two families", want: "ipv6_dst needs eth_type 0x86dd",
		flow: Flow{Match: NewMatch(IPSrc(tenOne), IPDst(fdOne))}},
	{name: "neighbour target without a type", want: "nd_target needs icmpv6_type 0x87 or 0x88",
		flow: Flow{Match: NewMatch(NDTarget(fdOne))}},
	{name: "conntrack addresses of what may be invalid", want: "ct_state",
		flow: Flow{Match: NewMatch(CTIPSrc(tenOne), CTState(CTTrk, 0))}},
	{name: "conntrack port without protocol", want: "ct_nw_proto", ours: true,
		flow: Flow{Match: NewMatch(CTL4Dst(80), CTState(CTEst, 0))}},
	{name: "conntrack address of the other family", want: "eth_type 0x800",
		flow: Flow{Match: NewMatch(CTIPSrc(tenOne), CTState(CTEst, 0), EthType(EthTypeIPv6))}},
	{name: "priority of no tag", want: "vlan_vid",
		flow: Flow{Match: NewMatch(NoVLAN(), FieldVLANPCP.Value(3))}},
	{name: "contradiction", want: "given twice",
		flow: Flow{Match: NewMatch(FieldReg0.Bits(0, 3).Value(1), FieldReg0.Bits(2, 5).Value(3))}},
	{name: "value too large", want: "0x1000 does not fit into the 8 bits of nw_proto",
		flow: Flow{Match: NewMatch(EthType(EthTypeIPv4), FieldIPProto.Value(0x1000))}},
	{name: "value too large for its bits", want: "bits",
		flow: Flow{Match: NewMatch(FieldReg1.Bits(0, 23).Value(1 << 24))}},
	{name: "port of a protocol without ports", want: "without a field",
		flow: Flow{Match: NewMatch(EthType(EthTypeIPv4), L4Dst(IPProtoICMP, 80))}},
	{name: "address of the wrong family", want: "without a field",
		flow: Flow{Match: NewMatch(ARPTPA(fdOne))}},
	{name: "mask on a field that takes none", want: "takes no mask",
		flow: Flow{Match: NewMatch(EthType(EthTypeIPv4), FieldIPProto.Masked(6, 0xf))}},
	{name: "the switch's own field", want: "the switch's own", flow: Flow{Match: NewMatch(FieldRecircID.Value(1))}},

	{name: "table", want: "table 254", flow: Flow{Table: 254}},
	{name: "goto backwards", want: "forward", flow: Flow{Table: 5, Goto: 5}},
	{name: "set without prerequisite", want: "ip_dst needs eth_type 0x800",
		flow: Flow{Actions: []Action{SetField(IPDst(tenOne))}}},
	{name: "set what cannot be set", want: "eth_type cannot be changed",
		flow: Flow{Actions: []Action{SetField(EthType(5))}}},
	{name: "set ct_mark outside of ct", want: "only be changed within ct",
		flow: Flow{Actions: []Action{SetField(CTMark(1, 1))}}},
	{name: "set another field within ct", want: "cannot be changed within ct",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, Exec: []Action{SetField(FieldReg0.Value(1))}}}}},
	{name: "set a value too large", want: "does not fit",
		flow: Flow{Match: ipMatch, Actions: []Action{SetField(FieldIPDSCP.Value(64))}}},
	{name: "set nothing", want: "without a field",
		flow: Flow{Match: ipMatch, Actions: []Action{SetField(NDTarget(tenOne))}}},
	{name: "move of different widths", want: "32 bits into 16", ours: true,
		flow: Flow{Actions: []Action{Move(FieldReg0.All(), FieldReg1.Bits(0, 15))}}},
	{name: "move beyond the field", want: "not bits",
		flow: Flow{Actions: []Action{Move(Subfield{FieldReg0, 20, 16}, FieldReg1.Bits(0, 15))}}},
	{name: "ttl without IP", want: "eth_type 0x800 or 0x86dd", flow: Flow{Actions: []Action{DecTTL()}}},
	{name: "ct without IP", want: "eth_type 0x800 or 0x86dd", flow: Flow{Actions: []Action{CT{Commit: true}}}},
	{name: "commit of what is invalid", want: "invalid packet",
		flow: Flow{Match: ipMatch.With(CTState(CTInv, 0)), Actions: []Action{CT{Commit: true}}}},
	{name: "exec without commit", want: "commit",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Exec: []Action{SetField(CTMark(1, 1))}}}}},
	{name: "exec of output", want: "only set_field and move",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, Exec: []Action{Output(1)}}}}},
	{name: "nat of both", want: "both",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{SNAT: true, DNAT: true, AddrMin: tenOne}}}}},
	{name: "nat of the other family", want: "eth_type 0x86dd",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{SNAT: true, AddrMin: fdOne}}}}},
	{name: "nat range backwards", want: "no range",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{SNAT: true, AddrMin: tenOne, AddrMax: ten.Addr()}}}}},
	{name: "nat ports backwards", want: "no range",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{SNAT: true, AddrMin: tenOne, PortMin: 9, PortMax: 8}}}}},
	{name: "nat ports without address", want: "needs an address",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{SNAT: true, PortMin: 9}}}}},
	{name: "zone of 32 bits", want: "16 bits",
		flow: Flow{Match: ipMatch, Actions: []Action{CT{ZoneFrom: FieldReg0.All()}}}},
	{name: "resubmit ct of what may be invalid", want: "ct_state",
		flow: Flow{Match: NewMatch(EthType(EthTypeIPv4), CTState(CTTrk, 0)), Actions: []Action{ResubmitCT(5)}}},
	{name: "conjunction of one", want: "2 to 64", flow: Flow{Actions: []Action{Conjunction(1, 1, 1)}}},
	{name: "conjunction with output", want: "other actions", flow: Flow{Actions: []Action{Conjunction(1, 1, 2), Output(1)}}},
	{name: "output to no port", want: "port 0", ours: true, flow: Flow{Actions: []Action{Output(0)}}},
	{name: "output to a port that is too high", want: "port 65280", flow: Flow{Actions: []Action{Output(0xff00)}}},
	{name: "output to any", want: "port 4294967295", flow: Flow{Actions: []Action{Output(PortAny)}}},
	{name: "pop of no tag", want: "tag is present", flow: Flow{Actions: []Action{PopVLAN()}}},
	{name: "group too high", want: "greatest group", flow: Flow{Actions: []Action{ToGroup(GroupNone)}}},
	{name: "meter 0", want: "count from 1", flow: Flow{Actions: []Action{ToMeter(0)}}},
	{name: "truncation", want: "Ethernet header", flow: Flow{Actions: []Action{OutputTrunc(1, 13)}}},
	{name: "learn into the switch's table", want: "table 255", flow: Flow{Actions: []Action{Learn{Table: 255}}}},
	{name: "learn a mask with gaps", want: "gaps", flow: Flow{Actions: []Action{Learn{
		Specs: []LearnSpec{LearnMatchValue(FieldReg0.Masked(5, 5))}}}}},
	{name: "learn of different widths", want: "32 bits into 16", ours: true, flow: Flow{Actions: []Action{Learn{
		Specs: []LearnSpec{LearnMatchField(FieldReg0.Bits(0, 15), FieldReg1.All())}}}}},
	{name: "learn from a field that is not there", want: "ip_src needs", flow: Flow{Actions: []Action{Learn{
		Specs: []LearnSpec{LearnMatchField(FieldReg0.All(), FieldIPv4Src.All())}}}}},
	{name: "multipath into too few bits", want: "do not fit", flow: Flow{Actions: []Action{MultipathAction{
		Links: 5, Dest: FieldReg0.Bits(0, 1)}}}},
	{name: "check_pkt_larger into two bits", want: "2 bits", ours: true,
		flow: Flow{Actions: []Action{CheckPktLarger(1500, FieldReg0.Bits(0, 1))}}},
	{name: "within clone", want: "ip_dst needs", flow: Flow{Actions: []Action{Clone(SetField(IPDst(tenOne)))}}},
}

var ipMatch = NewMatch(EthType(EthTypeIPv4))

func TestValidateRefuses(t *testing.T) {
	for _, tt := range badFlows {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.flow.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want an error with %q", tt.flow.String(), err, tt.want)
			}
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, f := range []Flow{
		{},
		{Match: NewMatch(VLANVID(5)), Actions: []Action{SetField(FieldVLANPCP.Value(1)), PopVLAN()}},
		{Actions: []Action{PushVLAN(EthTypeVLAN), SetField(VLANVID(7)), Output(1)}},
		{Match: NewMatch(EthType(EthTypeIPv6), L4Dst(IPProtoTCP, 80)), Actions: []Action{DecTTL(), Output(1)}},
		{Match: NewMatch(NDTarget(fdOne), ICMPv6Type(135))},
		{Match: NewMatch(FieldReg0.Bits(0, 3).Value(1), FieldReg0.Bits(4, 4).Value(1))},
		{Match: ipMatch, Actions: []Action{CT{Commit: true, NAT: &NAT{}, Exec: []Action{SetField(CTMark(1, 1))}}}},
	} {
		if err := f.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestGroupValidate(t *testing.T) {
	buckets := func(ids ...uint32) (b []Bucket) {
		for _, id := range ids {
			b = append(b, Bucket{ID: id, Actions: []Action{Resubmit(1)}})
		}
		return b
	}
	tests := []struct {
		name  string
		group Group
		want  string // of the error
	}{
		{"no bucket", Group{ID: 1}, ""},
		{"numbered by position", Group{Buckets: buckets(0, 0, 0)}, ""},
		{"the greatest numbers", Group{ID: GroupMax, Buckets: buckets(BucketMax)}, ""},
		{"group number", Group{ID: GroupMax + 1}, "the greatest number"},
		{"bucket number", Group{Buckets: buckets(BucketMax + 1)}, "the greatest is"},
		{"bucket number twice", Group{Buckets: buckets(1, 2, 1)}, "bucket 2: its number 1 is given twice"},
		{"prerequisites stay open", Group{Buckets: []Bucket{{Actions: []Action{SetField(IPDst(tenOne)), Resubmit(5)}}}}, ""},
		{"value", Group{ID: 1, Buckets: []Bucket{{Actions: []Action{SetField(FieldIPDSCP.Value(64))}}}}, "group 1: bucket 0: set_field"},
		{"action", Group{Buckets: []Bucket{{Actions: []Action{ToMeter(0)}}}}, "meters count from 1"},
		{"method", Group{Type: GroupSelect, SelectionMethod: "best"}, "neither hash nor dp_hash"},
		{"method of group all", Group{SelectionMethod: "hash"}, "only select groups"},
		{"fields of dp_hash", Group{Type: GroupSelect, SelectionMethod: "dp_hash", SelectionFields: HashOn(FieldIPv4Src)}, "no fields"},
		{"long", Group{Buckets: buckets(make([]uint32, 2700)...)}, ""},
		{"too long", Group{Buckets: buckets(make([]uint32, 2800)...)}, "its 2800 buckets are 67200 bytes"},
	}
	for _, tt := range tests {
		err := tt.group.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestGroupEqual(t *testing.T) {
	group := func(typ GroupType, ids ...uint32) *Group {
		g := &Group{ID: 1, Type: typ}
		for _, id := range ids {
			g.Buckets = append(g.Buckets, Bucket{ID: id, Weight: uint16(id), Actions: []Action{Output(id + 1)}})
		}
		return g
	}
	other := group(GroupSelect, 1, 2)
	other.Buckets[1].Weight = 9
	tests := []struct {
		name string
		a, b *Group
		want bool
	}{
		{"the same", group(GroupSelect, 1, 2), group(GroupSelect, 1, 2), true},
		{"other order", group(GroupSelect, 1, 2, 3), group(GroupSelect, 3, 1, 2), true},
		{"other order, all", group(GroupAll, 1, 2), group(GroupAll, 2, 1), true},
		{"other order, failover", group(GroupFastFailover, 1, 2), group(GroupFastFailover, 2, 1), false},
		{"other bucket", group(GroupSelect, 1, 2), group(GroupSelect, 1, 3), false},
		{"other content", group(GroupSelect, 2, 1), other, false},
		{"fewer", group(GroupSelect, 1, 2), group(GroupSelect, 1), false},
		{"other type", group(GroupSelect, 1, 2), group(GroupAll, 1, 2), false},
		{"by position, other order", &Group{Buckets: []Bucket{{}, {Weight: 1}}}, &Group{Buckets: []Bucket{{Weight: 1}, {}}}, false},
	}
	for _, tt := range tests {
		if got := tt.a.Equal(tt.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
