// SPDX-License-Identifier: Apache-2.0

package openflow

// Learn adds a flow made from the packet.
type Learn struct {
	Table          uint8
	Priority       uint16
	Cookie         uint64
	IdleTimeout    uint16 // seconds, 0: none
	HardTimeout    uint16
	FinIdleTimeout uint16 // seconds after a TCP FIN or RST
	FinHardTimeout uint16
	SendFlowRem    bool
	DeleteLearned  bool     // delete learned flows with the flow that learned them
	Limit          uint32   // most flows that this action makes, 0: no limit
	ResultDst      Subfield // a bit that is set to 1 if the flow exists or was added, 0 if Limit was reached
	Specs          []LearnSpec
}

// LearnSpec is one piece of a learned flow: a match on or an action that sets bits of a field.
type LearnSpec struct {
	Kind LearnKind
	// Src is the packet's bits that are taken; zero: Value is taken.
	Src   Subfield
	Value uint64   // up to 64 bits
	Dst   Subfield // as wide as Src; unused by LearnOutput
}

// LearnKind says what a LearnSpec adds to the learned flow.
type LearnKind uint8

// Kinds.
const (
	LearnMatch LearnKind = iota
	LearnLoad
	LearnOutput
)

// LearnMatchField matches bits dst of later packets with bits src of this one.
func LearnMatchField(dst, src Subfield) LearnSpec {
	return LearnSpec{Kind: LearnMatch, Src: src, Dst: dst}
}

// LearnMatchValue matches bits dst of later packets with v.
func LearnMatchValue(dst Subfield, v uint64) LearnSpec {
	return LearnSpec{Kind: LearnMatch, Value: v, Dst: dst}
}

// LearnLoadField makes the learned flow set bits dst to what bits src of this packet hold.
func LearnLoadField(dst, src Subfield) LearnSpec {
	return LearnSpec{Kind: LearnLoad, Src: src, Dst: dst}
}

// LearnLoadValue makes the learned flow set bits dst to v.
func LearnLoadValue(dst Subfield, v uint64) LearnSpec {
	return LearnSpec{Kind: LearnLoad, Value: v, Dst: dst}
}

// LearnOutputTo makes the learned flow output to the port that bits src of this packet hold.
func LearnOutputTo(src Subfield) LearnSpec { return LearnSpec{Kind: LearnOutput, Src: src} }
