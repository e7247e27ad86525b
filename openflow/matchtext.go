// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"strconv"
	"strings"
)

// String prints m as "ovs-ofctl --no-names dump-flows" does, "" for the match of every packet.
func (m Match) String() string {
	p := matchPrinter{}
	for v := range m.all {
		p.fields = append(p.fields, v)
	}
	p.print()
	return strings.TrimSuffix(p.String(), ",")
}

// matchPrinter prints the fields of a match in ovs-ofctl's order, each followed by a comma.
type matchPrinter struct {
	strings.Builder
	fields []FieldValue
}

// Fields in the order of printing; what lies between has rules of its own.
var (
	printFirst = []Field{
		FieldPktMark, FieldRecircID, FieldDPHash, FieldConjID, FieldActsetOutput, FieldCTState, FieldCTZone,
		FieldCTMark, FieldCTLabel, FieldCTNWSrc, FieldCTIPv6Src, FieldCTNWDst, FieldCTIPv6Dst, FieldCTNWProto,
		FieldCTTPSrc, FieldCTTPDst, FieldPacketType,
	}
	printTunnel = []Field{
		FieldTunnelID, FieldTunSrc, FieldTunDst, FieldTunIPv6Src, FieldTunIPv6Dst, FieldTunGBPID, FieldTunGBPFlags,
		FieldTunERSPANVer, FieldTunERSPANIdx, FieldTunERSPANDir, FieldTunERSPANHWID, FieldTunGTPUFlags,
		FieldTunGTPUMsgType, FieldTunFlags,
	}
	printNetwork = []Field{
		FieldIPv6Src, FieldIPv6Dst, FieldIPv6Label, FieldARPSPA, FieldARPTPA, FieldNSHFlags, FieldNSHTTL,
		FieldNSHMDType, FieldNSHNP, FieldNSHSPI, FieldNSHSI, FieldNSHC1, FieldNSHC2, FieldNSHC3, FieldNSHC4,
		FieldIPv4Src, FieldIPv4Dst,
	}
	printLast = []Field{
		FieldARPOp, FieldARPSHA, FieldARPTHA, FieldIPDSCP, FieldIPECN, FieldIPTTL, FieldMPLSLabel, FieldMPLSTC,
		FieldMPLSTTL, FieldMPLSBOS, FieldIPFrag, FieldICMPv4Type, FieldICMPv4Code, FieldICMPv6Type, FieldICMPv6Code,
		FieldNDTarget, FieldNDSLL, FieldNDTLL, FieldNDReserved, FieldNDOptionsType, FieldTCPSrc, FieldTCPDst,
		FieldUDPSrc, FieldUDPDst, FieldSCTPSrc, FieldSCTPDst, FieldTCPFlags,
	}
)

func (p *matchPrinter) print() {
	p.each(printFirst)
	protoDone := p.packetKind()
	p.registers()
	p.each(printTunnel)
	for f := FieldTunMetadata0; f < FieldTunMetadata0+64; f++ {
		p.one(f)
	}
	p.one(FieldMetadata)
	p.one(FieldInPort)
	p.vlan()
	p.one(FieldEthSrc)
	p.one(FieldEthDst)
	if v := find(p.fields, FieldEthType); v != nil && kindNames[uint16(v.value.lo)] == "" {
		fmt.Fprintf(p, "dl_type=0x%04x,", v.value.lo)
	}
	p.each(printNetwork)
	if !protoDone {
		p.one(FieldIPProto)
	}
	p.each(printLast)
	for _, v := range p.fields {
		if v.field == fieldNone {
			fmt.Fprintf(p, "<%s>,", explainOXM(v.long))
		}
	}
}

func (p *matchPrinter) each(fields []Field) {
	for _, f := range fields {
		p.one(f)
	}
}

// one prints field f if the match has it.
func (p *matchPrinter) one(f Field) {
	v := find(p.fields, f)
	if v == nil {
		return
	}
	info := f.info()
	name := info.match
	if name == "" {
		name = info.name
	}
	p.WriteString(name)
	if text := v.matchText(); text != "" {
		p.WriteByte('=')
		p.WriteString(text)
	}
	p.WriteByte(',')
}

