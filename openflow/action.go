// SPDX-License-Identifier: Apache-2.0

package openflow

// Action is what a switch does with a packet. String prints it as ovs-ofctl does.
//
// Simple actions come from functions (Output, SetField, Resubmit …); those with many
// options are structs (CT, Learn, Controller …) to be used by value.
type Action interface {
	String() string
	// appendTo appends the wire form, a multiple of 8 bytes.
	appendTo(b []byte) []byte
}

// Types of actions, OpenFlow 1.5.1 section 7.2.6.
const (
	actOutput       = 0
	actPushVLAN     = 17
	actPushMPLS     = 19
	actPopMPLS      = 20
	actSetQueue     = 21
	actGroup        = 22
	actSetField     = 25
	actCopyField    = 28
	actMeter        = 29
	actExperimenter = 0xffff
)

// Nicira's subtypes of actExperimenter, from Open vSwitch's ofp-actions.c.
const (
	nxPopQueue       = 5
	nxNote           = 8
	nxMultipath      = 10
	nxResubmit       = 14
	nxOutputReg      = 15
	nxLearn          = 16
	nxExit           = 17
	nxFinTimeout     = 19
	nxController     = 20
	nxStackPush      = 27
	nxStackPop       = 28
	nxOutputReg2     = 32
	nxConjunction    = 34
	nxCT             = 35
	nxNAT            = 36
	nxController2    = 37
	nxOutputTrunc    = 39
	nxClone          = 42
	nxCTClear        = 43
	nxResubmitCT     = 44
	nxLearn2         = 45
	nxCheckPktLarger = 49
	nxDeleteField    = 50
)

// vendorNicira is the experimenter of Open vSwitch's extensions.
const vendorNicira = 0x00002320

// nxAction begins a Nicira action; endAction completes it.
func nxAction(b []byte, subtype uint16) []byte {
	return append(b, 0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, byte(subtype>>8), byte(subtype))
}

// endAction pads the action that began at start and writes its length.
func endAction(b []byte, start int) []byte {
	b = appendZeros(b, pad8(len(b)-start)-(len(b)-start))
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// appendActions appends actions one after another.
func appendActions(b []byte, actions []Action) []byte {
	for _, a := range actions {
		b = a.appendTo(b)
	}
	return b
}

// appendHeader appends the header that names s's field in Nicira's actions.
func (s Subfield) appendHeader(b []byte) []byte {
	info := s.Field.info()
	return info.nxmID.append(b, false, info.size())
}

// appendOXMHeader appends the header that names s's field in OpenFlow's actions.
func (s Subfield) appendOXMHeader(b []byte) []byte {
	info := s.Field.info()
	return info.id.append(b, false, info.size())
}

// ofsBits packs s's offset and width into 16 bits, as Nicira's actions have it.
func (s Subfield) ofsBits() uint16 { return s.Ofs<<6 | (s.N-1)&0x3f }

// String prints s such as NXM_NX_REG0[0..3].
func (s Subfield) String() string {
	b := s.Field.info().nxm
	switch {
	case s.Ofs == 0 && int(s.N) == s.Field.Width():
		return b + "[]"
	case s.N == 1:
		return b + "[" + utoa(s.Ofs) + "]"
	}
	return b + "[" + utoa(s.Ofs) + ".." + utoa(s.Ofs+s.N-1) + "]"
}

// UnknownAction is an action that this package does not know, kept as it came.
type UnknownAction struct{ Raw string }

func (a UnknownAction) String() string           { return "unknown(" + hexBytes(a.Raw) + ")" }
func (a UnknownAction) appendTo(b []byte) []byte { return append(b, a.Raw...) }
