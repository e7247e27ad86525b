// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"

	"pgregory.net/rapid"
)

// packetKind is a kind of packets that generated flows are about, as the match that selects it.
type packetKind struct {
	base []FieldValue
	// fields are what may be matched and set further.
	fields []Field
	// invalid says that the match is on packets that conntrack finds invalid.
	invalid bool
}

var (
	l2Fields = []Field{FieldEthSrc, FieldEthDst}
	ipFields = []Field{FieldIPDSCP, FieldIPECN, FieldIPTTL}
	v4Fields = append([]Field{FieldIPv4Src, FieldIPv4Dst}, ipFields...)
	v6Fields = append([]Field{FieldIPv6Src, FieldIPv6Dst, FieldIPv6Label}, ipFields...)
)

func kindOf(base []FieldValue, fields ...[]Field) packetKind {
	k := packetKind{base: base, fields: append([]Field(nil), l2Fields...)}
	for _, f := range fields {
		k.fields = append(k.fields, f...)
	}
	return k
}

var packetKinds = []packetKind{
	kindOf(nil),
	kindOf([]FieldValue{EthType(EthTypeIPv4)}, v4Fields),
	kindOf([]FieldValue{EthType(EthTypeIPv6)}, v6Fields),
	kindOf(shorthands["tcp"], v4Fields, []Field{FieldTCPSrc, FieldTCPDst}),
	kindOf(shorthands["tcp6"], v6Fields, []Field{FieldTCPSrc, FieldTCPDst}),
	kindOf(shorthands["udp"], v4Fields, []Field{FieldUDPSrc, FieldUDPDst}),
	kindOf(shorthands["udp6"], v6Fields, []Field{FieldUDPSrc, FieldUDPDst}),
	kindOf(shorthands["sctp"], v4Fields, []Field{FieldSCTPSrc, FieldSCTPDst}),
	kindOf(shorthands["icmp"], v4Fields, []Field{FieldICMPv4Type, FieldICMPv4Code}),
	kindOf(shorthands["icmp6"], v6Fields),
	kindOf([]FieldValue{EthType(EthTypeIPv6), IPProto(58), ICMPv6Type(135), ICMPv6Code(0)}, v6Fields,
		[]Field{FieldNDTarget, FieldNDSLL}),
	kindOf([]FieldValue{EthType(EthTypeIPv6), IPProto(58), ICMPv6Type(136), ICMPv6Code(0)}, v6Fields,
		[]Field{FieldNDTarget, FieldNDTLL, FieldNDReserved, FieldNDOptionsType}),
	kindOf(shorthands["arp"], []Field{FieldARPOp, FieldARPSPA, FieldARPTPA, FieldARPSHA, FieldARPTHA}),
	kindOf([]FieldValue{VLANVID(5)}, []Field{FieldVLANPCP}),
	kindOf(shorthands["mpls"], []Field{FieldMPLSLabel, FieldMPLSTC, FieldMPLSTTL}),
}

// metadataFields can be matched with any packet; all but the last three can be set.
var metadataFields = []Field{
	FieldTunnelID, FieldTunSrc, FieldTunDst, FieldTunIPv6Src, FieldTunIPv6Dst, FieldPktMark, FieldMetadata,
	FieldReg0, FieldReg1, FieldReg3, FieldReg6, FieldReg7, FieldXReg4, FieldXXReg3, FieldTunMetadata0,
	FieldCTMark, FieldCTLabel, FieldCTZone,
}

var settableMetadata = metadataFields[:len(metadataFields)-3]

// genFieldValue makes a value of f, with a mask if it takes one.
func genFieldValue(t *rapid.T, f Field, masks bool) FieldValue {
	v := FieldValue{field: f, size: 4}
	if !f.isTunMetadata() {
		v.size = 0
	}
	bits := ones(v.width())
	draw := func(label string) uint128 {
		return uint128{rapid.Uint64().Draw(t, label), rapid.Uint64().Draw(t, label)}.and(bits)
	}
	v.value = draw("value")
	if f.info().format == fmtIPv6 {
		v.value.hi |= 1 << 63 // the C library prints ::1:2 as ::0.1.0.2
	}
	switch f {
	case FieldARPOp: // Open vSwitch keeps 8 bits of it
		v.value.lo &= 0xff
	case FieldTunSrc, FieldTunDst, FieldTunIPv6Src, FieldTunIPv6Dst:
		v.value.lo |= 1 // a match on 0 is one on "not tunneled", which OVS forgets
	}
	if masks && f.Maskable() && rapid.Bool().Draw(t, "masked") {
		v.masked, v.mask = true, draw("mask")
		if v.mask.isZero() {
			v.mask = bits
		}
		if f.info().format == fmtIPv6 {
			v.mask.hi |= 1 << 63
		}
		v.value = v.value.and(v.mask)
		v.masked = v.mask != bits // of a tunnel option, only the switch knows that it is the same
	}
	if !v.masked {
		v.mask = uint128{}
	}
	return v.normal()
}

