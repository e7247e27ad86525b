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

// TableAll is the table number that stands for all tables in a delete or a request.
const TableAll = 0xff

// FlowMod adds, changes or deletes flows.
type FlowMod struct {
	Command FlowModCommand
	Flow    Flow
	// CookieMask selects the bits of Flow.Cookie that flows to modify or delete must have. Not for FlowAdd.
	CookieMask uint64
	// OutPort and OutGroup, if not 0, restrict a delete to flows that output there.
	OutPort  uint32
	OutGroup uint32
}

// AddFlow returns the message that adds f or replaces what has its key.
func AddFlow(f Flow) *FlowMod { return &FlowMod{Command: FlowAdd, Flow: f} }

// DeleteFlow returns the message that deletes exactly the flow with f's key, whatever its cookie and actions.
func DeleteFlow(f Flow) *FlowMod {
	return &FlowMod{Command: FlowDeleteStrict, Flow: Flow{Table: f.Table, Priority: f.Priority, Match: f.Match}}
}

// DeleteAllFlows returns the message that deletes all flows of all tables.
func DeleteAllFlows() *FlowMod {
	return &FlowMod{Command: FlowDelete, Flow: Flow{Table: TableAll}}
}