// matchText prints a value as ovs-ofctl does in a match, which for some fields
// differs from actions.
func (v *FieldValue) matchText() string {
	if v.field.isTunMetadata() {
		return v.text()
	}
	switch v.field {
	case FieldPktMark, FieldDPHash, FieldRecircID, FieldCTMark, FieldTunnelID, FieldMetadata:
		return withMask(v.normal(), hexText)
	case FieldIPDSCP:
		return strconv.FormatUint(v.value.lo<<2, 10)
	case FieldCTZone:
		return strconv.FormatUint(v.value.lo, 10)
	case FieldIPv6Label:
		return maskedNum(v.value.lo, v.fullMask().lo, ones(v.width()).lo, "0x%05x", "0x%05x")
	case FieldTunERSPANVer, FieldTunERSPANDir, FieldTunGTPUMsgType:
		return strconv.FormatUint(v.value.lo, 10)
	case FieldTunGBPFlags, FieldTunERSPANIdx, FieldTunERSPANHWID, FieldTunGTPUFlags:
		return hexText(v.value)
	case FieldTCPSrc, FieldTCPDst, FieldUDPSrc, FieldUDPDst, FieldSCTPSrc, FieldSCTPDst, FieldCTTPSrc, FieldCTTPDst,
		FieldTunGBPID:
		return maskedNum(v.value.lo, v.fullMask().lo, 0xffff, "%d", "%#x")
	}
	return v.text()
}

// maskedNum prints v, and also mask if it is not all.
func maskedNum(v, mask, all uint64, whole, part string) string {
	if mask == all {
		return fmt.Sprintf(whole, v)
	}
	return fmt.Sprintf(part+"/"+part, v, mask)
}

// kindNames are the words that stand for Ethernet types.
var kindNames = map[uint16]string{
	EthTypeIPv4: "ip", EthTypeIPv6: "ipv6", EthTypeARP: "arp", etherTypeRARP: "rarp",
	EthTypeMPLS: "mpls", etherTypeMPLSMcast: "mplsm",
}

// protoNames are the words that stand for IP protocols, with a 6 behind them for IPv6.
var protoNames = map[uint8]string{IPProtoTCP: "tcp", IPProtoUDP: "udp", IPProtoSCTP: "sctp"}

// packetKind prints a word for the Ethernet type and protocol. It reports whether
// that says the protocol.
func (p *matchPrinter) packetKind() (protoDone bool) {
	et := find(p.fields, FieldEthType)
	if et == nil {
		return false
	}
	word := kindNames[uint16(et.value.lo)]
	v6 := et.value.lo == EthTypeIPv6
	if proto := find(p.fields, FieldIPProto); proto != nil && (v6 || et.value.lo == EthTypeIPv4) {
		name := protoNames[uint8(proto.value.lo)]
		switch {
		case name != "" && v6:
			name += "6"
		case !v6 && proto.value.lo == IPProtoICMP:
			name = "icmp"
		case v6 && proto.value.lo == IPProtoICMPv6:
			name = "icmp6"
		}
		if name != "" {
			word, protoDone = name, true
		}
	}
	if word != "" {
		p.WriteString(word + ",")
	}
	return protoDone
}

// registers prints reg0 to reg15, which the match holds in pairs.
func (p *matchPrinter) registers() {
	for x := range 8 {
		v := find(p.fields, FieldXReg0+Field(x))
		if v == nil {
			continue
		}
		mask := v.fullMask().lo
		p.register(2*x, uint32(v.value.lo>>32), uint32(mask>>32))
		p.register(2*x+1, uint32(v.value.lo), uint32(mask))
	}
}

func (p *matchPrinter) register(n int, v, mask uint32) {
	if mask == 0 {
		return
	}
	fmt.Fprintf(p, "reg%d=%s", n, hexText(uint128{0, uint64(v)}))
	if mask != 1<<32-1 {
		fmt.Fprintf(p, "/%#x", mask)
	}
	p.WriteByte(',')
}

// vlan prints dl_vlan and dl_vlan_pcp if they say all, else vlan_tci.
func (p *matchPrinter) vlan() {
	vid, pcp := find(p.fields, FieldVLANVID), find(p.fields, FieldVLANPCP)
	if vid == nil && pcp == nil {
		return
	}
	var v, mask uint64
	if vid != nil {
		v, mask = vid.value.lo, vid.fullMask().lo
	}
	if pcp != nil {
		v, mask = v|pcp.value.lo<<13, mask|7<<13
	}
	vidMask := mask & 0xfff
	switch {
	case v&vlanPresent != 0 && (vidMask == 0xfff || vidMask == 0 && pcp != nil):
		if vidMask != 0 {
			fmt.Fprintf(p, "dl_vlan=%d,", v&0xfff)
		}
		if pcp != nil {
			fmt.Fprintf(p, "dl_vlan_pcp=%d,", pcp.value.lo)
		}
	case mask == 0xffff:
		fmt.Fprintf(p, "vlan_tci=0x%04x,", v)
	default:
		fmt.Fprintf(p, "vlan_tci=0x%04x/0x%04x,", v, mask)
	}
}
