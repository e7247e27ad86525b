// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"math/bits"
	"strings"
)

// Learn adds a flow made from the packet, or refreshes it.
type Learn struct {
	Table          uint8
	Priority       uint16
	Cookie         uint64
	IdleTimeout    uint16 // seconds, 0: none
	HardTimeout    uint16
	FinIdleTimeout uint16 // seconds after a TCP FIN or RST, 0: unchanged
	FinHardTimeout uint16
	SendFlowRem    bool
	// delete learned flows when the last flow that learns with this cookie goes.
	DeleteLearned bool
	Limit         uint32 // most flows with Table and Cookie, 0: no limit
	// A bit that is set if the flow exists or was added, cleared if Limit was reached.
	ResultDst Subfield
	Specs     []LearnSpec
}

// LearnSpec is one piece of a learned flow: a match or an action on bits of a field.
type LearnSpec struct {
	Kind  LearnKind
	Dst   Subfield // zero for LearnOutput
	Src   Subfield // bits of this packet; zero: a constant
	value uint128
}

// LearnKind says what a LearnSpec adds to the learned flow.
type LearnKind uint8

// Kinds.
const (
	LearnMatch LearnKind = iota
	LearnLoad
	LearnOutput
)

// LearnMatchField makes the learned flow match bits dst of later packets with bits src of this one.
func LearnMatchField(dst, src Subfield) LearnSpec {
	return LearnSpec{Kind: LearnMatch, Dst: dst, Src: src}
}

// LearnMatchValue makes the learned flow match v. Its mask must be contiguous.
func LearnMatchValue(v FieldValue) LearnSpec { return learnConst(LearnMatch, v) }

// LearnLoadField makes the learned flow set bits dst to what bits src of this packet hold.
func LearnLoadField(dst, src Subfield) LearnSpec {
	return LearnSpec{Kind: LearnLoad, Dst: dst, Src: src}
}

// LearnLoadValue makes the learned flow set v. Its mask must be contiguous.
func LearnLoadValue(v FieldValue) LearnSpec { return learnConst(LearnLoad, v) }

// LearnOutputTo makes the learned flow output to the port that bits src of this packet hold.
func LearnOutputTo(src Subfield) LearnSpec { return LearnSpec{Kind: LearnOutput, Src: src} }

func learnConst(k LearnKind, v FieldValue) LearnSpec {
	if v.problem() != "" || v.long != "" {
		return LearnSpec{Kind: k}
	}
	if v.field == FieldVLANVID {
		// Which has room for the bit of a tag.
		v.masked, v.mask, v.field = true, v.fullMask(), FieldVLANTCI
	}
	m := v.fullMask()
	ofs := uint(bits.TrailingZeros64(m.lo))
	if m.lo == 0 {
		ofs = 64 + uint(bits.TrailingZeros64(m.hi))
	}
	n := uint(bits.OnesCount64(m.lo) + bits.OnesCount64(m.hi))
	if n == 0 || m != ones(n).shl(ofs) {
		return LearnSpec{Kind: k}
	}
	dst := Subfield{v.field, uint16(ofs), uint16(n)}
	if !v.masked && !v.field.isTunMetadata() {
		// The wire has bytes where the field has fewer bits, but subfields count bits.
		dst = v.field.All()
	}
	return LearnSpec{Kind: k, Dst: dst, value: v.value.shr(ofs)}
}

// Flags of learn on the wire.
const (
	learnSendFlowRem = 1 << iota
	learnDeleteLearned
	learnWriteResult
)

// Parts of a spec's header: the number of bits, and
const (
	learnBits      = 0x07ff
	learnDstShift  = 11
	learnImmediate = 0x2000
)

func (a Learn) flags() (f byte) {
	for i, set := range [...]bool{a.SendFlowRem, a.DeleteLearned, a.ResultDst.Set()} {
		if set {
			f |= 1 << i
		}
	}
	return f
}

