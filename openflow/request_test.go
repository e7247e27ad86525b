// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// requestCases are messages as this package's users write them, by what makes ovs-ofctl send them.
var requestCases = map[string]Message{
	"add-group SWITCH group_id=1,type=all,bucket=actions=output:1,bucket=actions=output:2": AddGroup(Group{ID: 1,
		Buckets: []Bucket{{Actions: []Action{Output(1)}}, {Actions: []Action{Output(2)}}}}),
	"add-group SWITCH group_id=2,type=select,bucket=weight=1,actions=output:1,bucket=weight=100,actions=output:2": AddGroup(Group{
		ID: 2, Type: GroupSelect, Buckets: []Bucket{
			{Weight: 1, Actions: []Action{Output(1)}}, {Weight: 100, Actions: []Action{Output(2)}}}}),
	"add-group SWITCH group_id=3,type=select,selection_method=dp_hash,bucket=weight=0,actions=set_field:10.10.0.2->ip_dst,resubmit(,9)": AddGroup(Group{
		ID: 3, Type: GroupSelect, SelectionMethod: "dp_hash", Buckets: []Bucket{
			{Actions: []Action{SetField(IPDst(addr("10.10.0.2"))), Resubmit(9)}}}}),
	"add-group SWITCH group_id=5,type=select,selection_method=hash,fields(ip_dst,ip_src,nw_proto,tcp_src,tcp_dst),bucket=weight=1,actions=output:1": AddGroup(Group{
		ID: 5, Type: GroupSelect, SelectionMethod: "hash",
		SelectionFields: HashOn(FieldIPv4Dst, FieldIPv4Src, FieldIPProto, FieldTCPSrc, FieldTCPDst),
		Buckets:         []Bucket{{Weight: 1, Actions: []Action{Output(1)}}}}),
	"add-group SWITCH group_id=6,type=indirect,bucket=actions=set_field:5->reg0,output:1": AddGroup(Group{
		ID: 6, Type: GroupIndirect, Buckets: []Bucket{{Actions: []Action{SetField(FieldReg0.Value(5)), Output(1)}}}}),
	"add-group SWITCH group_id=7,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,actions=group:2": AddGroup(Group{
		ID: 7, Type: GroupFastFailover, Buckets: []Bucket{
			{WatchPort: 1, Actions: []Action{Output(1)}}, {WatchGroup: 2, Actions: []Action{ToGroup(2)}}}}),
	"mod-group SWITCH group_id=1,type=all,bucket=actions=drop": &GroupMod{Command: GroupModify,
		Group: Group{ID: 1, Buckets: []Bucket{{}}}},
	"mod-group --may-create SWITCH group_id=1,type=all,bucket=actions=output:3": &GroupMod{Command: GroupAddOrModify,
		Group: Group{ID: 1, Buckets: []Bucket{{Actions: []Action{Output(3)}}}}},
	"insert-buckets SWITCH group_id=1,command_bucket_id=last,bucket=bucket_id:9,actions=output:9": &GroupMod{
		Command: GroupInsertBucket, BucketID: BucketLast,
		Group: Group{ID: 1, Buckets: []Bucket{{ID: 9, Actions: []Action{Output(9)}}}}},
	"remove-buckets SWITCH group_id=1,command_bucket_id=3": &GroupMod{
		Command: GroupRemoveBucket, BucketID: 3, Group: Group{ID: 1}},
	"remove-buckets SWITCH group_id=1,command_bucket_id=all": &GroupMod{
		Command: GroupRemoveBucket, BucketID: BucketAll, Group: Group{ID: 1}},
	"del-groups SWITCH group_id=1": DeleteGroup(1),
	"del-groups SWITCH":            DeleteGroup(GroupAllGroups),

	"add-meter SWITCH meter=1,kbps,band=type=drop,rate=1000": &MeterMod{MeterAdd, Meter{1, MeterKbps,
		[]MeterBand{{Type: MeterDrop, Rate: 1000}}}},
	"add-meter SWITCH meter=3,kbps,burst,bands=type=dscp_remark,rate=100,burst_size=20,prec_level=1,type=drop,rate=200,burst_size=30": &MeterMod{
		MeterAdd, Meter{3, MeterKbps | MeterBurst, []MeterBand{{MeterRemark, 100, 20, 1}, {MeterDrop, 200, 30, 0}}}},
	"del-meter SWITCH meter=1": &MeterMod{MeterDelete, Meter{ID: 1}},
	"del-meters SWITCH":        &MeterMod{MeterDelete, Meter{ID: MeterAll}},

	"packet-out SWITCH 'in_port=controller,packet=0a0000000001aabbccddeeff0806,actions=output:3'": &PacketOut{
		InPort: PortController, Packet: fromHex("0a0000000001aabbccddeeff0806"), Actions: []Action{Output(3)}},
	"packet-out SWITCH 'in_port=5,packet=0a0000000001aabbccddeeff0806,metadata=0x5,reg0=1,tun_id=7,actions=set_field:5->reg1,resubmit(,5)'": &PacketOut{
		InPort: 5, Match: NewMatch(FieldMetadata.Value(5), FieldReg0.Value(1), TunnelID(7)),
		Packet: fromHex("0a0000000001aabbccddeeff0806"), Actions: []Action{SetField(FieldReg1.Value(5)), Resubmit(5)}},
	"ct-flush SWITCH":        &CTFlush{},
	"ct-flush SWITCH zone=5": &CTFlush{Zone: zone(5)},
	"ct-flush SWITCH 'ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=6,ct_tp_src=1000,ct_tp_dst=80'": &CTFlush{
		Proto: IPProtoTCP, Orig: CTTuple{Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), SrcPort: 1000, DstPort: 80}},
	"ct-flush SWITCH zone=5 'ct_nw_dst=10.96.0.10,ct_nw_proto=17,ct_tp_dst=53'": &CTFlush{Zone: zone(5),
		Proto: IPProtoUDP, Orig: CTTuple{Dst: addr("10.96.0.10"), DstPort: 53}},
	"ct-flush SWITCH zone=5 '' 'ct_nw_src=10.10.0.2,ct_nw_proto=17,ct_tp_src=53'": &CTFlush{Zone: zone(5),
		Proto: IPProtoUDP, Reply: CTTuple{Src: addr("10.10.0.2"), SrcPort: 53}},
	"ct-flush SWITCH 'ct_ipv6_src=fd00::1,ct_nw_proto=58,icmp_id=7,icmp_type=128,icmp_code=0'": &CTFlush{
		Proto: IPProtoICMPv6, Orig: CTTuple{Src: addr("fd00::1"), ICMPID: 7, ICMPType: 128}},
	"ct-flush-zone SWITCH 7": &CTFlushZone{7},
	"add-tlv-map SWITCH {class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=8}->tun_metadata1": &TLVTableMod{
		TLVAdd, []TLVMapping{{0xffff, 0, 4, 0}, {0xffff, 1, 8, 1}}},
	"del-tlv-map SWITCH {class=0xffff,type=0,len=4}->tun_metadata0": &TLVTableMod{TLVDelete, []TLVMapping{{0xffff, 0, 4, 0}}},
	"del-tlv-map SWITCH":  &TLVTableMod{Command: TLVClear},
	"dump-tlv-map SWITCH": &TLVTableRequest{},
	"dump-flows SWITCH":   AllFlows(),
	"dump-flows SWITCH table=5,cookie=0x1/0xff,out_port=3,ip,nw_dst=10.0.0.0/8": &MultipartRequest{Body: &FlowDescRequest{
		Table: 5, Cookie: 1, CookieMask: 0xff, OutPort: 3, Match: NewMatch(IPDst(prefix("10.0.0.0/8")))}},
	"dump-groups SWITCH":        &MultipartRequest{Body: &GroupDescRequest{GroupAllGroups}},
	"dump-groups SWITCH 5":      &MultipartRequest{Body: &GroupDescRequest{5}},
	"dump-group-stats SWITCH":   &MultipartRequest{Body: &GroupStatsRequest{GroupAllGroups}},
	"dump-meters SWITCH":        &MultipartRequest{Body: &MeterConfigRequest{MeterAll}},
	"dump-meter SWITCH meter=5": &MultipartRequest{Body: &MeterConfigRequest{5}},
	"meter-stats SWITCH":        &MultipartRequest{Body: &MeterStatsRequest{MeterAll}},
	"dump-ports SWITCH":         &MultipartRequest{Body: &PortStatsRequest{PortAny}},
	"dump-ports SWITCH 5":       &MultipartRequest{Body: &PortStatsRequest{5}},
	"dump-ports-desc SWITCH":    &MultipartRequest{Body: &PortDescRequest{PortAny}},
	"dump-tables SWITCH":        &MultipartRequest{Body: &TableStatsRequest{}},
	"get-frags SWITCH":          &GetConfigRequest{},
}

