// SPDX-License-Identifier: Apache-2.0

package openflow

// TunnelID is the tunnel's key, such as a VNI.
func TunnelID(id uint64) FieldValue { return FieldTunnelID.Value(id) }

// TunSrc is the outer source address of a tunneled packet.
func TunSrc[A Address](a A) FieldValue { return ipValue(FieldTunSrc, FieldTunIPv6Src, a) }

// TunDst is the outer destination address of a tunneled packet.
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

// CTLabel is the bits of the connection's label that are set in mask; numbers are given as upper
// and lower half.
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
