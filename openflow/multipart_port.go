// SPDX-License-Identifier: Apache-2.0

package openflow

import "time"

// DescRequest asks for Desc.
type DescRequest struct{}

func (*DescRequest) multipartType() uint16      { return mpDesc }
func (*DescRequest) appendBody(b []byte) []byte { return b }

// Desc describes the switch in words.
type Desc struct{ Manufacturer, Hardware, Software, Serial, Datapath string }

const (
	descLen   = 256
	serialLen = 32
)

func (*Desc) multipartType() uint16 { return mpDesc }

func (m *Desc) appendBody(b []byte) []byte {
	b = appendText(b, m.Manufacturer, descLen)
	b = appendText(b, m.Hardware, descLen)
	b = appendText(b, m.Software, descLen)
	b = appendText(b, m.Serial, serialLen)
	return appendText(b, m.Datapath, descLen)
}

func decodeDesc(r *reader) MultipartBody {
	return &Desc{r.text(descLen), r.text(descLen), r.text(descLen), r.text(serialLen), r.text(descLen)}
}

// TableStatsRequest asks for TableStats.
type TableStatsRequest struct{}

func (*TableStatsRequest) multipartType() uint16      { return mpTable }
func (*TableStatsRequest) appendBody(b []byte) []byte { return b }

// TableStats are the counters of all tables.
type TableStats []TableStat

// TableStat is the counters of a table.
type TableStat struct {
	Table            uint8
	Active           uint32 // number of flows
	Lookups, Matched uint64
}

func (TableStats) multipartType() uint16 { return mpTable }

func (l TableStats) appendBody(b []byte) []byte {
	for _, t := range l {
		b = be.AppendUint32(append(b, t.Table, 0, 0, 0), t.Active)
		b = be.AppendUint64(be.AppendUint64(b, t.Lookups), t.Matched)
	}
	return b
}

func (r *reader) tableStat() TableStat {
	t := TableStat{Table: r.uint8()}
	r.skip(3)
	t.Active, t.Lookups, t.Matched = r.uint32(), r.uint64(), r.uint64()
	return t
}

// PortStatsRequest asks for PortStats.
type PortStatsRequest struct{ Port uint32 } // PortAny: all

func (*PortStatsRequest) multipartType() uint16        { return mpPortStats }
func (m *PortStatsRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Port) }

// appendPadded appends a number and padding to 8 bytes.
func appendPadded(b []byte, n uint32) []byte { return append(be.AppendUint32(b, n), 0, 0, 0, 0) }

// PortStats are the counters of ports.
type PortStats []PortStat

// PortStat is the counters of a port. A counter that the switch lacks is 2⁶⁴−1.
type PortStat struct {
	Port                 uint32
	Duration             time.Duration // since the port was added
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64
}

const portStatLen = 80

func (PortStats) multipartType() uint16 { return mpPortStats }

func (l PortStats) appendBody(b []byte) []byte {
	for i := range l {
		s := &l[i]
		b = append(be.AppendUint16(b, portStatLen), 0, 0)
		b = be.AppendUint64(be.AppendUint32(b, s.Port), durationWords(s.Duration))
		for _, c := range s.counters() {
			b = be.AppendUint64(b, *c)
		}
	}
	return b
}

// counters are the counters in their order on the wire.
func (s *PortStat) counters() [8]*uint64 {
	return [...]*uint64{
		&s.RxPackets, &s.TxPackets, &s.RxBytes, &s.TxBytes, &s.RxDropped, &s.TxDropped, &s.RxErrors, &s.TxErrors,
	}
}

func (r *reader) portStat() (s PortStat) {
	n := int(r.uint16())
	r.skip(2)
	body := r.entry("port", n, 4)
	s.Port, s.Duration = body.uint32(), durationOf(body.uint64())
	for _, c := range s.counters() {
		*c = body.uint64()
	}
	r.end("port", &body)
	return s
}

// PortDescRequest asks for PortDescs.
type PortDescRequest struct{ Port uint32 } // PortAny: all

func (*PortDescRequest) multipartType() uint16        { return mpPortDesc }
func (m *PortDescRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Port) }

// PortDescs are ports.
type PortDescs []Port

func (PortDescs) multipartType() uint16 { return mpPortDesc }

func (l PortDescs) appendBody(b []byte) []byte {
	for i := range l {
		b = l[i].appendTo(b)
	}
	return b
}
