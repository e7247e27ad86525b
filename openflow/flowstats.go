// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"time"
)

// FlowStats are the counters of a flow.
type FlowStats struct {
	Duration, IdleAge time.Duration // since the flow was added, and since it was last hit
	Packets, Bytes    uint64
}

// OXS fields, OpenFlow 1.5.1 section 7.2.4.
const (
	oxsClass    = 0x8002
	oxsDuration = 0
	oxsIdleTime = 1
	oxsPackets  = 4
	oxsBytes    = 5
)

// appendTo appends s as OXS statistics with header and padding.
func (s *FlowStats) appendTo(b []byte, withIdle bool) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	put := func(field byte, v uint64) {
		b = append(b, oxsClass>>8, oxsClass&0xff, field<<1, 8)
		b = be.AppendUint64(b, v)
	}
	put(oxsDuration, durationWords(s.Duration))
	if withIdle {
		put(oxsIdleTime, durationWords(s.IdleAge))
	}
	put(oxsPackets, s.Packets)
	put(oxsBytes, s.Bytes)
	n := len(b) - start
	be.PutUint16(b[start+2:], uint16(n))
	return appendZeros(b, pad8(n)-n)
}

// durationWords puts seconds into the upper and nanoseconds into the lower 32 bits.
func durationWords(d time.Duration) uint64 {
	return uint64(d/time.Second)<<32 | uint64(d%time.Second)
}

func durationOf(words uint64) time.Duration {
	return time.Duration(words>>32)*time.Second + time.Duration(words&0xffffffff)
}

// flowStats reads OXS statistics with header and padding.
func (r *reader) flowStats() (s FlowStats) {
	r.skip(2)
	n := int(r.uint16())
	if n < 4 && r.err == nil {
		r.fail("statistics of %d bytes", n)
	}
	body := r.sub(n - 4)
	r.skip(pad8(n) - n)
	for body.left() > 0 {
		class, field, length := body.uint16(), body.uint8()>>1, int(body.uint8())
		value := body.sub(length)
		if class != oxsClass {
			continue
		}
		switch field {
		case oxsDuration:
			s.Duration = durationOf(value.uint64())
		case oxsIdleTime:
			s.IdleAge = durationOf(value.uint64())
		case oxsPackets:
			s.Packets = value.uint64()
		case oxsBytes:
			s.Bytes = value.uint64()
		}
		if value.err != nil {
			body.err = value.err
		}
	}
	if body.err != nil && r.err == nil {
		r.err = fmt.Errorf("statistics: %w", body.err)
	}
	return s
}

// FlowRemoved says that a flow with FlowSendFlowRem has gone.
type FlowRemoved struct {
	Flow   Flow // Table, Priority, Cookie, Match and timeouts
	Reason FlowRemovedReason
	Stats  FlowStats
}

// FlowRemovedReason says why a flow has gone.
type FlowRemovedReason uint8

// Reasons.
const (
	RemovedIdleTimeout FlowRemovedReason = iota
	RemovedHardTimeout
	RemovedDelete
	RemovedGroupDelete
	RemovedMeterDelete
	RemovedEviction
)

var removedNames = []string{"idle", "hard", "delete", "group_delete", "meter_delete", "eviction"}

// String prints the reason as ovs-ofctl does.
func (r FlowRemovedReason) String() string { return nameOf(removedNames, r) }

func (*FlowRemoved) msgType() uint8 { return typeFlowRemoved }

func (m *FlowRemoved) appendBody(b []byte) []byte {
	f := &m.Flow
	b = append(b, f.Table, byte(m.Reason))
	b = be.AppendUint16(b, f.Priority)
	b = be.AppendUint16(b, f.IdleTimeout)
	b = be.AppendUint16(b, f.HardTimeout)
	b = be.AppendUint64(b, f.Cookie)
	return m.Stats.appendTo(f.Match.appendTo(b), false)
}

func decodeFlowRemoved(r *reader) Message {
	m := &FlowRemoved{}
	f := &m.Flow
	f.Table, m.Reason = r.uint8(), FlowRemovedReason(r.uint8())
	f.Priority, f.IdleTimeout, f.HardTimeout, f.Cookie = r.uint16(), r.uint16(), r.uint16(), r.uint64()
	f.Match = r.match()
	m.Stats = r.flowStats()
	return m
}
