// SPDX-License-Identifier: Apache-2.0

package openflow

// InPort matches the port on which the packet came in.
func InPort(port uint32) FieldValue { return FieldInPort.Value(uint64(port)) }

// EthSrc is the Ethernet source.
func EthSrc(mac MAC) FieldValue { return FieldValue{field: FieldEthSrc, value: mac.num()} }

// EthDst is the Ethernet destination.
func EthDst(mac MAC) FieldValue { return FieldValue{field: FieldEthDst, value: mac.num()} }

// EthDstMask is the bits of the Ethernet destination that are set in mask.
func EthDstMask(mac, mask MAC) FieldValue {
	return FieldValue{field: FieldEthDst, value: mac.num().and(mask.num()), mask: mask.num(), masked: true}
}

// EthSrcMask is the bits of the Ethernet source that are set in mask.
func EthSrcMask(mac, mask MAC) FieldValue {
	return FieldValue{field: FieldEthSrc, value: mac.num().and(mask.num()), mask: mask.num(), masked: true}
}

// EthType is the Ethernet type, such as EthTypeIPv4.
func EthType(t uint16) FieldValue { return FieldEthType.Value(uint64(t)) }

// Ethernet types.
const (
	EthTypeIPv4 = 0x0800
	EthTypeARP  = 0x0806
	EthTypeVLAN = 0x8100
	EthTypeIPv6 = 0x86dd
	EthTypeMPLS = 0x8847
)

// IPProto is the IP protocol or IPv6 next header, such as IPProtoTCP.
func IPProto(p uint8) FieldValue { return FieldIPProto.Value(uint64(p)) }

// IP protocols.
const (
	IPProtoICMP   = 1
	IPProtoTCP    = 6
	IPProtoUDP    = 17
	IPProtoICMPv6 = 58
	IPProtoSCTP   = 132
)

// VLANVID is a VLAN tag with ID vid.
func VLANVID(vid uint16) FieldValue { return FieldVLANVID.Value(uint64(vid) | vlanPresent) }

// NoVLAN matches packets without a VLAN tag.
func NoVLAN() FieldValue { return FieldVLANVID.Value(0) }

// AnyVLAN matches packets with a VLAN tag.
func AnyVLAN() FieldValue { return FieldVLANVID.Masked(vlanPresent, vlanPresent) }

const vlanPresent = 0x1000

// IPSrc is the IPv4 or IPv6 source address or prefix.
func IPSrc[A Address](a A) FieldValue { return ipValue(FieldIPv4Src, FieldIPv6Src, a) }

// IPDst is the IPv4 or IPv6 destination address or prefix.
func IPDst[A Address](a A) FieldValue { return ipValue(FieldIPv4Dst, FieldIPv6Dst, a) }

// IPTTL is the TTL or IPv6 hop limit.
func IPTTL(ttl uint8) FieldValue { return FieldIPTTL.Value(uint64(ttl)) }

// IPDSCP is the differentiated services code point, 0 to 63.
func IPDSCP(dscp uint8) FieldValue { return FieldIPDSCP.Value(uint64(dscp)) }

// IPFrag matches fragments: the bits of mask among IPFragAny and IPFragLater must be as in v.
func IPFrag(v, mask uint8) FieldValue { return FieldIPFrag.Masked(uint64(v), uint64(mask)) }

// Bits of ip_frag.
const (
	IPFragAny   = 1 // the packet is a fragment
	IPFragLater = 2 // the packet is a fragment that is not the first
)

// L4Src is the source port of protocol proto: TCP, UDP or SCTP.
func L4Src(proto uint8, port uint16) FieldValue {
	return l4Field(proto, FieldTCPSrc).Value(uint64(port))
}

// L4Dst is the destination port of protocol proto: TCP, UDP or SCTP.
func L4Dst(proto uint8, port uint16) FieldValue {
	return l4Field(proto, FieldTCPDst).Value(uint64(port))
}

// L4SrcMask is L4Src with a mask.
func L4SrcMask(proto uint8, port, mask uint16) FieldValue {
	return l4Field(proto, FieldTCPSrc).Masked(uint64(port), uint64(mask))
}

// L4DstMask is L4Dst with a mask.
func L4DstMask(proto uint8, port, mask uint16) FieldValue {
	return l4Field(proto, FieldTCPDst).Masked(uint64(port), uint64(mask))
}

// l4Field returns the field of another protocol that plays the part that f plays for TCP.
func l4Field(proto uint8, f Field) Field {
	switch proto {
	case IPProtoTCP:
		return f
	case IPProtoUDP:
		return f - FieldTCPSrc + FieldUDPSrc
	case IPProtoSCTP:
		return f - FieldTCPSrc + FieldSCTPSrc
	}
	return fieldNone
}

// TCPFlags matches TCP flags: the bits of mask must be as in v.
func TCPFlags(v, mask uint16) FieldValue { return FieldTCPFlags.Masked(uint64(v), uint64(mask)) }

// ICMPv4Type is the ICMP type.
func ICMPv4Type(t uint8) FieldValue { return FieldICMPv4Type.Value(uint64(t)) }

// ICMPv4Code is the ICMP code.
func ICMPv4Code(c uint8) FieldValue { return FieldICMPv4Code.Value(uint64(c)) }

// ICMPv6Type is the ICMPv6 type.
func ICMPv6Type(t uint8) FieldValue { return FieldICMPv6Type.Value(uint64(t)) }

// ICMPv6Code is the ICMPv6 code.
func ICMPv6Code(c uint8) FieldValue { return FieldICMPv6Code.Value(uint64(c)) }

// NDTarget is the target of a neighbor solicitation or advertisement.
func NDTarget[A Address](a A) FieldValue { return ipValue(fieldNone, FieldNDTarget, a) }

// NDSLL is the source link-layer address option of a neighbor solicitation.
func NDSLL(mac MAC) FieldValue { return FieldValue{field: FieldNDSLL, value: mac.num()} }

// NDTLL is the target link-layer address option of a neighbor advertisement.
func NDTLL(mac MAC) FieldValue { return FieldValue{field: FieldNDTLL, value: mac.num()} }

// NDOptionsType is the type of the first option of a neighbor message.
func NDOptionsType(t uint8) FieldValue { return FieldNDOptionsType.Value(uint64(t)) }

// NDReserved is the word of flags and reserved bits of a neighbor message.
func NDReserved(v uint32) FieldValue { return FieldNDReserved.Value(uint64(v)) }

// Bits of NDReserved in a neighbor advertisement.
const (
	NDRouter    = 1 << 31
	NDSolicited = 1 << 30
	NDOverride  = 1 << 29
)

// ARPOp is the ARP operation: ARPRequest or ARPReply.
func ARPOp(op uint16) FieldValue { return FieldARPOp.Value(uint64(op)) }

// ARP operations.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARPSPA is the sender's IPv4 address or prefix in ARP.
func ARPSPA[A Address](a A) FieldValue { return ipValue(FieldARPSPA, fieldNone, a) }

// ARPTPA is the target's IPv4 address or prefix in ARP.
func ARPTPA[A Address](a A) FieldValue { return ipValue(FieldARPTPA, fieldNone, a) }

// ARPSHA is the sender's Ethernet address in ARP.
func ARPSHA(mac MAC) FieldValue { return FieldValue{field: FieldARPSHA, value: mac.num()} }

// ARPTHA is the target's Ethernet address in ARP.
func ARPTHA(mac MAC) FieldValue { return FieldValue{field: FieldARPTHA, value: mac.num()} }