func (a Learn) appendTo(b []byte) []byte {
	start := len(b)
	subtype := uint16(nxLearn)
	if a.Limit != 0 || a.ResultDst.Set() {
		subtype = nxLearn2
	}
	b = be.AppendUint16(nxAction(b, subtype), a.IdleTimeout)
	b = be.AppendUint16(b, a.HardTimeout)
	b = be.AppendUint16(b, a.Priority)
	b = be.AppendUint64(b, a.Cookie)
	b = append(b, 0, a.flags(), a.Table, 0)
	b = be.AppendUint16(b, a.FinIdleTimeout)
	b = be.AppendUint16(b, a.FinHardTimeout)
	if subtype == nxLearn2 {
		b = be.AppendUint32(b, a.Limit)
		b = be.AppendUint16(b, a.ResultDst.Ofs)
		b = append(b, 0, 0)
		if a.ResultDst.Set() {
			b = a.ResultDst.appendHeader(b)
		}
	}
	for i := range a.Specs {
		b = a.Specs[i].appendTo(b)
	}
	return endAction(b, start)
}

func (s *LearnSpec) appendTo(b []byte) []byte {
	n := s.Dst.N
	if s.Src.Set() {
		n = s.Src.N
	}
	header := n&learnBits | uint16(s.Kind)<<learnDstShift
	if s.Src.Set() {
		b = be.AppendUint16(b, header)
		b = be.AppendUint16(s.Src.appendHeader(b), s.Src.Ofs)
	} else {
		b = be.AppendUint16(b, header|learnImmediate)
		b = appendUint(b, s.value, immediateLen(n))
	}
	if s.Kind != LearnOutput {
		b = be.AppendUint16(s.Dst.appendHeader(b), s.Dst.Ofs)
	}
	return b
}

// immediateLen is the number of bytes that a constant of n bits takes.
func immediateLen(n uint16) int { return 2 * ((int(n) + 15) / 16) }

func (a Learn) String() string {
	s := []string{"table=" + utoa(a.Table)}
	num := func(name string, v uint64, without uint64) {
		if v != without {
			s = append(s, name+"="+utoa(v))
		}
	}
	num("idle_timeout", uint64(a.IdleTimeout), 0)
	num("hard_timeout", uint64(a.HardTimeout), 0)
	num("fin_idle_timeout", uint64(a.FinIdleTimeout), 0)
	num("fin_hard_timeout", uint64(a.FinHardTimeout), 0)
	num("priority", uint64(a.Priority), DefaultPriority)
	if a.SendFlowRem {
		s = append(s, "send_flow_rem")
	}
	if a.DeleteLearned {
		s = append(s, "delete_learned")
	}
	if a.Cookie != 0 {
		s = append(s, "cookie="+hexText(uint128{0, a.Cookie}))
	}
	num("limit", uint64(a.Limit), 0)
	if a.ResultDst.Set() {
		s = append(s, "result_dst="+a.ResultDst.String())
	}
	for i := range a.Specs {
		s = append(s, a.Specs[i].String())
	}
	return "learn(" + strings.Join(s, ",") + ")"
}

// String prints s as ovs-ofctl does within learn.
func (s *LearnSpec) String() string {
	switch {
	case s.Kind == LearnOutput:
		return "output:" + s.Src.String()
	case s.Kind == LearnLoad && s.Src.Set():
		return "load:" + s.Src.String() + "->" + s.Dst.String()
	case s.Kind == LearnLoad:
		return "load:" + hexText(s.value) + "->" + s.Dst.String()
	case s.Src == s.Dst:
		return s.Dst.String()
	case s.Src.Set():
		return s.Dst.String() + "=" + s.Src.String()
	case s.Dst == s.Dst.Field.All():
		return s.Dst.Field.String() + "=" + FieldValue{field: s.Dst.Field, value: s.value}.text()
	}
	return s.Dst.String() + "=" + hexText(s.value)
}