func zone(n uint16) *uint16 { return &n }

func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestRequests(t *testing.T) {
	seen := 0
	for _, file := range []string{"groups", "meters", "requests"} {
		for _, c := range readGolden(t, file) {
			m := requestCases[c.input]
			if m == nil {
				continue
			}
			seen++
			b, err := AppendMessage(nil, 0, m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(hex.EncodeToString(c.wire), hex.EncodeToString(b)); diff != "" {
				t.Errorf("%s (-Open vSwitch +ours):\n%s", c.input, diff)
			}
		}
	}
	if seen != len(requestCases) {
		t.Errorf("%d cases, but %d of them are golden", len(requestCases), seen)
	}
}

// TestGroupAndMeterText compares our text form with that of ofp-print.
func TestGroupAndMeterText(t *testing.T) {
	for _, file := range []string{"groups", "meters"} {
		for _, c := range readGolden(t, file) {
			_, m, err := Decode(c.wire)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			switch m := m.(type) {
			case *GroupMod:
				if m.Command.movesBuckets() || m.Command == GroupDelete {
					continue
				}
				got = m.Group.String()
			case *MeterMod:
				if m.Command == MeterDelete || m.Meter.ID >= MeterController {
					continue
				}
				got = m.Meter.String()
			}
			if !strings.HasSuffix(c.text, got) {
				t.Errorf("got  %s\nwant %s", got, c.text)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		err  Error
		want string
	}{
		{Error{Type: 4, Code: 9}, "OFPBMC_BAD_PREREQ (type 4, code 9)"},
		{Error{Type: 6, Code: 0}, "OFPGMFC_GROUP_EXISTS (type 6, code 0)"},
		{Error{Type: 17, Code: 13}, "OFPBFC_MSG_FAILED (type 17, code 13)"},
		{Error{Type: 13, Code: 2}, "unknown error (type 13, code 2)"},
		{Error{Type: 99, Code: 1}, "unknown error (type 99, code 1)"},
		{Error{Type: ErrorExperimenter, Code: 15, Experimenter: 0x2320},
			"NXBAC_BAD_CONJUNCTION (experimenter 0x2320, code 15)"},
		{Error{Type: ErrorExperimenter, Code: 15, Experimenter: 1}, "unknown error (experimenter 0x1, code 15)"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestMessageTooLong(t *testing.T) {
	before := []byte{1, 2, 3}
	b, err := AppendMessage(before, 1, AddFlow(Flow{Actions: make([]Action, 0), WriteActions: manyOutputs(4096)}))
	if err == nil || !strings.Contains(err.Error(), "longer than 65535") || len(b) != 3 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func manyOutputs(n int) (list []Action) {
	for i := range n {
		list = append(list, Output(uint32(i+1)))
	}
	return list
}

func TestDecodeRefuses(t *testing.T) {
	good, err := AppendMessage(nil, 1, AddFlow(Flow{Match: ipMatch, Actions: []Action{Output(1)}}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if i >= HeaderLen {
			b := append([]byte(nil), good[:i]...)
			be.PutUint16(b[2:], uint16(i))
			if _, _, err := Decode(b); err == nil && i < len(good)-24 {
				t.Errorf("accepted when cut at %d", i)
			}
		}
		if _, _, err := Decode(good[:i]); err == nil {
			t.Errorf("accepted %d of %d bytes", i, len(good))
		}
	}
	old := append([]byte(nil), good...)
	old[0] = 4
	if _, _, err := Decode(old); err == nil || !strings.Contains(err.Error(), "version 4") {
		t.Errorf("another version: %v", err)
	}
}
