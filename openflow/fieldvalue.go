// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
)

// FieldValue is a field with a value and, when only some bits count, a mask. It is
// what a Match is made of and what SetField assigns.
type FieldValue struct {
	field       Field
	masked      bool
	value, mask uint128
	// long holds value and mask, each half of it, of a tunnel option longer than 16 bytes.
	long string
	// size is the length in bytes of a tunnel option's value; other fields have a fixed one.
	size uint8
}

// Value returns the whole field f with value v, which must fit into the field. Of a
// tunnel option it makes 4 bytes, or 8 if v needs them; for other lengths see Bytes.
func (f Field) Value(v uint64) FieldValue {
	return FieldValue{field: f, value: uint128{0, v}}.sized(bits.Len64(v))
}

// Masked returns the bits of f that are set in mask, with their value taken from v.
func (f Field) Masked(v, mask uint64) FieldValue {
	return FieldValue{field: f, value: uint128{0, v & mask}, mask: uint128{0, mask}, masked: true}.sized(bits.Len64(mask))
}

// Value128 returns the whole field f with the 128-bit value hi·2⁶⁴+lo.
func (f Field) Value128(hi, lo uint64) FieldValue {
	return FieldValue{field: f, value: uint128{hi, lo}}.sized(128)
}

// Masked128 returns the bits of f that are set in mask, with their value taken from v.
// Each number is given as its upper and lower half.
func (f Field) Masked128(v, mask [2]uint64) FieldValue {
	m := uint128{mask[0], mask[1]}
	return FieldValue{field: f, value: uint128{v[0], v[1]}.and(m), mask: m, masked: true}.sized(128)
}

// Bytes returns field f, a tunnel option, with a value and, unless it is nil, a mask of the same length,
// at most 124 bytes. With a nil value it stands for "the option is present".
func (f Field) Bytes(value, mask []byte) FieldValue {
	v := FieldValue{field: f, size: uint8(len(value)), masked: mask != nil || value == nil}
	if !f.isTunMetadata() || len(value) > maxTunMetadata || mask != nil && len(mask) != len(value) {
		return FieldValue{}
	}
	if len(value) > 16 {
		v.long = string(value) + string(mask)
		return v
	}
	v.value, v.mask = uintOf(value), uintOf(mask)
	return v
}

// sized returns v with its size set if it is a tunnel option: what n bits need, in words of 4 bytes.
func (v FieldValue) sized(n int) FieldValue {
	if v.field.isTunMetadata() {
		v.size = uint8(min(max((n+31)/32*4, 4), 16))
	}
	return v
}

// normal returns v without a mask that covers the whole field; a tunnel option with a mask of
// no bits as "the option is present".
func (v FieldValue) normal() FieldValue {
	switch {
	case !v.masked || v.long != "":
	case v.field.isTunMetadata():
		// Only the switch knows how long the option is, and so whether the mask covers it.
		if v.mask.isZero() {
			return v.field.Bytes(nil, nil)
		}
	case v.mask == ones(v.width()):
		v.masked, v.mask = false, uint128{}
	}
	return v
}

// trimmed returns v as SetField sends it: normal, and a tunnel option without leading zeros.
func (v FieldValue) trimmed() FieldValue {
	v = v.normal()
	switch {
	case !v.field.isTunMetadata():
	case v.long == "":
		v.size = uint8((v.value.or(v.mask).len() + 7) / 8)
	default:
		value, mask := []byte(v.long[:v.size]), []byte(v.long[v.size:])
		for len(value) > 0 && value[0] == 0 && (len(mask) == 0 || mask[0] == 0) {
			value, mask = value[1:], mask[min(1, len(mask)):]
		}
		if !v.masked {
			mask = nil
		}
		return v.field.Bytes(value, mask)
	}
	return v
}

// Num returns the value and the mask, which is all ones of the field's width if there is none, cut to 64 bits.
func (v FieldValue) Num() (value, mask uint64) { return v.value.lo, v.fullMask().lo }

// Field returns the field.
func (v FieldValue) Field() Field { return v.field }

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) num() uint128 {
	return uint128{0, uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))}
}

// Address is what the constructors of IP address fields take: one address or a prefix.
type Address interface{ netip.Addr | netip.Prefix }

