// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"strings"
)

// DefaultPriority is the priority of a flow if its text names none.
const DefaultPriority = 0x8000

// TableAll is the table number that stands for all tables in a delete or a request.
const TableAll = 0xff

// Flow is a flow of a table: which packets, and what is done with them. Without actions,
// Goto and so on it drops them.
type Flow struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	Match    Match

	// Actions are applied in order when the packet meets the flow (apply_actions).
	Actions []Action
	// WriteActions are merged into the action set, which runs when no Goto follows.
	WriteActions []Action
	ClearActions bool // empty the action set first
	// Metadata is written to the bits of MetadataMask, if that is not 0.
	Metadata, MetadataMask uint64
	// Goto is the table to go on with, 0: none.
	Goto uint8

	IdleTimeout uint16 // seconds, 0: none
	HardTimeout uint16
	Importance  uint16 // flows of less importance are evicted first
	Flags       FlowFlags
}

// FlowFlags are options of a flow or a flow mod.
type FlowFlags uint16

// Flags.
const (
	FlowSendFlowRem FlowFlags = 1 << iota // send FlowRemoved when the flow goes
	// refuse to add a flow that overlaps one of the same priority.
	FlowCheckOverlap
	FlowResetCounts    // of a FlowModify: set the counters to 0
	FlowNoPacketCounts // packets need not be counted
	FlowNoByteCounts   // bytes need not be counted
)

// lastingFlags are the flags that a flow keeps.
const lastingFlags = FlowSendFlowRem | FlowNoPacketCounts | FlowNoByteCounts

// FlowKey identifies a flow on a switch: there is one at most of each. It is comparable.
type FlowKey struct {
	Table    uint8
	Priority uint16
	Match    Match
}

// Key returns what identifies f on a switch.
func (f *Flow) Key() FlowKey { return FlowKey{f.Table, f.Priority, f.Match} }

// Equal reports whether f and g are the same flow with the same effect and cookie: what a
// switch dumps is Equal to what was sent. Flags that only tell the switch how to add a
// flow (check overlap, reset counts) do not count.
func (f *Flow) Equal(g *Flow) bool {
	if f.Table != g.Table || f.Priority != g.Priority || f.Cookie != g.Cookie || f.Match != g.Match ||
		f.IdleTimeout != g.IdleTimeout || f.HardTimeout != g.HardTimeout || f.Importance != g.Importance ||
		f.Flags&lastingFlags != g.Flags&lastingFlags {
		return false
	}
	return f.SameInstructions(g)
}

// SameInstructions reports whether f and g do the same with a packet.
func (f *Flow) SameInstructions(g *Flow) bool {
	var stack [512]byte
	b := f.appendInstructions(stack[:0])
	n := len(b)
	b = g.appendInstructions(b)
	return bytes.Equal(b[:n], b[n:])
}

// String prints f as "ovs-ofctl --no-names --no-stats dump-flows" does.
func (f Flow) String() string {
	var s strings.Builder
	if f.Cookie != 0 {
		s.WriteString("cookie=" + hexText(uint128{0, f.Cookie}) + ", ")
	}
	if f.Table != 0 {
		s.WriteString("table=" + utoa(f.Table) + ", ")
	}
	if f.IdleTimeout != 0 {
		s.WriteString("idle_timeout=" + utoa(f.IdleTimeout) + ", ")
	}
	if f.HardTimeout != 0 {
		s.WriteString("hard_timeout=" + utoa(f.HardTimeout) + ", ")
	}
	if f.Flags != 0 {
		s.WriteString(f.Flags.String() + " ")
	}
	if f.Importance != 0 {
		s.WriteString("importance=" + utoa(f.Importance) + ", ")
	}
	match := f.Match.String()
	if f.Priority != DefaultPriority {
		match = strings.TrimSuffix("priority="+utoa(f.Priority)+","+match, ",")
	}
	if match != "" {
		s.WriteString(match + " ")
	}
	s.WriteString("actions=" + f.instructionsString())
	return s.String()
}

var flowFlagNames = []string{"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"}

// String prints the flags with spaces between.
func (f FlowFlags) String() string {
	if f == 0 {
		return ""
	}
	return strings.ReplaceAll(joinFlags(uint64(f), flowFlagNames), "|", " ")
}

// instructionsString prints what f does with a packet.
func (f *Flow) instructionsString() string {
	var s []string
	if len(f.Actions) > 0 {
		s = append(s, ActionsString(f.Actions))
	}
	if f.ClearActions {
		s = append(s, "clear_actions")
	}
	if len(f.WriteActions) > 0 {
		s = append(s, "write_actions("+ActionsString(f.WriteActions)+")")
	}
	if f.MetadataMask != 0 {
		text := "write_metadata:" + hexText(uint128{0, f.Metadata & f.MetadataMask})
		if f.MetadataMask != 1<<64-1 {
			text += "/" + hexText(uint128{0, f.MetadataMask})
		}
		s = append(s, text)
	}
	if f.Goto != 0 {
		s = append(s, "goto_table:"+utoa(f.Goto))
	}
	if len(s) == 0 {
		return "drop"
	}
	return strings.Join(s, ",")
}
