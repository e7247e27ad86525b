// SPDX-License-Identifier: Apache-2.0

package openflow

// Field identifies a match field of a packet or of its metadata.
//
// The numeric order of the constants is the order in which Open vSwitch puts
// fields into an OXM match; it has no other meaning. The zero Field is not a
// field.
type Field uint8

// The fields that Open vSwitch knows, in the order in which it encodes them.
const (
	fieldNone Field = iota

	FieldPacketType   // packet_type: namespace and type, 0 (Ethernet) on ordinary bridges
	FieldDPHash       // dp_hash: hash that the datapath computed
	FieldRecircID     // recirc_id: recirculation context
	FieldConjID       // conj_id: the conjunction that a packet satisfied
	FieldInPort       // in_port: 32-bit OpenFlow port
	FieldActsetOutput // actset_output: output port of the action set
	FieldEthSrc
	FieldEthDst
	FieldEthType
	FieldVLANVID // vlan_vid: 12 bits of VLAN ID and, as 0x1000, "a tag is present"
	FieldVLANPCP
	FieldMPLSTC
	FieldMPLSBOS
	FieldMPLSTTL
	FieldMPLSLabel
	FieldIPv4Src
	FieldIPv4Dst
	FieldIPv6Src
	FieldIPv6Dst
	FieldIPFrag // ip_frag: IPFragAny and IPFragLater
	FieldIPDSCP // ip_dscp: the upper six bits of TOS, shifted down
	FieldIPECN
	FieldIPTTL     // nw_ttl: TTL or IPv6 hop limit
	FieldIPv6Label // ipv6_label: flow label, 20 bits
	FieldIPProto
	FieldTCPSrc
	FieldTCPDst
	FieldTCPFlags
	FieldUDPSrc
	FieldUDPDst
	FieldSCTPSrc
	FieldSCTPDst
	FieldICMPv4Type
	FieldICMPv4Code
	FieldICMPv6Type
	FieldICMPv6Code
	// nd_reserved: the 32 bits of flags (R, S, O) and reserved bits in an advertisement.
	FieldNDReserved
	FieldNDTarget
	FieldNDOptionsType // nd_options_type: type of the first option
	FieldNDSLL
	FieldNDTLL
	FieldARPOp
	FieldARPSPA
	FieldARPTPA
	FieldARPSHA
	FieldARPTHA
	FieldTunnelID
	FieldTunFlags
	FieldTunSrc
	FieldTunDst
	FieldTunIPv6Src
	FieldTunIPv6Dst
	FieldTunGBPID
	FieldTunGBPFlags
	FieldTunMetadata0 // tun_metadata0 … tun_metadata63: use TunMetadataField
)

// The list goes on behind the 64 tun_metadata fields.
const (
	FieldTunERSPANIdx Field = FieldTunMetadata0 + 64 + iota
	FieldTunERSPANVer
	FieldTunERSPANDir
	FieldTunERSPANHWID
	FieldTunGTPUFlags
	FieldTunGTPUMsgType
	FieldNSHFlags
	FieldNSHTTL
	FieldNSHMDType
	FieldNSHNP
	FieldNSHSPI
	FieldNSHSI
	FieldNSHC1
	FieldNSHC2
	FieldNSHC3
	FieldNSHC4
	FieldReg0
	FieldReg1
	FieldReg2
	FieldReg3
	FieldReg4
	FieldReg5
	FieldReg6
	FieldReg7
	FieldReg8
	FieldReg9
	FieldReg10
	FieldReg11
	FieldReg12
	FieldReg13
	FieldReg14
	FieldReg15
	FieldXReg0 // xreg0: reg0 (upper half) and reg1
	FieldXReg1
	FieldXReg2
	FieldXReg3
	FieldXReg4
	FieldXReg5
	FieldXReg6
	FieldXReg7
	FieldXXReg0 // xxreg0: reg0 (uppermost) to reg3
	FieldXXReg1
	FieldXXReg2
	FieldXXReg3
	FieldPktMark
	FieldCTState // ct_state: CTState… flags
	FieldCTZone
	FieldCTMark
	FieldCTLabel
	FieldCTNWSrc // ct_nw_src: IPv4 source of the connection's original direction
	FieldCTIPv6Src
	FieldCTNWDst
	FieldCTIPv6Dst
	FieldCTNWProto
	FieldCTTPSrc
	FieldCTTPDst
	FieldMetadata
	FieldVLANTCI  // vlan_tci: only in actions; matches use vlan_vid and vlan_pcp
	FieldInPort16 // in_port: 16-bit form (NXM_OF_IN_PORT), for stack, move and learn
	FieldIPTOS    // nw_tos: DSCP unshifted (NXM_OF_IP_TOS), only in learn and move
	numFields
)

