// SPDX-License-Identifier: Apache-2.0

package openflow

import "time"

// GroupStatsRequest asks for GroupStats.
type GroupStatsRequest struct{ Group uint32 } // GroupAllGroups: all

func (*GroupStatsRequest) multipartType() uint16        { return mpGroup }
func (m *GroupStatsRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Group) }

// GroupStats are the counters of groups.
type GroupStats []GroupStat

// GroupStat is the counters of a group.
type GroupStat struct {
	Group          uint32
	RefCount       uint32 // flows and groups that use it
	Packets, Bytes uint64
	Duration       time.Duration // since the group was added
	Buckets        []BucketStat
}

// BucketStat is the counters of a bucket.
type BucketStat struct{ Packets, Bytes uint64 }

func (GroupStats) multipartType() uint16 { return mpGroup }

func (l GroupStats) appendBody(b []byte) []byte {
	for i := range l {
		g := &l[i]
		start := len(b)
		b = be.AppendUint32(append(b, 0, 0, 0, 0), g.Group)
		b = appendPadded(b, g.RefCount)
		b = be.AppendUint64(be.AppendUint64(b, g.Packets), g.Bytes)
		b = be.AppendUint64(b, durationWords(g.Duration))
		for _, k := range g.Buckets {
			b = be.AppendUint64(be.AppendUint64(b, k.Packets), k.Bytes)
		}
		be.PutUint16(b[start:], uint16(len(b)-start))
	}
	return b
}

func (r *reader) groupStat() (g GroupStat) {
	n := int(r.uint16())
	r.skip(2)
	body := r.entry("group", n, 4)
	g.Group, g.RefCount = body.uint32(), body.uint32()
	body.skip(4)
	g.Packets, g.Bytes = body.uint64(), body.uint64()
	g.Duration = durationOf(body.uint64())
	g.Buckets = entries(&body, func(r *reader) BucketStat { return BucketStat{r.uint64(), r.uint64()} })
	r.end("group", &body)
	return g
}

// GroupDescRequest asks for GroupDescs.
type GroupDescRequest struct{ Group uint32 } // GroupAllGroups: all

func (*GroupDescRequest) multipartType() uint16        { return mpGroupDesc }
func (m *GroupDescRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Group) }

// GroupDescs are groups.
type GroupDescs []Group

const groupDescLen = 16

func (GroupDescs) multipartType() uint16 { return mpGroupDesc }

func (l GroupDescs) appendBody(b []byte) []byte {
	for i := range l {
		g := &l[i]
		start := len(b)
		b = be.AppendUint32(append(b, 0, 0, byte(g.Type), 0), g.ID)
		b = appendZeros(b, 8)
		var n int
		b, n = g.appendBuckets(b)
		be.PutUint16(b[start+8:], uint16(n))
		b = g.appendProps(b)
		be.PutUint16(b[start:], uint16(len(b)-start))
	}
	return b
}

func (r *reader) groupDesc() (g Group) {
	n := int(r.uint16())
	g.Type = GroupType(r.uint8())
	r.skip(1)
	g.ID = r.uint32()
	bucketsLen := int(r.uint16())
	r.skip(6)
	body := r.entry("group", n, groupDescLen)
	buckets := body.sub(bucketsLen)
	g.decodeBuckets(&buckets)
	body.end("buckets", &buckets)
	g.decodeProps(&body)
	r.end("group", &body)
	return g
}
