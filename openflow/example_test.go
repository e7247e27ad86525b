// SPDX-License-Identifier: Apache-2.0

package openflow_test

import (
	"fmt"
	"net/netip"

	"coelan.io/coelan/openflow"
)

// A flow is built from matches and actions, checked, printed and encoded.
func ExampleFlow() {
	flow := openflow.Flow{
		Table:    10,
		Priority: 132,
		Match: openflow.NewMatch(
			openflow.FieldReg2.Value(1),
			openflow.IPDst(netip.MustParsePrefix("10.10.1.0/24")),
		),
		Actions: []openflow.Action{
			openflow.SetField(openflow.EthDst(openflow.MAC{0x0a, 0xc0, 0xe1, 0, 0, 1})),
			openflow.DecTTL(),
			openflow.Output(3),
		},
	}
	fmt.Println(flow.String())
	fmt.Println("refused:", flow.Validate())

	b, err := openflow.AppendMessage(nil, 1, openflow.AddFlow(flow))
	fmt.Println(len(b), "bytes,", err)
	// Output:
	// table=10, priority=132,ip,reg2=0x1,nw_dst=10.10.1.0/24 actions=set_field:0a:c0:e1:00:00:01->eth_dst,dec_ttl,output:3
	// refused: <nil>
	// 144 bytes, <nil>
}

// What a switch would refuse with a number, Validate explains.
func ExampleFlow_Validate() {
	flow := openflow.Flow{
		Match:   openflow.NewMatch(openflow.L4Dst(openflow.IPProtoTCP, 80)),
		Actions: []openflow.Action{openflow.Output(1)},
	}
	fmt.Println(flow.Validate())
	// Output:
	// flow priority=0,nw_proto=6,tp_dst=80 actions=output:1: nw_proto needs eth_type 0x800 or 0x86dd
}

// Several values for bits of one register make one match. The same code serves IPv4 and IPv6.
func ExampleNewMatch() {
	tenant := openflow.FieldReg1.Bits(0, 23)
	flags := openflow.FieldReg1.Bits(24, 31)
	for _, dst := range []string{"10.0.0.0/8", "fd00::/64"} {
		fmt.Println(openflow.NewMatch(
			tenant.Value(5), flags.Value(1),
			openflow.IPDst(netip.MustParsePrefix(dst)),
			openflow.IPProto(openflow.IPProtoUDP),
			openflow.L4Dst(openflow.IPProtoUDP, 53),
		))
	}
	// Output:
	// udp,reg1=0x1000005,nw_dst=10.0.0.0/8,tp_dst=53
	// udp6,reg1=0x1000005,ipv6_dst=fd00::/64,tp_dst=53
}

// Matches are values: they can be compared and be map keys.
func ExampleMatch() {
	a := openflow.NewMatch(openflow.InPort(5), openflow.EthType(openflow.EthTypeARP))
	b, err := openflow.ParseMatch("arp,in_port=5")
	fmt.Println(a == b, err)

	port, mask := a.Get(openflow.FieldInPort.All())
	fmt.Printf("%d/%#x\n", port, mask)
	// Output:
	// true <nil>
	// 5/0xffffffff
}

// A connection is committed with a translation and a mark, then goes on in another table.
func ExampleCT() {
	fmt.Println(openflow.CT{
		Commit: true,
		Zone:   1,
		Table:  openflow.Table(20),
		NAT:    &openflow.NAT{DNAT: true, AddrMin: netip.MustParseAddr("fd00::2"), PortMin: 8080},
		Exec: []openflow.Action{
			openflow.SetField(openflow.CTMark(1, 1)),
			openflow.Move(openflow.FieldReg4.All(), openflow.FieldCTLabel.Bits(32, 63)),
		},
	})
	// Output:
	// ct(commit,table=20,zone=1,nat(dst=[fd00::2]:8080),exec(set_field:0x1/0x1->ct_mark,move:NXM_NX_REG4[]->NXM_NX_CT_LABEL[32..63]))
}

// A learned flow sends later connections of the same client to the same endpoint.
func ExampleLearn() {
	endpoint := openflow.FieldReg3.All()
	fmt.Println(openflow.Learn{
		Table: 5, Priority: 100, HardTimeout: 10800, DeleteLearned: true,
		Specs: []openflow.LearnSpec{
			openflow.LearnMatchValue(openflow.EthType(openflow.EthTypeIPv4)),
			openflow.LearnMatchField(openflow.FieldIPv4Src.All(), openflow.FieldIPv4Src.All()),
			openflow.LearnLoadField(endpoint, endpoint),
			openflow.LearnLoadValue(openflow.FieldReg4.Bits(16, 18).Value(2)),
		},
	})
	// Output:
	// learn(table=5,hard_timeout=10800,priority=100,delete_learned,eth_type=0x800,NXM_OF_IP_SRC[],load:NXM_NX_REG3[]->NXM_NX_REG3[],load:0x2->NXM_NX_REG4[16..18])
}

// A select group spreads connections over endpoints.
func ExampleGroup() {
	group := openflow.Group{ID: 7, Type: openflow.GroupSelect, SelectionMethod: "dp_hash"}
	for _, ep := range []string{"10.10.0.2", "10.10.1.2"} {
		group.Buckets = append(group.Buckets, openflow.Bucket{
			ID: uint32(len(group.Buckets)), Weight: 100,
			Actions: []openflow.Action{
				openflow.SetField(openflow.IPDst(netip.MustParseAddr(ep))), openflow.Resubmit(20),
			},
		})
	}
	fmt.Println(group.String())
	// Output:
	// group_id=7,type=select,selection_method=dp_hash,bucket=bucket_id:0,weight:100,actions=set_field:10.10.0.2->ip_dst,resubmit(,20),bucket=bucket_id:1,weight:100,actions=set_field:10.10.1.2->ip_dst,resubmit(,20)
}

// Decode reads what a switch sends; here, why it refused a message.
func ExampleDecode() {
	refusal := []byte{6, 1, 0, 12, 0, 0, 0, 7, 0, 4, 0, 9}
	xid, m, err := openflow.Decode(refusal)
	if err != nil {
		panic(err)
	}
	if e, ok := m.(*openflow.Error); ok {
		fmt.Println("message", xid, "was refused:", e.Name())
	}
	// Output:
	// message 7 was refused: OFPBMC_BAD_PREREQ
}

// Flows can be read from text, for tests and tools.
func ExampleParseFlow() {
	flow, err := openflow.ParseFlow("table=5,priority=200,tcp6,tp_dst=443 actions=ct(commit,zone=1),goto_table:9")
	fmt.Println(flow.Goto, len(flow.Actions), err)
	_, err = openflow.ParseFlow("priority=1,ip,nw_dst=10.0.0.300 actions=drop")
	fmt.Println(err)
	// Output:
	// 9 1 <nil>
	// flow "priority=1,ip,nw_dst=10.0.0.300 actions=drop": ip_dst=10.0.0.300: ParseAddr("10.0.0.300"): IPv4 field has value >255
}