// genFlow makes a flow that a switch accepts.
func genFlow(t *rapid.T) Flow {
	kind := rapid.SampledFrom(packetKinds).Draw(t, "kind")
	kind.invalid = false
	fields := append([]FieldValue(nil), kind.base...)
	used := map[Field]bool{}
	for range rapid.IntRange(0, 5).Draw(t, "nfields") {
		f := rapid.SampledFrom(append(kind.fields, metadataFields...)).Draw(t, "field")
		if !used[f] && find(fields, f) == nil {
			used[f] = true
			fields = append(fields, genFieldValue(t, f, true))
		}
	}
	if rapid.Bool().Draw(t, "in_port") {
		fields = append(fields, InPort(rapid.Uint32Range(1, 0xfeff).Draw(t, "port")))
	}
	if rapid.Bool().Draw(t, "ct_state") {
		v := FieldCTState.Masked(rapid.Uint64Range(0, 0xff).Draw(t, "set"), rapid.Uint64Range(1, 0xff).Draw(t, "mask"))
		kind.invalid = CTStateFlags(v.value.lo)&CTInv != 0
		fields = append(fields, v)
	}
	f := Flow{
		Table:       rapid.Uint8Range(0, 100).Draw(t, "table"),
		Priority:    rapid.Uint16().Draw(t, "priority"),
		Cookie:      rapid.Uint64Max(1<<64-2).Draw(t, "cookie"), // all ones means "no change"
		Match:       NewMatch(fields...),
		IdleTimeout: rapid.Uint16().Draw(t, "idle"),
		HardTimeout: rapid.Uint16().Draw(t, "hard"),
		Importance:  rapid.Uint16().Draw(t, "importance"),
		Flags:       FlowFlags(rapid.Uint16().Draw(t, "flags")) & lastingFlags,
	}
	f.Actions = genActions(t, &kind, 3)
	if rapid.Bool().Draw(t, "goto") {
		f.Goto = rapid.Uint8Range(f.Table+1, tableMax).Draw(t, "goto table")
	}
	if rapid.Bool().Draw(t, "metadata") {
		f.MetadataMask = rapid.Uint64Min(1).Draw(t, "metadata mask")
		f.Metadata = rapid.Uint64().Draw(t, "metadata value") & f.MetadataMask
	}
	if rapid.Bool().Draw(t, "write") {
		f.WriteActions = []Action{Output(rapid.Uint32Range(1, 0xfeff).Draw(t, "written port"))}
	}
	f.ClearActions = rapid.Bool().Draw(t, "clear")
	return f
}

// genActions makes actions for packets of a kind.
func genActions(t *rapid.T, kind *packetKind, depth int) (list []Action) {
	for range rapid.IntRange(0, 4).Draw(t, "nactions") {
		list = append(list, genAction(t, kind, depth))
	}
	return list
}

// genSubfield makes bits of one of the fields.
func genSubfield(t *rapid.T, fields ...Field) Subfield {
	f := rapid.SampledFrom(fields).Draw(t, "field")
	lo := rapid.IntRange(0, f.Width()-1).Draw(t, "lo")
	return f.Bits(lo, rapid.IntRange(lo, min(f.Width()-1, lo+63)).Draw(t, "hi"))
}

func genAction(t *rapid.T, kind *packetKind, depth int) Action {
	switch rapid.IntRange(0, 17).Draw(t, "action") {
	case 0:
		return Output(rapid.Uint32Range(1, 0xfeff).Draw(t, "port"))
	case 1:
		return Output(rapid.SampledFrom([]uint32{PortInPort, PortNormal, PortFlood, PortAll, PortController, PortLocal}).Draw(t, "port"))
	case 2:
		return OutputField(genSubfield(t, FieldReg3, FieldMetadata, FieldXReg2))
	case 3:
		f := rapid.SampledFrom(append(kind.fields, settableMetadata...)).Draw(t, "set")
		return SetField(genFieldValue(t, f, true).trimmed())
	case 4:
		from := genSubfield(t, append(append([]Field(nil), kind.fields...), FieldReg1, FieldMetadata, FieldCTMark)...)
		return Move(from, FieldXXReg1.Bits(0, int(from.N)-1))
	case 5:
		return Resubmit(rapid.Uint8().Draw(t, "table"))
	case 6:
		return ResubmitAction{InPort: rapid.Uint32Range(1, 0xfeff).Draw(t, "port"), Table: rapid.Uint8().Draw(t, "table")}
	case 7:
		return ToGroup(7)
	case 8:
		return ToMeter(5)
	case 9:
		return Note(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "note"))
	case 10:
		return genController(t)
	case 11:
		return Push(genSubfield(t, FieldReg0, FieldXReg1, FieldMetadata, FieldEthSrc))
	case 12:
		return Pop(genSubfield(t, FieldReg0, FieldXReg1, FieldMetadata, FieldEthSrc))
	case 13:
		return CheckPktLarger(rapid.Uint16().Draw(t, "len"), FieldReg5.Bits(3, 3))
	case 14:
		if depth > 0 {
			return Clone(genActions(t, kind, depth-1)...)
		}
	case 15:
		return genLearn(t, kind)
	case 16:
		if len(kind.base) > 0 && (kind.base[0] == EthType(EthTypeIPv4) || kind.base[0] == EthType(EthTypeIPv6)) {
			return genCT(t, kind.base[0] == EthType(EthTypeIPv4), !kind.invalid)
		}
	case 17:
		return rapid.SampledFrom([]Action{Exit(), CTClear(), SetQueue(7), PopQueue(), OutputTrunc(5, 100)}).Draw(t, "simple")
	}
	return Output(1)
}

