// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"strings"
	"testing"
)

var (
	mac1   = MAC{0x0a, 0, 0, 0, 0, 1}
	router = MAC{0x0a, 0xc0, 0xe1, 0, 0, 1}
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
	na     = []FieldValue{ICMPv6Type(136), ICMPv6Code(0)}
)

// values joins lists of values.
func values(lists ...[]FieldValue) (all []FieldValue) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// matchCases are matches as this package's users write them, by the text that Open vSwitch
// prints of them. Each is among the golden ones, so that its bytes are Open vSwitch's.
var matchCases = map[string][]FieldValue{
	"":                                     nil,
	"in_port=2":                            {InPort(2)},
	"in_port=LOCAL":                        {InPort(PortLocal)},
	"in_port=65279":                        {InPort(0xfeff)},
	"conj_id=5":                            {ConjID(5)},
	"dp_hash=0x3/0xf":                      {FieldDPHash.Masked(3, 0xf)},
	"recirc_id=0x7":                        {FieldRecircID.Value(7)},
	"actset_output=3":                      {FieldActsetOutput.Value(3)},
	"packet_type=(1,0x800),nw_src=1.1.1.1": {FieldPacketType.Value(1<<16 | 0x800), IPSrc(addr("1.1.1.1"))},

	"dl_src=0a:c0:e1:00:00:01":                   {EthSrc(router)},
	"dl_dst=01:00:00:00:00:00/01:00:00:00:00:00": {EthDstMask(MAC{1}, MAC{1})},
	"dl_type=0x88cc":                             {EthType(0x88cc)},
	"dl_vlan=5":                                  {VLANVID(5)},
	"dl_vlan=5,dl_vlan_pcp=3":                    {VLANVID(5), FieldVLANPCP.Value(3)},
	"dl_vlan_pcp=3":                              {FieldVLANPCP.Value(3)},
	"vlan_tci=0x1000/0x1000":                     {AnyVLAN()},
	"vlan_tci=0x0000/0x1fff":                     {NoVLAN()},
	"vlan_tci=0x1005/0x100f":                     {FieldVLANVID.Masked(0x1005, 0x100f)},
	"mpls,mpls_label=100,mpls_tc=2,mpls_ttl=64,mpls_bos=1": {EthType(EthTypeMPLS), FieldMPLSLabel.Value(100),
		FieldMPLSTC.Value(2), FieldMPLSTTL.Value(64), FieldMPLSBOS.Value(1)},

	"ip":                                         {EthType(EthTypeIPv4)},
	"ip,nw_src=10.0.0.1,nw_dst=10.1.0.0/16":      {IPSrc(addr("10.0.0.1")), IPDst(prefix("10.1.2.3/16"))},
	"ip,nw_dst=10.0.0.1":                         {IPDst(prefix("10.0.0.1/32"))},
	"ip,nw_src=10.0.0.0/255.0.255.0":             {FieldIPv4Src.Masked(0x0a000001, 0xff00ff00)},
	"ip,nw_proto=89":                             {EthType(EthTypeIPv4), IPProto(89)},
	"ip,nw_tos=184":                              {EthType(EthTypeIPv4), IPDSCP(46)},
	"ip,nw_tos=184,nw_ecn=2,nw_ttl=1":            {EthType(EthTypeIPv4), FieldIPTOS.Value(184), FieldIPECN.Value(2), IPTTL(1)},
	"ip,nw_frag=no":                              {EthType(EthTypeIPv4), IPFrag(0, IPFragAny|IPFragLater)},
	"ip,nw_frag=yes":                             {EthType(EthTypeIPv4), IPFrag(IPFragAny, IPFragAny)},
	"ip,nw_frag=first":                           {EthType(EthTypeIPv4), IPFrag(IPFragAny, IPFragAny|IPFragLater)},
	"ip,nw_frag=later":                           {EthType(EthTypeIPv4), IPFrag(IPFragAny|IPFragLater, IPFragAny|IPFragLater)},
	"ip,nw_frag=not_later":                       {EthType(EthTypeIPv4), IPFrag(0, IPFragLater)},
	"ipv6,ipv6_src=fd00::1,ipv6_dst=fd00:1::/64": {IPSrc(addr("fd00::1")), IPDst(prefix("fd00:1::/64"))},
	"ipv6,ipv6_label=0x12345":                    {FieldIPv6Label.Value(0x12345)},
	"ipv6,ipv6_label=0x00005/0x000ff":            {FieldIPv6Label.Masked(5, 0xff)},
	"tcp6,nw_ttl=1,nw_frag=later":                {EthType(EthTypeIPv6), IPProto(IPProtoTCP), IPTTL(1), IPFrag(3, 3)},

	"tcp,tp_src=1,tp_dst=80":          {EthType(EthTypeIPv4), L4Src(IPProtoTCP, 1), L4Dst(IPProtoTCP, 80)},
	"tcp,tp_dst=0x50/0xfff0":          {EthType(EthTypeIPv4), L4DstMask(IPProtoTCP, 80, 0xfff0)},
	"tcp,tcp_flags=+syn-ack":          {EthType(EthTypeIPv4), TCPFlags(0x02, 0x12)},
	"tcp,tcp_flags=syn|ack":           {EthType(EthTypeIPv4), FieldTCPFlags.Value(0x12)},
	"tcp6,tp_src=5,tcp_flags=+rst":    {EthType(EthTypeIPv6), L4Src(IPProtoTCP, 5), TCPFlags(4, 4)},
	"udp,tp_src=1,tp_dst=53":          {EthType(EthTypeIPv4), L4Src(IPProtoUDP, 1), L4Dst(IPProtoUDP, 53)},
	"udp6,tp_src=1,tp_dst=547":        {EthType(EthTypeIPv6), L4Src(IPProtoUDP, 1), L4Dst(IPProtoUDP, 547)},
	"sctp,tp_src=1,tp_dst=80":         {EthType(EthTypeIPv4), L4Src(IPProtoSCTP, 1), L4Dst(IPProtoSCTP, 80)},
	"sctp6,tp_dst=0x40/0xffc0":        {EthType(EthTypeIPv6), L4DstMask(IPProtoSCTP, 0x40, 0xffc0)},
	"icmp,icmp_type=8,icmp_code=0":    {ICMPv4Type(8), ICMPv4Code(0)},
	"icmp6,icmp_type=128,icmp_code=0": {ICMPv6Type(128), ICMPv6Code(0)},
	"icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::1,nd_sll=0a:00:00:00:00:01":   {NDTarget(addr("fd00::1")), NDSLL(mac1)},
	"icmp6,icmp_type=136,icmp_code=0,nd_target=fd00::/64,nd_tll=0a:00:00:00:00:01": {NDTarget(prefix("fd00::/64")), NDTLL(mac1)},
	"icmp6,icmp_type=136,icmp_code=0,nd_reserved=1610612736,nd_options_type=2": values(na,
		[]FieldValue{NDReserved(NDSolicited | NDOverride), NDOptionsType(2)}),
	"arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1,arp_sha=0a:00:00:00:00:01,arp_tha=00:00:00:00:00:00": {
		ARPOp(ARPRequest), ARPSPA(addr("10.0.0.1")), ARPTPA(prefix("10.0.0.0/24")), ARPSHA(mac1), ARPTHA(MAC{})},
	"rarp,arp_op=3": {EthType(0x8035), ARPOp(3)},

	"tun_id=0x123456": {TunnelID(0x123456)},
	"tun_id=0x1/0xff,tun_src=192.168.0.1,tun_dst=192.168.0.0/24": {FieldTunnelID.Masked(1, 0xff),
		TunSrc(addr("192.168.0.1")), TunDst(prefix("192.168.0.0/24"))},
	"tun_ipv6_src=fd00::1,tun_ipv6_dst=fd00::/64": {TunSrc(addr("fd00::1")), TunDst(prefix("fd00::/64"))},
	"tun_gbp_id=5,tun_gbp_flags=0x8":              {FieldTunGBPID.Value(5), FieldTunGBPFlags.Value(8)},
	"tun_flags=+oam":                              {FieldTunFlags.Masked(1, 1)},
	"tun_metadata0=0x11223344":                    {TunMetadataField(0).Value(0x11223344)},
	"tun_metadata0=0x11223300/0xffffff00":         {TunMetadataField(0).Masked(0x11223344, 0xffffff00)},
	"tun_metadata1=0x1100000000000000/0xff00000000000000": {TunMetadataField(1).Bytes(
		[]byte{0x11, 0, 0, 0, 0, 0, 0, 0}, []byte{0xff, 0, 0, 0, 0, 0, 0, 0})},
	"tun_metadata0":                       {TunMetadataField(0).Bytes(nil, nil)},
	"dl_type=0x894f,nsh_spi=0x5,nsh_si=3": {EthType(0x894f), FieldNSHSPI.Value(5), FieldNSHSI.Value(3)},

	"reg0=0x1": {FieldReg0.Value(1)},
	"reg0=0x1,reg1=0x2,reg2=0x3/0xff,reg3=0x30000/0xff0000,reg15=0xf": {Reg(15).Value(15), FieldReg0.Value(1),
		FieldReg2.Bits(0, 3).Value(3), FieldReg2.Bits(4, 7).Value(0), FieldReg3.Bits(16, 23).Value(3), FieldReg1.Value(2)},
	"reg6=0x12,reg7=0x34567890": {XReg(3).Value(0x1234567890)},
	"reg7=0x1/0xff":             {XXReg(1).Masked(1, 0xff)},
	"pkt_mark=0x1/0x1":          {FieldPktMark.Bits(0, 0).Value(1)},
	"pkt_mark=0x5":              {PktMark(5)},
	"metadata=0x1/0xff":         {Metadata(1, 0xff)},
	"metadata=0x5":              {FieldMetadata.Value(5)},

	"ct_state=+new-est+trk": {CTState(CTNew|CTTrk, CTEst)},
	"ct_state=-trk":         {CTState(0, CTTrk)},
	"ct_state=est|trk":      {FieldCTState.Masked(uint64(CTEst|CTTrk), 0xff)},
	"ct_state=+rel+rpl-inv+trk+snat+dnat,ct_zone=10,ct_mark=0x1/0x1,ct_label=0x1/0x1": {
		CTState(CTRel|CTRpl|CTTrk|CTSNAT|CTDNAT, CTInv), CTZone(10), CTMark(1, 1), CTLabel([2]uint64{0, 1}, [2]uint64{0, 1})},
	"ct_mark=0x5,ct_label=0x11111111111111112222222222222222": {FieldCTMark.Value(5),
		FieldCTLabel.Value128(0x1111111111111111, 0x2222222222222222)},
	"ct_state=+est+trk,ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.0/8,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=0x50/0xfff0,ip": {
		CTState(CTEst|CTTrk, 0), CTIPSrc(addr("10.0.0.1")), CTIPDst(prefix("10.0.0.0/8")), CTProto(6), CTL4Src(1),
		FieldCTTPDst.Masked(80, 0xfff0)},
	"ct_state=-inv+trk,ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::/64,ct_nw_proto=17,ct_tp_dst=53,ipv6": {
		CTState(CTTrk, CTInv), CTIPSrc(addr("fd00::1")), CTIPDst(prefix("fd00::/64")), CTProto(17), CTL4Dst(53)},
}

