// SPDX-License-Identifier: Apache-2.0

package openflow

// FlowModCommand says what a FlowMod does.
type FlowModCommand uint8

// Commands. The strict ones touch the flow of exactly this table, priority and match,
// the others all flows that the match includes.
const (
	FlowAdd FlowModCommand = iota
	FlowModify
	FlowModifyStrict
	FlowDelete
	FlowDeleteStrict
)

var flowModCommandNames = []string{"ADD", "MOD", "MOD_STRICT", "DEL", "DEL_STRICT"}

// String prints the command as ovs-ofctl does.
func (c FlowModCommand) String() string { return nameOf(flowModCommandNames, c) }

// FlowMod adds, changes or deletes flows.
type FlowMod struct {
	Command FlowModCommand
	Flow    Flow
	// CookieMask selects the bits of Flow.Cookie that flows to modify or delete must have.
	// FlowAdd does not look at it.
	CookieMask uint64
	// OutPort and OutGroup, if not 0, restrict a delete to flows that output there.
	OutPort  uint32
	OutGroup uint32
}

// AddFlow returns the message that adds f or replaces what has its key.
func AddFlow(f Flow) *FlowMod { return &FlowMod{Command: FlowAdd, Flow: f} }

// DeleteFlow returns the message that deletes exactly the flow with f's key, whatever its
// cookie and actions.
func DeleteFlow(f Flow) *FlowMod { return DeleteKey(f.Key()) }

// DeleteKey returns the message that deletes exactly the flow with key k.
func DeleteKey(k FlowKey) *FlowMod {
	return &FlowMod{Command: FlowDeleteStrict, Flow: Flow{Table: k.Table, Priority: k.Priority, Match: k.Match}}
}

// DeleteAllFlows returns the message that deletes all flows of all tables.
func DeleteAllFlows() *FlowMod {
	return &FlowMod{Command: FlowDelete, Flow: Flow{Table: TableAll}}
}

func (*FlowMod) msgType() uint8 { return typeFlowMod }

func (m *FlowMod) appendBody(b []byte) []byte {
	f := &m.Flow
	cookieMask := m.CookieMask
	cookie := f.Cookie & cookieMask
	if m.Command == FlowAdd {
		cookie, cookieMask = f.Cookie, 0
	}
	b = be.AppendUint64(b, cookie)
	b = be.AppendUint64(b, cookieMask)
	b = append(b, f.Table, byte(m.Command))
	b = be.AppendUint16(b, f.IdleTimeout)
	b = be.AppendUint16(b, f.HardTimeout)
	b = be.AppendUint16(b, f.Priority)
	b = be.AppendUint32(b, noBuffer)
	b = be.AppendUint32(b, anyIfZero(m.OutPort))
	b = be.AppendUint32(b, anyIfZero(m.OutGroup))
	b = be.AppendUint16(b, uint16(f.Flags))
	b = be.AppendUint16(b, f.Importance)
	b = f.Match.appendTo(b)
	return f.appendInstructions(b)
}

// noBuffer says that no buffered packet is meant: switches do not buffer any more.
const noBuffer = 0xffffffff

// anyIfZero returns the port or group n, or the number that stands for any.
func anyIfZero(n uint32) uint32 {
	if n == 0 {
		return PortAny
	}
	return n
}

// zeroIfAny undoes anyIfZero.
func zeroIfAny(n uint32) uint32 {
	if n == PortAny {
		return 0
	}
	return n
}

func decodeFlowMod(r *reader) Message {
	m := &FlowMod{}
	f := &m.Flow
	f.Cookie, m.CookieMask = r.uint64(), r.uint64()
	f.Table, m.Command = r.uint8(), FlowModCommand(r.uint8())
	f.IdleTimeout, f.HardTimeout, f.Priority = r.uint16(), r.uint16(), r.uint16()
	r.skip(4)
	m.OutPort, m.OutGroup = zeroIfAny(r.uint32()), zeroIfAny(r.uint32())
	f.Flags, f.Importance = FlowFlags(r.uint16()), r.uint16()
	f.Match = r.match()
	f.decodeInstructions(r)
	return m
}
