// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// SetFieldAction assigns a field or some bits of it.
type SetFieldAction struct{ FieldValue FieldValue }

// SetField assigns a field or, with a mask, some bits of it.
func SetField(v FieldValue) Action { return SetFieldAction{v} }

func (a SetFieldAction) String() string {
	if p := a.FieldValue.problem(); p != "" {
		return "set_field:<" + p + ">"
	}
	return "set_field:" + a.FieldValue.text() + "->" + a.FieldValue.field.String()
}

func (a SetFieldAction) appendTo(b []byte) []byte {
	start := len(b)
	b = append(b, 0, actSetField, 0, 0)
	if a.FieldValue.problem() != "" {
		return endAction(append(b, invalidOXM(&a.FieldValue)...), start)
	}
	v := a.FieldValue.trimmed()
	return endAction(appendOXM(b, &v), start)
}

// MoveAction copies bits between fields.
type MoveAction struct{ From, To Subfield }

// Move copies bits from one field to another; both must have the same width. It is
// OpenFlow's copy_field, printed as move.
func Move(from, to Subfield) Action { return MoveAction{from, to} }

func (a MoveAction) String() string { return "move:" + a.From.String() + "->" + a.To.String() }

func (a MoveAction) appendTo(b []byte) []byte {
	start := len(b)
	b = append(b, 0, actCopyField, 0, 0)
	b = be.AppendUint16(b, a.From.N)
	b = be.AppendUint16(b, a.From.Ofs)
	b = be.AppendUint16(b, a.To.Ofs)
	b = append(b, 0, 0)
	return endAction(a.To.appendOXMHeader(a.From.appendOXMHeader(b)), start)
}

// PushVLANAction adds a VLAN tag.
type PushVLANAction struct{ EtherType uint16 }

// PushVLAN adds an empty VLAN tag of the given Ethernet type, normally EthTypeVLAN.
func PushVLAN(etherType uint16) Action { return PushVLANAction{etherType} }

func (a PushVLANAction) String() string { return fmt.Sprintf("push_vlan:%#x", a.EtherType) }

func (a PushVLANAction) appendTo(b []byte) []byte {
	return appendEtherType(b, actPushVLAN, a.EtherType)
}

// PushMPLSAction adds an MPLS label.
type PushMPLSAction struct{ EtherType uint16 }

// PushMPLS adds an MPLS label; etherType is EthTypeMPLS.
func PushMPLS(etherType uint16) Action { return PushMPLSAction{etherType} }

func (a PushMPLSAction) String() string { return fmt.Sprintf("push_mpls:0x%04x", a.EtherType) }

func (a PushMPLSAction) appendTo(b []byte) []byte {
	return appendEtherType(b, actPushMPLS, a.EtherType)
}

// PopMPLSAction removes an MPLS label.
type PopMPLSAction struct{ EtherType uint16 }

// PopMPLS removes the outermost MPLS label; etherType is that of what is below.
func PopMPLS(etherType uint16) Action { return PopMPLSAction{etherType} }

func (a PopMPLSAction) String() string { return fmt.Sprintf("pop_mpls:0x%04x", a.EtherType) }

func (a PopMPLSAction) appendTo(b []byte) []byte { return appendEtherType(b, actPopMPLS, a.EtherType) }

// appendEtherType appends an action with an Ethernet type as its argument.
func appendEtherType(b []byte, typ byte, etherType uint16) []byte {
	return append(be.AppendUint16(append(b, 0, typ, 0, 8), etherType), 0, 0)
}

// PushAction pushes bits of a field on the stack.
type PushAction struct{ Source Subfield }

// Push pushes bits of a field on the stack.
func Push(s Subfield) Action { return PushAction{s} }

func (a PushAction) String() string           { return "push:" + a.Source.String() }
func (a PushAction) appendTo(b []byte) []byte { return appendStack(b, nxStackPush, a.Source) }

// PopAction pops the stack into bits of a field.
type PopAction struct{ Dest Subfield }

// Pop pops the stack into bits of a field.
func Pop(s Subfield) Action { return PopAction{s} }

func (a PopAction) String() string           { return "pop:" + a.Dest.String() }
func (a PopAction) appendTo(b []byte) []byte { return appendStack(b, nxStackPop, a.Dest) }

func appendStack(b []byte, subtype uint16, s Subfield) []byte {
	start := len(b)
	b = be.AppendUint16(nxAction(b, subtype), s.Ofs)
	b = s.appendHeader(b)
	b = be.AppendUint16(b, s.N)
	return endAction(b, start)
}

// DeleteFieldAction removes a tunnel option.
type DeleteFieldAction struct{ Field Field }

// DeleteField removes tunnel option f, a tun_metadata field, from the packet.
func DeleteField(f Field) Action { return DeleteFieldAction{f} }

func (a DeleteFieldAction) String() string { return "delete_field:" + a.Field.String() }

func (a DeleteFieldAction) appendTo(b []byte) []byte {
	start := len(b)
	b = a.Field.All().appendHeader(nxAction(b, nxDeleteField))
	return endAction(appendZeros(b, 8), start)
}

// CheckPktLargerAction sets a bit if the packet is longer than Len bytes.
type CheckPktLargerAction struct {
	Len  uint16
	Dest Subfield // one bit
}

// CheckPktLarger sets bit dest if the packet is longer than n bytes, Ethernet header
// included, and else clears it.
func CheckPktLarger(n uint16, dest Subfield) Action { return CheckPktLargerAction{n, dest} }

func (a CheckPktLargerAction) String() string {
	return fmt.Sprintf("check_pkt_larger(%d)->%s", a.Len, a.Dest)
}

func (a CheckPktLargerAction) appendTo(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(nxAction(b, nxCheckPktLarger), a.Len)
	b = be.AppendUint16(b, a.Dest.Ofs)
	return endAction(a.Dest.appendHeader(b), start)
}
