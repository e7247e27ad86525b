// SPDX-License-Identifier: Apache-2.0

package openflow

import "strconv"

// OXM classes.
const (
	classNXM0   = 0x0000
	classNXM1   = 0x0001
	classERIC   = 0x1000
	classBasic  = 0x8000
	classPktReg = 0x8001
	classExp    = 0xffff
)

// Experimenters of OXM fields of class classExp.
const (
	expNicira = 0x00002320
	expNSH    = 0x005ad650
)

// format says how a value is printed in actions, as ovs-ofctl does.
type format uint8

const (
	fmtDec format = iota
	fmtHex
	fmtMAC
	fmtIPv4
	fmtIPv6
	fmtPort
	fmtPort16
	fmtFrag
	fmtCTState
	fmtTCPFlags
	fmtTunFlags
	fmtPacketType
)

// oxmID is the class, number and experimenter of a field on the wire.
type oxmID struct {
	class uint16
	num   uint8
	exp   uint32
}

// fieldInfo describes a field.
type fieldInfo struct {
	name     string // in set_field, and in matches unless match is given
	match    string
	nxm      string // in move, push, learn …
	id       oxmID  // in matches, set_field and copy_field
	nxmID    oxmID  // in Nicira's actions; the older form where there is one
	bits     uint16
	format   format
	maskable bool
	prereq   prereq
}

// size returns in how many bytes a value travels; of a tunnel option, the most that it can take.
func (i *fieldInfo) size() int {
	switch bits := i.bits; {
	case bits <= 8:
		return 1
	case bits <= 16:
		return 2
	case bits <= 32:
		return 4
	case bits <= 48:
		return 6
	case bits <= 64:
		return 8
	case bits <= 128:
		return 16
	}
	return maxTunMetadata
}

// maxTunMetadata is the length in bytes of the longest tunnel option.
const maxTunMetadata = 124

// Whether a field takes a mask.
const (
	masked = true
	exact  = false
)

func basic(num uint8) oxmID  { return oxmID{classBasic, num, 0} }
func nxm0(num uint8) oxmID   { return oxmID{classNXM0, num, 0} }
func nxm1(num uint8) oxmID   { return oxmID{classNXM1, num, 0} }
func nxet(num uint8) oxmID   { return oxmID{classExp, num, expNicira} }
func nsh(num uint8) oxmID    { return oxmID{classExp, num, expNSH} }
func eric(num uint8) oxmID   { return oxmID{classERIC, num, 0} }
func pktReg(num uint8) oxmID { return oxmID{classPktReg, num, 0} }

