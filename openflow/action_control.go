// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"strings"
)

// ResubmitAction looks the packet up in another table and then goes on.
type ResubmitAction struct {
	InPort uint32 // PortInPort: the packet's own
	Table  uint8  // 255: the current one
	CT     bool   // look up with the conntrack tuple in place of the packet's addresses and ports
}

// Resubmit looks the packet up in table and then goes on with the next action.
func Resubmit(table uint8) Action { return ResubmitAction{InPort: PortInPort, Table: table} }

// ResubmitCT is Resubmit with the original conntrack tuple in place of the packet's.
// The flow's match must say that the connection is valid, as for FieldCTNWSrc.
func ResubmitCT(table uint8) Action {
	return ResubmitAction{InPort: PortInPort, Table: table, CT: true}
}

func (a ResubmitAction) String() string {
	port := ""
	if a.InPort != PortInPort {
		port = PortName(a.InPort)
		if a.Table == TableAll {
			return "resubmit:" + port
		}
	}
	s := "resubmit(" + port + ","
	if a.Table != TableAll {
		s += utoa(a.Table)
	}
	if a.CT {
		s += ",ct"
	}
	return s + ")"
}

func (a ResubmitAction) appendTo(b []byte) []byte {
	subtype := uint16(nxResubmit)
	if a.CT {
		subtype = nxResubmitCT
	}
	start := len(b)
	b = be.AppendUint16(nxAction(b, subtype), uint16(a.InPort))
	return endAction(append(b, a.Table), start)
}

// ConjunctionAction makes a flow one of those that satisfy a clause of a conjunction.
type ConjunctionAction struct {
	ID       uint32
	Clause   uint8 // from 1
	NClauses uint8
}

// Conjunction makes the flow one of those that satisfy clause k, counted from 1, of the
// n of conjunction id. Such a flow may have no actions other than further conjunctions and notes.
func Conjunction(id uint32, k, n uint8) Action { return ConjunctionAction{id, k, n} }

func (a ConjunctionAction) String() string {
	return fmt.Sprintf("conjunction(%d,%d/%d)", a.ID, a.Clause, a.NClauses)
}

func (a ConjunctionAction) appendTo(b []byte) []byte {
	start := len(b)
	b = append(nxAction(b, nxConjunction), a.Clause-1, a.NClauses)
	return endAction(be.AppendUint32(b, a.ID), start)
}

// NoteAction does nothing; it holds bytes for readers of the flow.
type NoteAction struct{ Note string }

// Note does nothing; it holds bytes for readers of the flow, padded with zeros to a length
// of 6 + 8n.
func Note(note []byte) Action {
	n := pad8(10+len(note)) - 10
	return NoteAction{string(append(append(make([]byte, 0, n), note...), make([]byte, n-len(note))...))}
}

func (a NoteAction) String() string { return "note:" + hexBytes(a.Note) }

func (a NoteAction) appendTo(b []byte) []byte {
	start := len(b)
	return endAction(append(nxAction(b, nxNote), a.Note...), start)
}

// CloneAction runs actions on a copy of the packet.
type CloneAction struct{ Actions []Action }

// Clone runs actions on a copy of the packet and its metadata.
func Clone(actions ...Action) Action { return CloneAction{actions} }

func (a CloneAction) String() string { return "clone(" + ActionsString(a.Actions) + ")" }

func (a CloneAction) appendTo(b []byte) []byte {
	start := len(b)
	b = appendZeros(nxAction(b, nxClone), 6)
	return endAction(appendActions(b, a.Actions), start)
}

// FinTimeoutAction shortens the flow's timeouts once a TCP FIN or RST passes.
type FinTimeoutAction struct{ Idle, Hard uint16 }

// FinTimeout shortens the flow's timeouts, in seconds, once a TCP FIN or RST passes.
func FinTimeout(idle, hard uint16) Action { return FinTimeoutAction{idle, hard} }

func (a FinTimeoutAction) String() string {
	var s []string
	if a.Idle != 0 {
		s = append(s, "idle_timeout="+utoa(a.Idle))
	}
	if a.Hard != 0 {
		s = append(s, "hard_timeout="+utoa(a.Hard))
	}
	return "fin_timeout(" + strings.Join(s, ",") + ")"
}

func (a FinTimeoutAction) appendTo(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(nxAction(b, nxFinTimeout), a.Idle)
	return endAction(be.AppendUint16(b, a.Hard), start)
}

// ActionsString prints actions with commas between, "drop" if there are none.
func ActionsString(actions []Action) string {
	if len(actions) == 0 {
		return "drop"
	}
	var s strings.Builder
	for i, a := range actions {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(a.String())
	}
	return s.String()
}