// Reg returns the field of register n, 0 to 15.
func Reg(n int) Field { return FieldReg0 + Field(n) }

// XReg returns the field of the 64-bit register n, 0 to 7.
func XReg(n int) Field { return FieldXReg0 + Field(n) }

// XXReg returns the field of the 128-bit register n, 0 to 3.
func XXReg(n int) Field { return FieldXXReg0 + Field(n) }

// TunMetadataField returns the field of tunnel option slot n, 0 to 63, which a TLV
// table maps to a Geneve option.
func TunMetadataField(n int) Field { return FieldTunMetadata0 + Field(n) }

// Bits returns bits lo to hi, both included, of f; bit 0 is the least significant.
func (f Field) Bits(lo, hi int) Subfield { return Subfield{f, uint16(lo), uint16(hi - lo + 1)} }

// Subfield is a run of N bits of a field, starting at bit Ofs. The zero Subfield
// stands for "none".
type Subfield struct {
	Field Field
	Ofs   uint16
	N     uint16
}

// Value returns the assignment of v to the bits of s, for a match or SetField.
func (s Subfield) Value(v uint64) FieldValue {
	bits := ones(uint(s.N))
	value := uint128{0, v}
	if value.and(bits) != value {
		value = bits.not() // too large: an assignment that is refused
	}
	fv := FieldValue{field: s.Field, value: value.shl(uint(s.Ofs)), mask: bits.shl(uint(s.Ofs)), masked: true}
	return fv.sized(int(s.Ofs + s.N))
}

// Set reports whether s names bits of a field.
func (s Subfield) Set() bool { return s.Field != fieldNone }

// All returns all bits of f.
func (f Field) All() Subfield { return Subfield{f, 0, uint16(f.Width())} }

// Width returns the number of bits of f; of a tunnel option, the most that it can have.
func (f Field) Width() int { return int(f.info().bits) }

// Maskable reports whether a match or SetField can take a part of the bits of f.
func (f Field) Maskable() bool { return f.info().maskable }

// Writable reports whether SetField and Move can change f. Of the fields of conntrack,
// ct_mark and ct_label are writable, but only within CT.
func (f Field) Writable() bool { return f.valid() && !readOnly[f] }

// readOnly are the fields that no action changes.
var readOnly = map[Field]bool{
	FieldPacketType: true, FieldDPHash: true, FieldRecircID: true, FieldConjID: true, FieldActsetOutput: true,
	FieldEthType: true, FieldMPLSBOS: true, FieldIPProto: true, FieldIPFrag: true, FieldTCPFlags: true,
	FieldTunGTPUFlags: true, FieldTunGTPUMsgType: true, FieldNSHMDType: true, FieldNSHNP: true, FieldCTState: true,
	FieldCTZone: true, FieldCTNWSrc: true, FieldCTNWDst: true, FieldCTIPv6Src: true, FieldCTIPv6Dst: true,
	FieldCTNWProto: true, FieldCTTPSrc: true, FieldCTTPDst: true,
}

// String returns the name of f as ovs-ofctl prints it in actions, such as "ip_dst".
func (f Field) String() string {
	if !f.valid() {
		return "none"
	}
	return f.info().name
}

// info describes f; an f out of range counts as no field.
func (f Field) info() *fieldInfo {
	if f >= numFields {
		f = fieldNone
	}
	return &fieldTable[f]
}

func (f Field) valid() bool         { return f > fieldNone && f < numFields }
func (f Field) isTunMetadata() bool { return f >= FieldTunMetadata0 && f < FieldTunMetadata0+64 }