// fieldTable describes every field. Sources: OpenFlow 1.5.1 section 7.2.3, nicira-ext.h and
// meta-flow.h of Open vSwitch.
var fieldTable = withSeries([numFields]fieldInfo{
	fieldNone:          {name: "none", nxm: "none", id: oxmID{0x7fff, 0, 0}, nxmID: oxmID{0x7fff, 0, 0}, bits: 128},
	FieldPacketType:    {"packet_type", "", "OXM_OF_PACKET_TYPE", basic(44), basic(44), 32, fmtPacketType, exact, 0},
	FieldDPHash:        {"dp_hash", "", "NXM_NX_DP_HASH", nxm1(35), nxm1(35), 32, fmtHex, masked, 0},
	FieldRecircID:      {"recirc_id", "", "NXM_NX_RECIRC_ID", nxm1(36), nxm1(36), 32, fmtDec, exact, 0},
	FieldConjID:        {"conj_id", "", "NXM_NX_CONJ_ID", nxm1(37), nxm1(37), 32, fmtDec, exact, 0},
	FieldInPort:        {"in_port_oxm", "in_port", "OXM_OF_IN_PORT", basic(0), basic(0), 32, fmtPort, exact, 0},
	FieldInPort16:      {"in_port", "", "NXM_OF_IN_PORT", nxm0(0), nxm0(0), 16, fmtPort16, exact, 0},
	FieldActsetOutput:  {"actset_output", "", "OXM_OF_ACTSET_OUTPUT", basic(43), basic(43), 32, fmtPort, exact, 0},
	FieldEthSrc:        {"eth_src", "dl_src", "NXM_OF_ETH_SRC", basic(4), nxm0(2), 48, fmtMAC, masked, 0},
	FieldEthDst:        {"eth_dst", "dl_dst", "NXM_OF_ETH_DST", basic(3), nxm0(1), 48, fmtMAC, masked, 0},
	FieldEthType:       {"eth_type", "dl_type", "NXM_OF_ETH_TYPE", basic(5), nxm0(3), 16, fmtHex, exact, 0},
	FieldVLANVID:       {"vlan_vid", "", "OXM_OF_VLAN_VID", basic(6), basic(6), 12, fmtDec, masked, 0},
	FieldVLANPCP:       {"vlan_pcp", "dl_vlan_pcp", "OXM_OF_VLAN_PCP", basic(7), basic(7), 3, fmtDec, exact, needVLAN},
	FieldVLANTCI:       {"vlan_tci", "", "NXM_OF_VLAN_TCI", nxm0(4), nxm0(4), 16, fmtHex, masked, 0},
	FieldMPLSTC:        {"mpls_tc", "", "OXM_OF_MPLS_TC", basic(35), basic(35), 3, fmtDec, exact, needMPLS},
	FieldMPLSBOS:       {"mpls_bos", "", "OXM_OF_MPLS_BOS", basic(36), basic(36), 1, fmtDec, exact, needMPLS},
	FieldMPLSTTL:       {"mpls_ttl", "", "NXM_NX_MPLS_TTL", nxm1(30), nxm1(30), 8, fmtDec, exact, needMPLS},
	FieldMPLSLabel:     {"mpls_label", "", "OXM_OF_MPLS_LABEL", basic(34), basic(34), 20, fmtDec, exact, needMPLS},
	FieldIPv4Src:       {"ip_src", "nw_src", "NXM_OF_IP_SRC", basic(11), nxm0(7), 32, fmtIPv4, masked, needIPv4},
	FieldIPv4Dst:       {"ip_dst", "nw_dst", "NXM_OF_IP_DST", basic(12), nxm0(8), 32, fmtIPv4, masked, needIPv4},
	FieldIPv6Src:       {"ipv6_src", "", "NXM_NX_IPV6_SRC", basic(26), nxm1(19), 128, fmtIPv6, masked, needIPv6},
	FieldIPv6Dst:       {"ipv6_dst", "", "NXM_NX_IPV6_DST", basic(27), nxm1(20), 128, fmtIPv6, masked, needIPv6},
	FieldIPFrag:        {"ip_frag", "nw_frag", "NXM_NX_IP_FRAG", nxm1(26), nxm1(26), 2, fmtFrag, masked, needIP},
	FieldIPTOS:         {"nw_tos", "", "NXM_OF_IP_TOS", nxm0(5), nxm0(5), 8, fmtDec, exact, needIP},
	FieldIPDSCP:        {"ip_dscp", "nw_tos", "OXM_OF_IP_DSCP", basic(8), basic(8), 6, fmtDec, exact, needIP},
	FieldIPECN:         {"nw_ecn", "", "NXM_NX_IP_ECN", basic(9), nxm1(28), 2, fmtDec, exact, needIP},
	FieldIPTTL:         {"nw_ttl", "", "NXM_NX_IP_TTL", nxm1(29), nxm1(29), 8, fmtDec, exact, needIP},
	FieldIPv6Label:     {"ipv6_label", "", "NXM_NX_IPV6_LABEL", basic(28), nxm1(27), 20, fmtHex, masked, needIPv6},
	FieldIPProto:       {"nw_proto", "", "NXM_OF_IP_PROTO", basic(10), nxm0(6), 8, fmtDec, exact, needIP},
	FieldTCPSrc:        {"tcp_src", "tp_src", "NXM_OF_TCP_SRC", basic(13), nxm0(9), 16, fmtDec, masked, needTCP},
	FieldTCPDst:        {"tcp_dst", "tp_dst", "NXM_OF_TCP_DST", basic(14), nxm0(10), 16, fmtDec, masked, needTCP},
	FieldTCPFlags:      {"tcp_flags", "", "NXM_NX_TCP_FLAGS", basic(42), nxm1(34), 12, fmtTCPFlags, masked, needTCP},
	FieldUDPSrc:        {"udp_src", "tp_src", "NXM_OF_UDP_SRC", basic(15), nxm0(11), 16, fmtDec, masked, needUDP},
	FieldUDPDst:        {"udp_dst", "tp_dst", "NXM_OF_UDP_DST", basic(16), nxm0(12), 16, fmtDec, masked, needUDP},
	FieldSCTPSrc:       {"sctp_src", "tp_src", "OXM_OF_SCTP_SRC", basic(17), basic(17), 16, fmtDec, masked, needSCTP},
	FieldSCTPDst:       {"sctp_dst", "tp_dst", "OXM_OF_SCTP_DST", basic(18), basic(18), 16, fmtDec, masked, needSCTP},
	FieldICMPv4Type:    {"icmp_type", "", "NXM_OF_ICMP_TYPE", basic(19), nxm0(13), 8, fmtDec, exact, needICMPv4},
	FieldICMPv4Code:    {"icmp_code", "", "NXM_OF_ICMP_CODE", basic(20), nxm0(14), 8, fmtDec, exact, needICMPv4},
	FieldICMPv6Type:    {"icmpv6_type", "icmp_type", "NXM_NX_ICMPV6_TYPE", basic(29), nxm1(21), 8, fmtDec, exact, needICMPv6},
	FieldICMPv6Code:    {"icmpv6_code", "icmp_code", "NXM_NX_ICMPV6_CODE", basic(30), nxm1(22), 8, fmtDec, exact, needICMPv6},
	FieldNDReserved:    {"nd_reserved", "", "ERICOXM_OF_ICMPV6_ND_RESERVED", eric(1), eric(1), 32, fmtDec, exact, needND},
	FieldNDTarget:      {"nd_target", "", "NXM_NX_ND_TARGET", basic(31), nxm1(23), 128, fmtIPv6, masked, needND},
	FieldNDOptionsType: {"nd_options_type", "", "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", eric(2), eric(2), 8, fmtDec, exact, needND},
	FieldNDSLL:         {"nd_sll", "", "NXM_NX_ND_SLL", basic(32), nxm1(24), 48, fmtMAC, masked, needNDSolicit},
	FieldNDTLL:         {"nd_tll", "", "NXM_NX_ND_TLL", basic(33), nxm1(25), 48, fmtMAC, masked, needNDAdvert},
	FieldARPOp:         {"arp_op", "", "NXM_OF_ARP_OP", basic(21), nxm0(15), 16, fmtDec, exact, needARP},
	FieldARPSPA:        {"arp_spa", "", "NXM_OF_ARP_SPA", basic(22), nxm0(16), 32, fmtIPv4, masked, needARP},
	FieldARPTPA:        {"arp_tpa", "", "NXM_OF_ARP_TPA", basic(23), nxm0(17), 32, fmtIPv4, masked, needARP},
	FieldARPSHA:        {"arp_sha", "", "NXM_NX_ARP_SHA", basic(24), nxm1(17), 48, fmtMAC, masked, needARP},
	FieldARPTHA:        {"arp_tha", "", "NXM_NX_ARP_THA", basic(25), nxm1(18), 48, fmtMAC, masked, needARP},
	FieldTunnelID:      {"tun_id", "", "NXM_NX_TUN_ID", basic(38), nxm1(16), 64, fmtHex, masked, 0},
	FieldTunFlags:      {"tun_flags", "", "NXM_NX_TUN_FLAGS", nxm1(104), nxm1(104), 16, fmtTunFlags, masked, 0},
	FieldTunSrc:        {"tun_src", "", "NXM_NX_TUN_IPV4_SRC", nxm1(31), nxm1(31), 32, fmtIPv4, masked, 0},
	FieldTunDst:        {"tun_dst", "", "NXM_NX_TUN_IPV4_DST", nxm1(32), nxm1(32), 32, fmtIPv4, masked, 0},
	FieldTunIPv6Src:    {"tun_ipv6_src", "", "NXM_NX_TUN_IPV6_SRC", nxm1(109), nxm1(109), 128, fmtIPv6, masked, 0},
	FieldTunIPv6Dst:    {"tun_ipv6_dst", "", "NXM_NX_TUN_IPV6_DST", nxm1(110), nxm1(110), 128, fmtIPv6, masked, 0},
	FieldTunGBPID:      {"tun_gbp_id", "", "NXM_NX_TUN_GBP_ID", nxm1(38), nxm1(38), 16, fmtDec, masked, 0},
	FieldTunGBPFlags:   {"tun_gbp_flags", "", "NXM_NX_TUN_GBP_FLAGS", nxm1(39), nxm1(39), 8, fmtHex, masked, 0},
	FieldTunERSPANIdx:  {"tun_erspan_idx", "", "NXOXM_ET_ERSPAN_IDX", nxet(11), nxet(11), 20, fmtHex, masked, 0},
	FieldTunERSPANVer:  {"tun_erspan_ver", "", "NXOXM_ET_ERSPAN_VER", nxet(12), nxet(12), 4, fmtDec, masked, 0},
	FieldTunERSPANDir:  {"tun_erspan_dir", "", "NXOXM_ET_ERSPAN_DIR", nxet(13), nxet(13), 1, fmtDec, masked, 0},
	FieldTunERSPANHWID: {"tun_erspan_hwid", "", "NXOXM_ET_ERSPAN_HWID", nxet(14), nxet(14), 6, fmtHex, masked, 0},
	FieldTunGTPUFlags:  {"tun_gtpu_flags", "gtpu_flags", "NXOXM_ET_GTPU_FLAGS", nxet(15), nxet(15), 8, fmtHex, masked, 0},
	FieldTunGTPUMsgType: {"tun_gtpu_msgtype", "gtpu_msgtype", "NXOXM_ET_GTPU_MSGTYPE", nxet(16), nxet(16), 8,
		fmtDec, masked, 0},
	FieldNSHFlags:  {"nsh_flags", "", "NXOXM_NSH_FLAGS", nsh(1), nsh(1), 8, fmtDec, masked, needNSH},
	FieldNSHTTL:    {"nsh_ttl", "", "NXOXM_NSH_TTL", nsh(10), nsh(10), 8, fmtDec, exact, needNSH},
	FieldNSHMDType: {"nsh_mdtype", "", "NXOXM_NSH_MDTYPE", nsh(2), nsh(2), 8, fmtDec, exact, needNSH},
	FieldNSHNP:     {"nsh_np", "", "NXOXM_NSH_NP", nsh(3), nsh(3), 8, fmtDec, exact, needNSH},
	FieldNSHSPI:    {"nsh_spi", "", "NXOXM_NSH_SPI", nsh(4), nsh(4), 24, fmtHex, exact, needNSH},
	FieldNSHSI:     {"nsh_si", "", "NXOXM_NSH_SI", nsh(5), nsh(5), 8, fmtDec, exact, needNSH},
	FieldNSHC1:     {"nsh_c1", "", "NXOXM_NSH_C1", nsh(6), nsh(6), 32, fmtHex, masked, needNSH},
	FieldNSHC2:     {"nsh_c2", "", "NXOXM_NSH_C2", nsh(7), nsh(7), 32, fmtHex, masked, needNSH},
	FieldNSHC3:     {"nsh_c3", "", "NXOXM_NSH_C3", nsh(8), nsh(8), 32, fmtHex, masked, needNSH},
	FieldNSHC4:     {"nsh_c4", "", "NXOXM_NSH_C4", nsh(9), nsh(9), 32, fmtHex, masked, needNSH},
	FieldPktMark:   {"pkt_mark", "", "NXM_NX_PKT_MARK", nxm1(33), nxm1(33), 32, fmtHex, masked, 0},
	FieldCTState:   {"ct_state", "", "NXM_NX_CT_STATE", nxm1(105), nxm1(105), 32, fmtCTState, masked, 0},
	FieldCTZone:    {"ct_zone", "", "NXM_NX_CT_ZONE", nxm1(106), nxm1(106), 16, fmtHex, exact, 0},
	FieldCTMark:    {"ct_mark", "", "NXM_NX_CT_MARK", nxm1(107), nxm1(107), 32, fmtHex, masked, 0},
	FieldCTLabel:   {"ct_label", "", "NXM_NX_CT_LABEL", nxm1(108), nxm1(108), 128, fmtHex, masked, 0},
	FieldCTNWSrc:   {"ct_nw_src", "", "NXM_NX_CT_NW_SRC", nxm1(120), nxm1(120), 32, fmtIPv4, masked, needCT4},
	FieldCTIPv6Src: {"ct_ipv6_src", "", "NXM_NX_CT_IPV6_SRC", nxm1(122), nxm1(122), 128, fmtIPv6, masked, needCT6},
	FieldCTNWDst:   {"ct_nw_dst", "", "NXM_NX_CT_NW_DST", nxm1(121), nxm1(121), 32, fmtIPv4, masked, needCT4},
	FieldCTIPv6Dst: {"ct_ipv6_dst", "", "NXM_NX_CT_IPV6_DST", nxm1(123), nxm1(123), 128, fmtIPv6, masked, needCT6},
	FieldCTNWProto: {"ct_nw_proto", "", "NXM_NX_CT_NW_PROTO", nxm1(119), nxm1(119), 8, fmtDec, exact, needCT},
	FieldCTTPSrc:   {"ct_tp_src", "", "NXM_NX_CT_TP_SRC", nxm1(124), nxm1(124), 16, fmtDec, masked, needCTProto},
	FieldCTTPDst:   {"ct_tp_dst", "", "NXM_NX_CT_TP_DST", nxm1(125), nxm1(125), 16, fmtDec, masked, needCTProto},
	FieldMetadata:  {"metadata", "", "OXM_OF_METADATA", basic(2), basic(2), 64, fmtHex, masked, 0},
})

// withSeries fills in the fields that are numbered.
func withSeries(t [numFields]fieldInfo) [numFields]fieldInfo {
	series := func(first Field, n int, name, nxm string, id oxmID, bits uint16) {
		for i := range n {
			s := strconv.Itoa(i)
			t[first+Field(i)] = fieldInfo{name + s, "", nxm + s, id, id, bits, fmtHex, masked, needNothing}
			id.num++
		}
	}
	series(FieldReg0, 16, "reg", "NXM_NX_REG", nxm1(0), 32)
	series(FieldXReg0, 8, "xreg", "OXM_OF_PKT_REG", pktReg(0), 64)
	series(FieldXXReg0, 4, "xxreg", "NXM_NX_XXREG", nxm1(111), 128)
	series(FieldTunMetadata0, 64, "tun_metadata", "NXM_NX_TUN_METADATA", nxm1(40), maxTunMetadata*8)
	return t
}