func TestMatchConstructors(t *testing.T) {
	golden := map[Match]string{}
	for _, c := range readGolden(t, "matches") {
		_, m, err := Decode(c.wire)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := goldenFlowText(c.text)
		golden[m.(*FlowMod).Flow.Match] = text
	}
	for text, fields := range matchCases {
		m := NewMatch(fields...)
		if golden[m] != text {
			t.Errorf("%q: constructed %s %x is golden %q", text, m, m.oxm, golden[m])
		}
		delete(golden, m)
		if parsed, err := ParseMatch(text); err != nil || parsed != m {
			t.Errorf("%q parsed is %s, %v", text, parsed, err)
		}
	}
	for _, text := range golden {
		t.Errorf("%q is made by no constructor", text)
	}
}

// actionCases are actions as this package's users write them, by the text that Open vSwitch prints.
var actionCases = map[string]Action{
	"output:3": Output(3), "LOCAL": Output(PortLocal), "IN_PORT": OutputInPort(), "NORMAL": Output(PortNormal),
	"FLOOD": Output(PortFlood), "ALL": Output(PortAll), "CONTROLLER:65535": Output(PortController),
	"CONTROLLER:128":             Controller{MaxLen: 128},
	"output:NXM_NX_REG3[]":       OutputField(FieldReg3.All()),
	"output:NXM_NX_REG3[0..15]":  OutputField(FieldReg3.Bits(0, 15)),
	"output(port=3,max_len=100)": OutputTrunc(3, 100),
	"group:7":                    ToGroup(7),
	"meter:256":                  ToMeter(256),

	"set_field:0x5->reg3":                                    SetField(FieldReg3.Value(5)),
	"set_field:0x3/0xf->reg0":                                SetField(FieldReg0.Bits(0, 3).Value(3)),
	"set_field:0x1234567890->xreg1":                          SetField(FieldXReg1.Value(0x1234567890)),
	"set_field:0x1->xxreg1":                                  SetField(FieldXXReg1.Value(1)),
	"set_field:0x1/0xff->xxreg1":                             SetField(FieldXXReg1.Bits(0, 7).Value(1)),
	"set_field:0a:c0:e1:00:00:01->eth_src":                   SetField(EthSrc(router)),
	"set_field:0a:c0:e1:00:00:01->eth_dst":                   SetField(EthDst(router)),
	"set_field:01:00:00:00:00:00/01:00:00:00:00:00->eth_dst": SetField(EthDstMask(MAC{1}, MAC{1})),
	"set_field:10.0.0.1->ip_src":                             SetField(IPSrc(addr("10.0.0.1"))),
	"set_field:10.0.0.0/16->ip_dst":                          SetField(IPDst(prefix("10.0.0.0/16"))),
	"set_field:fd00::1->ipv6_src":                            SetField(IPSrc(addr("fd00::1"))),
	"set_field:fd00::/16->ipv6_dst":                          SetField(IPDst(prefix("fd00::/16"))),
	"set_field:0x12345->ipv6_label":                          SetField(FieldIPv6Label.Value(0x12345)),
	"set_field:64->nw_ttl":                                   SetField(IPTTL(64)),
	"set_field:46->ip_dscp":                                  SetField(IPDSCP(46)),
	"set_field:184->nw_tos":                                  SetField(FieldIPTOS.Value(184)),
	"set_field:1->nw_ecn":                                    SetField(FieldIPECN.Value(1)),
	"set_field:80->tcp_src":                                  SetField(L4Src(IPProtoTCP, 80)),
	"set_field:80->tcp_dst":                                  SetField(L4Dst(IPProtoTCP, 80)),
	"set_field:53->udp_src":                                  SetField(L4Src(IPProtoUDP, 53)),
	"set_field:53->udp_dst":                                  SetField(L4Dst(IPProtoUDP, 53)),
	"set_field:53->sctp_src":                                 SetField(L4Src(IPProtoSCTP, 53)),
	"set_field:53->sctp_dst":                                 SetField(L4Dst(IPProtoSCTP, 53)),
	"set_field:0->icmp_type":                                 SetField(ICMPv4Type(0)),
	"set_field:0->icmp_code":                                 SetField(ICMPv4Code(0)),
	"set_field:136->icmpv6_type":                             SetField(ICMPv6Type(136)),
	"set_field:0->icmpv6_code":                               SetField(ICMPv6Code(0)),
	"set_field:fd00::1->nd_target":                           SetField(NDTarget(addr("fd00::1"))),
	"set_field:0a:c0:e1:00:00:01->nd_sll":                    SetField(NDSLL(router)),
	"set_field:0a:c0:e1:00:00:01->nd_tll":                    SetField(NDTLL(router)),
	"set_field:3758096384->nd_reserved":                      SetField(NDReserved(NDRouter | NDSolicited | NDOverride)),
	"set_field:2->nd_options_type":                           SetField(NDOptionsType(2)),
	"set_field:2->arp_op":                                    SetField(ARPOp(ARPReply)),
	"set_field:10.0.0.1->arp_spa":                            SetField(ARPSPA(addr("10.0.0.1"))),
	"set_field:10.0.0.1->arp_tpa":                            SetField(ARPTPA(addr("10.0.0.1"))),
	"set_field:0a:c0:e1:00:00:01->arp_sha":                   SetField(ARPSHA(router)),
	"set_field:0a:c0:e1:00:00:01->arp_tha":                   SetField(ARPTHA(router)),
	"set_field:0x7->tun_id":                                  SetField(TunnelID(7)),
	"set_field:192.168.0.2->tun_src":                         SetField(TunSrc(addr("192.168.0.2"))),
	"set_field:192.168.0.2->tun_dst":                         SetField(TunDst(addr("192.168.0.2"))),
	"set_field:fd00::1->tun_ipv6_src":                        SetField(TunSrc(addr("fd00::1"))),
	"set_field:fd00::1->tun_ipv6_dst":                        SetField(TunDst(addr("fd00::1"))),
	"set_field:5->tun_gbp_id":                                SetField(FieldTunGBPID.Value(5)),
	"set_field:0x8->tun_gbp_flags":                           SetField(FieldTunGBPFlags.Value(8)),
	"set_field:oam->tun_flags":                               SetField(FieldTunFlags.Value(1)),
	"set_field:0x11223344->tun_metadata0":                    SetField(TunMetadataField(0).Value(0x11223344)),
	"set_field:0x11000000/0xff000000->tun_metadata0":         SetField(TunMetadataField(0).Bits(24, 31).Value(0x11)),
	"set_field:0x5->pkt_mark":                                SetField(PktMark(5)),
	"set_field:0x1/0x1->pkt_mark":                            SetField(FieldPktMark.Bits(0, 0).Value(1)),
	"set_field:3->in_port":                                   SetField(FieldInPort16.Value(3)),
	"set_field:0x5->metadata":                                SetField(FieldMetadata.Value(5)),
	"set_field:4101->vlan_vid":                               SetField(VLANVID(5)),
	"set_field:3->vlan_pcp":                                  SetField(FieldVLANPCP.Value(3)),
	"set_field:0x1005->vlan_tci":                             SetField(FieldVLANTCI.Value(0x1005)),
	"set_field:100->mpls_label":                              SetField(FieldMPLSLabel.Value(100)),
	"set_field:2->mpls_tc":                                   SetField(FieldMPLSTC.Value(2)),
	"set_field:64->mpls_ttl":                                 SetField(FieldMPLSTTL.Value(64)),

	"move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]":         Move(FieldEthSrc.All(), FieldEthDst.All()),
	"move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]":       Move(FieldReg0.Bits(0, 3), FieldReg1.Bits(4, 7)),
	"move:NXM_NX_XXREG0[]->NXM_NX_IPV6_DST[]":         Move(FieldXXReg0.All(), FieldIPv6Dst.All()),
	"move:NXM_NX_TUN_METADATA0[0..31]->NXM_NX_REG0[]": Move(TunMetadataField(0).Bits(0, 31), FieldReg0.All()),
	"move:NXM_OF_IN_PORT[]->NXM_NX_REG3[0..15]":       Move(FieldInPort16.All(), FieldReg3.Bits(0, 15)),
	"move:NXM_NX_CT_MARK[]->NXM_NX_REG3[]":            Move(FieldCTMark.All(), FieldReg3.All()),
	"move:OXM_OF_PKT_REG0[]->OXM_OF_METADATA[]":       Move(FieldXReg0.All(), FieldMetadata.All()),
	"move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_SRC[]":      Move(FieldNDTarget.All(), FieldIPv6Src.All()),
	"dec_ttl":                    DecTTL(),
	"dec_mpls_ttl":               DecMPLSTTL(),
	"push_vlan:0x8100":           PushVLAN(EthTypeVLAN),
	"push_vlan:0x88a8":           PushVLAN(0x88a8),
	"pop_vlan":                   PopVLAN(),
	"push_mpls:0x8847":           PushMPLS(EthTypeMPLS),
	"pop_mpls:0x0800":            PopMPLS(EthTypeIPv4),
	"set_queue:5":                SetQueue(5),
	"pop_queue":                  PopQueue(),
	"delete_field:tun_metadata0": DeleteField(TunMetadataField(0)),
	"resubmit(,5)":               Resubmit(5),
	"resubmit(,5,ct)":            ResubmitCT(5),
	"resubmit(3,5)":              ResubmitAction{InPort: 3, Table: 5},
	"resubmit:3":                 ResubmitAction{InPort: 3, Table: TableAll},
	"conjunction(5,1/2)":         Conjunction(5, 1, 2),
	"conjunction(5,2/3)":         Conjunction(5, 2, 3),
	"note:01.02.03.00.00.00":     Note([]byte{1, 2, 3}),
	"note:01.02.03.04.05.06.07.00.00.00.00.00.00.00":      Note([]byte{1, 2, 3, 4, 5, 6, 7}),
	"push:NXM_NX_REG0[]":                                  Push(FieldReg0.All()),
	"push:NXM_NX_REG0[3..7]":                              Push(FieldReg0.Bits(3, 7)),
	"push:NXM_OF_IN_PORT[]":                               Push(FieldInPort16.All()),
	"push:OXM_OF_IN_PORT[]":                               Push(FieldInPort.All()),
	"push:OXM_OF_METADATA[]":                              Push(FieldMetadata.All()),
	"push:NXM_OF_ETH_SRC[]":                               Push(FieldEthSrc.All()),
	"push:NXM_OF_IP_DST[]":                                Push(FieldIPv4Dst.All()),
	"push:NXM_NX_TUN_ID[]":                                Push(FieldTunnelID.All()),
	"push:NXM_NX_XXREG0[]":                                Push(FieldXXReg0.All()),
	"push:OXM_OF_PKT_REG0[]":                              Push(FieldXReg0.All()),
	"pop:NXM_NX_REG1[]":                                   Pop(FieldReg1.All()),
	"exit":                                                Exit(),
	"clone(output:3)":                                     Clone(Output(3)),
	"clone(set_field:0x5->reg0,resubmit(,5))":             Clone(SetField(FieldReg0.Value(5)), Resubmit(5)),
	"check_pkt_larger(1500)->NXM_NX_REG0[0]":              CheckPktLarger(1500, FieldReg0.Bits(0, 0)),
	"fin_timeout(idle_timeout=5,hard_timeout=6)":          FinTimeout(5, 6),
	"multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])":    MultipathAction{HashEthSrc, 50, ModuloN, 1, 0, FieldReg0.All()},
	"multipath(symmetric_l4,5,hrw,4,7,NXM_NX_REG0[0..7])": MultipathAction{HashSymmetricL4, 5, HRW, 4, 7, FieldReg0.Bits(0, 7)},

	"controller(reason=no_match,max_len=128,userdata=01.02.03,pause)": Controller{Reason: ReasonNoMatch, MaxLen: 128,
		Userdata: "\x01\x02\x03", Pause: true},
	"controller(userdata=01.02.03)":                Controller{Userdata: "\x01\x02\x03"},
	"controller(userdata=00.00.00.0c.00.00.00.00)": Controller{Userdata: "\x00\x00\x00\x0c\x00\x00\x00\x00"},
	"controller(id=5)":                             Controller{ID: 5},
	"controller(id=3,userdata=01,meter_id=5)":      Controller{ID: 3, Meter: 5, Userdata: "\x01"},
	"controller(reason=invalid_ttl)":               Controller{Reason: ReasonInvalidTTL},
	"controller(pause)":                            Controller{Pause: true},

	"ct()":                            CT{},
	"ct(commit)":                      CT{Commit: true},
	"ct(table=5)":                     CT{Table: Table(5)},
	"ct(table=0)":                     CT{Table: Table(0)},
	"ct(commit,zone=5)":               CT{Commit: true, Zone: 5},
	"ct(commit,force,table=6,zone=5)": CT{Commit: true, Force: true, Zone: 5, Table: Table(6)},
	"ct(zone=NXM_NX_REG0[0..15])":     CT{ZoneFrom: FieldReg0.Bits(0, 15)},
	"ct(table=5,zone=NXM_NX_REG13[0..15],nat)": CT{Table: Table(5), ZoneFrom: FieldReg13.Bits(0, 15), NAT: &NAT{}},
	"ct(commit,alg=ftp)":                       CT{Commit: true, ALG: ALGFTP},
	"ct(commit,alg=tftp)":                      CT{Commit: true, ALG: ALGTFTP},
	"ct_clear":                                 CTClear(),
	"ct(commit,nat(src))":                      commitNAT(NAT{SNAT: true}),
	"ct(commit,nat(src=10.0.0.1))":             commitNAT(NAT{SNAT: true, AddrMin: addr("10.0.0.1")}),
	"ct(commit,nat(src=10.0.0.1-10.0.0.9))":    commitNAT(NAT{SNAT: true, AddrMin: addr("10.0.0.1"), AddrMax: addr("10.0.0.9")}),
	"ct(commit,nat(dst=10.0.0.1:80))":          commitNAT(NAT{DNAT: true, AddrMin: addr("10.0.0.1"), PortMin: 80}),
	"ct(commit,nat(dst=10.0.0.1:80-90))":       commitNAT(NAT{DNAT: true, AddrMin: addr("10.0.0.1"), PortMin: 80, PortMax: 90}),
	"ct(commit,nat(src=10.0.0.1-10.0.0.9:1000-2000,random))": commitNAT(NAT{SNAT: true, AddrMin: addr("10.0.0.1"),
		AddrMax: addr("10.0.0.9"), PortMin: 1000, PortMax: 2000, Random: true}),
	"ct(commit,nat(src=10.0.0.1,hash))":            commitNAT(NAT{SNAT: true, AddrMin: addr("10.0.0.1"), Hash: true}),
	"ct(commit,nat(src=10.0.0.1,persistent,hash))": commitNAT(NAT{SNAT: true, AddrMin: addr("10.0.0.1"), Hash: true, Persistent: true}),
	"ct(commit,nat(src=fd00::1))":                  commitNAT(NAT{SNAT: true, AddrMin: addr("fd00::1")}),
	"ct(commit,nat(dst=[fd00::1]:80))":             commitNAT(NAT{DNAT: true, AddrMin: addr("fd00::1"), PortMin: 80}),
	"ct(commit,nat(dst=[fd00::1]-[fd00::9]:80-90,random))": commitNAT(NAT{DNAT: true, AddrMin: addr("fd00::1"),
		AddrMax: addr("fd00::9"), PortMin: 80, PortMax: 90, Random: true}),
	"ct(commit,table=13,zone=65520,nat(dst=10.10.0.2:80),exec(set_field:0x10/0x10->ct_mark,move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]))": CT{
		Commit: true, Table: Table(13), Zone: 65520, NAT: &NAT{DNAT: true, AddrMin: addr("10.10.0.2"), PortMin: 80},
		Exec: []Action{SetField(CTMark(0x10, 0x10)), Move(FieldReg0.Bits(0, 3), FieldCTMark.Bits(0, 3))}},
	"ct(commit,exec(set_field:0x1->ct_label,set_field:0x5->ct_mark))": CT{Commit: true,
		Exec: []Action{SetField(FieldCTLabel.Value(1)), SetField(FieldCTMark.Value(5))}},
	"ct(commit,zone=1,nat(src=1.2.3.4),exec(set_field:0x500000000/0xffffffff00000000->ct_label))": CT{Commit: true, Zone: 1,
		NAT: &NAT{SNAT: true, AddrMin: addr("1.2.3.4")}, Exec: []Action{SetField(FieldCTLabel.Bits(32, 63).Value(5))}},

	"learn(table=1)": Learn{Table: 1, Priority: DefaultPriority},
	"learn(table=11,hard_timeout=10800,priority=200,delete_learned,cookie=0x77,eth_type=0x800,nw_proto=6," +
		"NXM_OF_TCP_DST[],NXM_OF_IP_DST[],NXM_OF_IP_SRC[],load:NXM_NX_REG4[0..15]->NXM_NX_REG4[0..15]," +
		"load:NXM_NX_REG3[]->NXM_NX_REG3[],load:0x2->NXM_NX_REG4[16..18])": Learn{
		Table: 11, HardTimeout: 10800, Priority: 200, DeleteLearned: true, Cookie: 0x77, Specs: []LearnSpec{
			LearnMatchValue(EthType(EthTypeIPv4)), LearnMatchValue(IPProto(IPProtoTCP)),
			LearnMatchField(FieldTCPDst.All(), FieldTCPDst.All()), LearnMatchField(FieldIPv4Dst.All(), FieldIPv4Dst.All()),
			LearnMatchField(FieldIPv4Src.All(), FieldIPv4Src.All()),
			LearnLoadField(FieldReg4.Bits(0, 15), FieldReg4.Bits(0, 15)), LearnLoadField(FieldReg3.All(), FieldReg3.All()),
			LearnLoadValue(FieldReg4.Bits(16, 18).Value(2))}},
	"learn(table=2,idle_timeout=60,fin_idle_timeout=5,fin_hard_timeout=6,send_flow_rem,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]," +
		"load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])": Learn{
		Table: 2, Priority: DefaultPriority, IdleTimeout: 60, FinIdleTimeout: 5, FinHardTimeout: 6, SendFlowRem: true,
		Specs: []LearnSpec{
			LearnMatchField(FieldEthDst.All(), FieldEthSrc.All()), LearnLoadField(FieldReg0.Bits(0, 15), FieldInPort16.All()),
			LearnOutputTo(FieldInPort16.All())}},
	"learn(table=2,limit=100,result_dst=NXM_NX_REG0[3],eth_type=0x86dd,NXM_NX_IPV6_DST[]=NXM_NX_IPV6_SRC[]," +
		"NXM_NX_REG1[0..7]=0x5,load:0x123456789abc->NXM_OF_ETH_DST[])": Learn{
		Table: 2, Priority: DefaultPriority, Limit: 100, ResultDst: FieldReg0.Bits(3, 3), Specs: []LearnSpec{
			LearnMatchValue(EthType(EthTypeIPv6)), LearnMatchField(FieldIPv6Dst.All(), FieldIPv6Src.All()),
			LearnMatchValue(FieldReg1.Bits(0, 7).Value(5)), LearnLoadValue(EthDst(MAC{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc}))}},
	"learn(table=2,limit=5,eth_type=0x86dd,NXM_NX_IPV6_SRC[],NXM_NX_XXREG0[]=NXM_NX_IPV6_DST[]," +
		"load:NXM_NX_IPV6_SRC[]->NXM_NX_XXREG1[])": Learn{
		Table: 2, Priority: DefaultPriority, Limit: 5, Specs: []LearnSpec{
			LearnMatchValue(EthType(EthTypeIPv6)), LearnMatchField(FieldIPv6Src.All(), FieldIPv6Src.All()),
			LearnMatchField(FieldXXReg0.All(), FieldIPv6Dst.All()), LearnLoadField(FieldXXReg1.All(), FieldIPv6Src.All())}},
}