func genController(t *rapid.T) Action {
	c := Controller{
		ID:       rapid.Uint16Min(1).Draw(t, "id"),
		Reason:   PacketInReason(rapid.IntRange(0, 5).Draw(t, "reason")),
		Userdata: string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "userdata")),
		Pause:    rapid.Bool().Draw(t, "pause"),
		Meter:    rapid.SampledFrom([]uint32{0, 5}).Draw(t, "meter"),
	}
	c.setMaxLen(rapid.Uint16().Draw(t, "max_len"))
	return c
}

func genLearn(t *rapid.T, kind *packetKind) Action {
	l := Learn{
		Table:         rapid.Uint8Range(0, tableMax).Draw(t, "table"),
		Priority:      rapid.Uint16().Draw(t, "priority"),
		Cookie:        rapid.Uint64().Draw(t, "cookie"),
		IdleTimeout:   rapid.Uint16().Draw(t, "idle"),
		HardTimeout:   rapid.Uint16().Draw(t, "hard"),
		SendFlowRem:   rapid.Bool().Draw(t, "send"),
		DeleteLearned: rapid.Bool().Draw(t, "delete"),
		Limit:         rapid.Uint32Range(0, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "result") {
		l.ResultDst = FieldReg9.Bits(5, 5)
	}
	for _, v := range kind.base {
		l.Specs = append(l.Specs, LearnMatchValue(v))
	}
	for _, f := range kind.fields[:rapid.IntRange(0, 2).Draw(t, "nspecs")] {
		l.Specs = append(l.Specs, LearnMatchField(f.All(), f.All()))
	}
	if rapid.Bool().Draw(t, "load") {
		l.Specs = append(l.Specs, LearnLoadField(FieldReg2.All(), FieldReg3.All()),
			LearnLoadValue(FieldReg4.Bits(16, 18).Value(2)), LearnOutputTo(FieldReg5.Bits(0, 15)))
	}
	return l
}

func genCT(t *rapid.T, v4, mayCommit bool) Action {
	a := CT{Commit: mayCommit && rapid.Bool().Draw(t, "commit"), Zone: rapid.Uint16().Draw(t, "zone")}
	if rapid.Bool().Draw(t, "zone from") {
		a.Zone, a.ZoneFrom = 0, FieldReg13.Bits(3, 18)
	}
	if rapid.Bool().Draw(t, "table") {
		a.Table = Table(rapid.Uint8Range(0, tableMax).Draw(t, "ct table"))
	}
	if rapid.Bool().Draw(t, "nat") {
		a.NAT = &NAT{}
	}
	if !a.Commit {
		return a
	}
	a.Force = rapid.Bool().Draw(t, "force")
	if a.NAT != nil && rapid.Bool().Draw(t, "nat range") {
		*a.NAT = genNAT(t, v4)
	}
	if rapid.Bool().Draw(t, "exec") {
		a.Exec = []Action{
			SetField(genFieldValue(t, FieldCTMark, true)), SetField(genFieldValue(t, FieldCTLabel, true)),
			Move(FieldReg1.Bits(3, 9), FieldCTMark.Bits(5, 11)),
		}
	}
	return a
}

func genNAT(t *rapid.T, v4 bool) NAT {
	n := NAT{SNAT: rapid.Bool().Draw(t, "snat"), Persistent: rapid.Bool().Draw(t, "persistent")}
	n.DNAT = !n.SNAT
	n.Hash = rapid.Bool().Draw(t, "hash")
	n.Random = !n.Hash && rapid.Bool().Draw(t, "random")
	n.AddrMin = netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "addr")})
	if !v4 {
		n.AddrMin = netip.MustParseAddr("fd00::1")
	}
	if rapid.Bool().Draw(t, "addresses") {
		n.AddrMax = n.AddrMin.Next()
	}
	if rapid.Bool().Draw(t, "ports") {
		n.PortMin = rapid.Uint16Range(1, 60000).Draw(t, "port")
		n.PortMax = rapid.SampledFrom([]uint16{0, n.PortMin + 5}).Draw(t, "last port")
	}
	return n
}
