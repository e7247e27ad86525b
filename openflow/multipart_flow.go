// SPDX-License-Identifier: Apache-2.0

package openflow

// FlowDescRequest asks for the flows that match: FlowDescs.
type FlowDescRequest struct {
	Table              uint8  // TableAll: all
	OutPort, OutGroup  uint32 // flows that output there; 0: any
	Cookie, CookieMask uint64
	Match              Match // flows that this match includes
}

// AllFlows asks for all flows of all tables.
func AllFlows() *MultipartRequest {
	return &MultipartRequest{Body: &FlowDescRequest{Table: TableAll}}
}

func (*FlowDescRequest) multipartType() uint16 { return mpFlowDesc }

func (m *FlowDescRequest) appendBody(b []byte) []byte {
	b = append(b, m.Table, 0, 0, 0)
	b = be.AppendUint32(be.AppendUint32(b, anyIfZero(m.OutPort)), anyIfZero(m.OutGroup))
	b = appendZeros(b, 4)
	b = be.AppendUint64(be.AppendUint64(b, m.Cookie&m.CookieMask), m.CookieMask)
	return m.Match.appendTo(b)
}

func decodeFlowDescRequest(r *reader) MultipartBody {
	m := &FlowDescRequest{Table: r.uint8()}
	r.skip(3)
	m.OutPort, m.OutGroup = zeroIfAny(r.uint32()), zeroIfAny(r.uint32())
	r.skip(4)
	m.Cookie, m.CookieMask = r.uint64(), r.uint64()
	m.Match = r.match()
	return m
}

// FlowDescs are flows with their counters.
type FlowDescs []FlowDesc

// FlowDesc is a flow with its counters.
type FlowDesc struct {
	Flow  Flow
	Stats FlowStats
}

const flowDescLen = 24

func (FlowDescs) multipartType() uint16 { return mpFlowDesc }

func (l FlowDescs) appendBody(b []byte) []byte {
	for i := range l {
		f := &l[i].Flow
		start := len(b)
		b = append(b, 0, 0, 0, 0, f.Table, 0)
		b = be.AppendUint16(b, f.Priority)
		b = be.AppendUint16(b, f.IdleTimeout)
		b = be.AppendUint16(b, f.HardTimeout)
		b = be.AppendUint16(b, uint16(f.Flags))
		b = be.AppendUint16(b, f.Importance)
		b = be.AppendUint64(b, f.Cookie)
		b = l[i].Stats.appendTo(f.Match.appendTo(b), true)
		b = f.appendInstructions(b)
		be.PutUint16(b[start:], uint16(len(b)-start))
	}
	return b
}

func (r *reader) flowDesc() (d FlowDesc) {
	f := &d.Flow
	n := int(r.uint16())
	r.skip(2)
	f.Table = r.uint8()
	r.skip(1)
	f.Priority, f.IdleTimeout, f.HardTimeout = r.uint16(), r.uint16(), r.uint16()
	f.Flags, f.Importance, f.Cookie = FlowFlags(r.uint16()), r.uint16(), r.uint64()
	body := r.entry("flow", n, flowDescLen)
	f.Match = body.match()
	d.Stats = body.flowStats()
	f.decodeInstructions(&body)
	r.end("flow", &body)
	return d
}

// FlowMonitorRequest asks for the changes of flows from now on: FlowUpdates.
type FlowMonitorRequest struct {
	ID                uint32 // of this connection's choice
	Command           FlowMonitorCommand
	Table             uint8  // TableAll: all
	OutPort, OutGroup uint32 // flows that output there; 0: any
	Flags             FlowMonitorFlags
	Match             Match
}

// FlowMonitorCommand says what a FlowMonitorRequest does.
type FlowMonitorCommand uint8

// Commands.
const (
	FlowMonitorAdd FlowMonitorCommand = iota
	FlowMonitorModify
	FlowMonitorDelete
)

// FlowMonitorFlags choose what a monitor reports.
type FlowMonitorFlags uint16

// Flags.
const (
	MonitorInitial      FlowMonitorFlags = 1 << iota // the flows that are there at first
	MonitorAdd                                       // flows that are added
	MonitorRemoved                                   // flows that go
	MonitorModify                                    // flows that change
	MonitorInstructions                              // flows come with their instructions
	// Own changes come in full; refused by Open vSwitch up to 3.7 at least.
	MonitorNoAbbrev
	MonitorOnlyOwn // nothing of other controllers
)

func (*FlowMonitorRequest) multipartType() uint16 { return mpFlowMonitor }

func (m *FlowMonitorRequest) appendBody(b []byte) []byte {
	b = be.AppendUint32(b, m.ID)
	b = be.AppendUint32(be.AppendUint32(b, anyIfZero(m.OutPort)), anyIfZero(m.OutGroup))
	b = append(be.AppendUint16(b, uint16(m.Flags)), m.Table, byte(m.Command))
	return m.Match.appendTo(b)
}

func decodeFlowMonitorRequest(r *reader) MultipartBody {
	m := &FlowMonitorRequest{ID: r.uint32(), OutPort: zeroIfAny(r.uint32()), OutGroup: zeroIfAny(r.uint32())}
	m.Flags, m.Table, m.Command = FlowMonitorFlags(r.uint16()), r.uint8(), FlowMonitorCommand(r.uint8())
	m.Match = r.match()
	return m
}

// FlowUpdates are changes of flows.
type FlowUpdates []FlowUpdate

// FlowUpdate is a change of a flow.
type FlowUpdate struct {
	Event  FlowUpdateEvent
	Reason FlowRemovedReason // of FlowEventRemoved
	XID    uint32            // of FlowEventAbbrev: that of the own message that made the change
	Flow   Flow              // of Initial, Added, Removed, Modified
}

// FlowUpdateEvent is what happened to a flow.
type FlowUpdateEvent uint16

// Events.
const (
	FlowEventInitial FlowUpdateEvent = iota
	FlowEventAdded
	FlowEventRemoved
	FlowEventModified
	FlowEventAbbrev
	FlowEventPaused  // the monitor was too slow and sees nothing until FlowEventResumed
	FlowEventResumed // after it come the changes that were missed
)

var flowEventNames = []string{"INITIAL", "ADDED", "REMOVED", "MODIFIED", "ABBREV", "PAUSED", "RESUMED"}

// String prints the event as ovs-ofctl does.
func (e FlowUpdateEvent) String() string { return nameOf(flowEventNames, e) }

func (FlowUpdates) multipartType() uint16 { return mpFlowMonitor }

func (l FlowUpdates) appendBody(b []byte) []byte {
	for i := range l {
		u, f := &l[i], &l[i].Flow
		start := len(b)
		b = be.AppendUint16(append(b, 0, 0), uint16(u.Event))
		if u.Event >= FlowEventAbbrev {
			b = be.AppendUint32(b, u.XID)
		} else {
			b = append(b, f.Table, byte(u.Reason))
			b = be.AppendUint16(b, f.IdleTimeout)
			b = be.AppendUint16(b, f.HardTimeout)
			b = be.AppendUint16(b, f.Priority)
			b = be.AppendUint64(appendZeros(b, 4), f.Cookie)
			b = f.appendInstructions(f.Match.appendTo(b))
		}
		be.PutUint16(b[start:], uint16(len(b)-start))
	}
	return b
}

func (r *reader) flowUpdate() (u FlowUpdate) {
	n := int(r.uint16())
	u.Event = FlowUpdateEvent(r.uint16())
	body := r.entry("flow update", n, 4)
	if u.Event >= FlowEventAbbrev {
		u.XID = body.uint32()
	} else {
		f := &u.Flow
		f.Table, u.Reason = body.uint8(), FlowRemovedReason(body.uint8())
		f.IdleTimeout, f.HardTimeout, f.Priority = body.uint16(), body.uint16(), body.uint16()
		body.skip(4)
		f.Cookie = body.uint64()
		f.Match = body.match()
		f.decodeInstructions(&body)
	}
	r.end("flow update", &body)
	return u
}