func commitNAT(n NAT) Action { return CT{Commit: true, NAT: &n} }

func TestActionConstructors(t *testing.T) {
	golden := map[string]string{} // text by bytes
	for _, c := range readGolden(t, "actions") {
		_, m, err := Decode(c.wire)
		if err != nil {
			t.Fatal(err)
		}
		if f := m.(*FlowMod).Flow; len(f.Actions) == 1 && f.Goto == 0 {
			_, text := goldenFlowText(c.text)
			if _, unknown := f.Actions[0].(UnknownAction); !unknown {
				// By the bytes of what was decoded, since nat may come after exec.
				golden[string(f.Actions[0].appendTo(nil))] = text
			}
		}
	}
	for text, a := range actionCases {
		b := a.appendTo(nil)
		got := golden[string(b)]
		if strings.Contains(text, "1.2.3.4") {
			got = text // ovs-ofctl prints the nat that comes after exec within it
		}
		if got != text {
			t.Errorf("%q: constructed %s %x is golden %q", text, a, b, got)
		}
		delete(golden, string(b))
		if a.String() != text {
			t.Errorf("%q is printed as %q", text, a)
		}
		parsed, err := ParseActions(text)
		if err != nil || len(parsed) != 1 || string(parsed[0].appendTo(nil)) != string(b) {
			t.Errorf("%q parsed is %s, %v", text, ActionsString(parsed), err)
		}
	}
	for _, text := range golden {
		t.Errorf("%q is made by no constructor", text)
	}
}
