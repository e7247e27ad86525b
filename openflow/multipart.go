// SPDX-License-Identifier: Apache-2.0

package openflow

import "time"

// MultipartRequest asks for statistics or descriptions; the answer comes as MultipartReply messages, of which all but the last have More.
type MultipartRequest struct {
	// Body is one of DescRequest, FlowDescRequest, TableStatsRequest, PortStatsRequest, GroupStatsRequest,
	// GroupDescRequest, MeterStatsRequest, MeterConfigRequest, PortDescRequest, FlowMonitorRequest.
	Body MultipartBody
	More bool
}

// MultipartReply is an answer or a part of one.
type MultipartReply struct {
	Body MultipartBody
	More bool // further replies with the same transaction id follow
}

// MultipartBody is the content of a multipart message.
type MultipartBody interface {
	multipartType() uint16
	appendBody(b []byte) []byte
}

// DescRequest asks for Desc.
type DescRequest struct{}

// Desc describes the switch in words.
type Desc struct{ Manufacturer, Hardware, Software, Serial, Datapath string }

// FlowDescRequest asks for the flows that match; the zero value for none: see AllFlows.
type FlowDescRequest struct {
	Table              uint8  // TableAll: all
	OutPort, OutGroup  uint32 // 0: any
	Cookie, CookieMask uint64
	Match              Match // flows that this match includes
}

// AllFlows asks for all flows of all tables.
func AllFlows() *MultipartRequest {
	return &MultipartRequest{Body: &FlowDescRequest{Table: TableAll}}
}

// FlowDescs are flows with their counters.
type FlowDescs []FlowDesc

// FlowDesc is a flow with its counters.
type FlowDesc struct {
	Flow  Flow
	Stats FlowStats
}

// TableStatsRequest asks for TableStats.
type TableStatsRequest struct{}

// TableStats are the counters of all tables.
type TableStats []TableStat

// TableStat is the counters of a table.
type TableStat struct {
	Table            uint8
	Active           uint32
	Lookups, Matched uint64
}

// PortStatsRequest asks for PortStats.
type PortStatsRequest struct{ Port uint32 } // PortAny: all

// PortStats are the counters of ports.
type PortStats []PortStat

// PortStat is the counters of a port. A counter that the switch lacks is 2⁶⁴−1.
type PortStat struct {
	Port                 uint32
	Duration             time.Duration
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64
}

// GroupStatsRequest asks for GroupStats.
type GroupStatsRequest struct{ Group uint32 } // GroupAllGroups: all

// GroupStats are the counters of groups.
type GroupStats []GroupStat

// GroupStat is the counters of a group.
type GroupStat struct {
	Group          uint32
	RefCount       uint32
	Packets, Bytes uint64
	Duration       time.Duration
	Buckets        []BucketStat
}

// BucketStat is the counters of a bucket.
type BucketStat struct{ Packets, Bytes uint64 }

// GroupDescRequest asks for GroupDescs.
type GroupDescRequest struct{ Group uint32 } // GroupAllGroups: all

// GroupDescs are groups.
type GroupDescs []Group

// MeterStatsRequest asks for MeterStats.
type MeterStatsRequest struct{ Meter uint32 } // MeterAll: all

// MeterStats are the counters of meters.
type MeterStats []MeterStat

// MeterStat is the counters of a meter.
type MeterStat struct {
	Meter          uint32
	FlowCount      uint32
	Packets, Bytes uint64
	Duration       time.Duration
	Bands          []BandStat
}

// BandStat is the counters of a band: what was above its rate.
type BandStat struct{ Packets, Bytes uint64 }

// MeterConfigRequest asks for MeterConfigs.
type MeterConfigRequest struct{ Meter uint32 } // MeterAll: all

// MeterConfigs are meters.
type MeterConfigs []Meter

// PortDescRequest asks for PortDescs.
type PortDescRequest struct{ Port uint32 } // PortAny: all

// PortDescs are ports.
type PortDescs []Port

// FlowMonitorRequest asks for the changes of flows from now on.
type FlowMonitorRequest struct {
	ID                uint32
	Command           FlowMonitorCommand
	Table             uint8
	OutPort, OutGroup uint32
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
	MonitorInitial FlowMonitorFlags = 1 << iota // the flows that are there at first
	MonitorAdd
	MonitorRemoved
	MonitorModify
	MonitorInstructions // with instructions
	MonitorNoAbbrev     // own changes in full
	MonitorOnlyOwn
)

// FlowUpdates are changes of flows.
type FlowUpdates []FlowUpdate

// FlowUpdate is a change of a flow.
type FlowUpdate struct {
	Event  FlowUpdateEvent
	Reason FlowRemovedReason // of FlowEventRemoved
	XID    uint32            // of FlowEventAbbrev: the own message that made the change
	Flow   Flow
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
	FlowEventPaused
	FlowEventResumed
)