// ipValue returns the address in field v4 or v6, as its family asks.
func ipValue[A Address](v4, v6 Field, a A) FieldValue {
	addr, n, whole := netip.Addr{}, 0, false
	switch a := any(a).(type) {
	case netip.Addr:
		addr, whole = a.Unmap(), true
	case netip.Prefix:
		addr, n = a.Addr(), a.Bits()
		whole = n == addr.BitLen()
	}
	if !addr.IsValid() {
		return FieldValue{}
	}
	fv := FieldValue{field: v4}
	width := uint(32)
	if addr.Is4() {
		b := addr.As4()
		fv.value.lo = uint64(binary.BigEndian.Uint32(b[:]))
	} else {
		b := addr.As16()
		fv.field, width = v6, 128
		fv.value = uint128{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
	}
	if !whole {
		fv.masked = true
		fv.mask = ones(uint(n)).shl(width - uint(n))
		fv.value = fv.value.and(fv.mask)
	}
	return fv
}

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

// NDTarget is the target of a neighbour solicitation or advertisement.
func NDTarget[A Address](a A) FieldValue { return ipValue(fieldNone, FieldNDTarget, a) }

// NDSLL is the source link-layer address option of a neighbour solicitation.
func NDSLL(mac MAC) FieldValue { return FieldValue{field: FieldNDSLL, value: mac.num()} }

// NDTLL is the target link-layer address option of a neighbour advertisement.
func NDTLL(mac MAC) FieldValue { return FieldValue{field: FieldNDTLL, value: mac.num()} }

// NDOptionsType is the type of the first option of a neighbour message.
func NDOptionsType(t uint8) FieldValue { return FieldNDOptionsType.Value(uint64(t)) }

// NDReserved is the word of flags and reserved bits of a neighbour message.
func NDReserved(v uint32) FieldValue { return FieldNDReserved.Value(uint64(v)) }

// Bits of NDReserved in a neighbour advertisement.
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

// TunnelID is the tunnel's key, such as a VNI.
func TunnelID(id uint64) FieldValue { return FieldTunnelID.Value(id) }

// TunSrc is the outer source address of a tunnelled packet.
func TunSrc[A Address](a A) FieldValue { return ipValue(FieldTunSrc, FieldTunIPv6Src, a) }

// TunDst is the outer destination address of a tunnelled packet.
func TunDst[A Address](a A) FieldValue { return ipValue(FieldTunDst, FieldTunIPv6Dst, a) }

// PktMark is the packet mark (skb mark on Linux).
func PktMark(v uint32) FieldValue { return FieldPktMark.Value(uint64(v)) }

// Metadata is the OpenFlow metadata register.
func Metadata(v, mask uint64) FieldValue { return FieldMetadata.Masked(v, mask) }

// ConjID is the identifier of a conjunction.
func ConjID(id uint32) FieldValue { return FieldConjID.Value(uint64(id)) }

// CTStateFlags is a set of connection tracking states.
type CTStateFlags uint32

// Connection tracking states.
const (
	CTNew  CTStateFlags = 1 << iota // new: starts a connection that is not committed yet
	CTEst                           // est: belongs to a committed connection
	CTRel                           // rel: related, such as an ICMP error
	CTRpl                           // rpl: in the reply's direction
	CTInv                           // inv: invalid
	CTTrk                           // trk: has passed conntrack
	CTSNAT                          // snat: the source was translated
	CTDNAT                          // dnat: the destination was translated
)

// CTState matches packets with all states of set and none of unset.
func CTState(set, unset CTStateFlags) FieldValue {
	return FieldCTState.Masked(uint64(set), uint64(set|unset))
}

// CTZone is the zone in which the packet was last tracked.
func CTZone(zone uint16) FieldValue { return FieldCTZone.Value(uint64(zone)) }

// CTMark is the bits of the connection's mark that are set in mask.
func CTMark(v, mask uint32) FieldValue { return FieldCTMark.Masked(uint64(v), uint64(mask)) }

// CTLabel is the bits of the connection's label that are set in mask; numbers are given as upper and lower half.
func CTLabel(v, mask [2]uint64) FieldValue { return FieldCTLabel.Masked128(v, mask) }

// CTIPSrc is the source address of the connection's original direction.
func CTIPSrc[A Address](a A) FieldValue { return ipValue(FieldCTNWSrc, FieldCTIPv6Src, a) }

// CTIPDst is the destination address of the connection's original direction.
func CTIPDst[A Address](a A) FieldValue { return ipValue(FieldCTNWDst, FieldCTIPv6Dst, a) }

// CTProto is the IP protocol of the connection.
func CTProto(p uint8) FieldValue { return FieldCTNWProto.Value(uint64(p)) }

// CTL4Src is the source port of the connection's original direction.
func CTL4Src(port uint16) FieldValue { return FieldCTTPSrc.Value(uint64(port)) }

// CTL4Dst is the destination port of the connection's original direction.
func CTL4Dst(port uint16) FieldValue { return FieldCTTPDst.Value(uint64(port)) }

// ParseMAC reads an Ethernet address such as "0a:c0:e1:00:00:01".
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address", s)
	}
	return MAC(hw), nil
}

// String prints m such as "0a:c0:e1:00:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }
