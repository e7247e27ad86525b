// SPDX-License-Identifier: Apache-2.0

package openflow

import "time"

// MeterStatsRequest asks for MeterStats.
type MeterStatsRequest struct{ Meter uint32 } // MeterAll: all

func (*MeterStatsRequest) multipartType() uint16        { return mpMeter }
func (m *MeterStatsRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Meter) }

// MeterStats are the counters of meters.
type MeterStats []MeterStat

// MeterStat is the counters of a meter.
type MeterStat struct {
	Meter          uint32
	FlowCount      uint32 // flows that use it; Open vSwitch does not know it
	Packets, Bytes uint64
	Duration       time.Duration // since the meter was added
	Bands          []BandStat
}

// BandStat is the counters of a band: what was above its rate.
type BandStat struct{ Packets, Bytes uint64 }

const meterStatLen = 40

func (MeterStats) multipartType() uint16 { return mpMeter }

func (l MeterStats) appendBody(b []byte) []byte {
	for i := range l {
		m := &l[i]
		b = be.AppendUint32(b, m.Meter)
		b = be.AppendUint16(b, uint16(meterStatLen+16*len(m.Bands)))
		b = be.AppendUint32(appendZeros(b, 6), m.FlowCount)
		b = be.AppendUint64(be.AppendUint64(b, m.Packets), m.Bytes)
		b = be.AppendUint64(b, durationWords(m.Duration))
		for _, k := range m.Bands {
			b = be.AppendUint64(be.AppendUint64(b, k.Packets), k.Bytes)
		}
	}
	return b
}

func (r *reader) meterStat() (m MeterStat) {
	m.Meter = r.uint32()
	n := int(r.uint16())
	body := r.entry("meter", n, 6)
	body.skip(6)
	m.FlowCount = body.uint32()
	m.Packets, m.Bytes = body.uint64(), body.uint64()
	m.Duration = durationOf(body.uint64())
	m.Bands = entries(&body, func(r *reader) BandStat { return BandStat{r.uint64(), r.uint64()} })
	r.end("meter", &body)
	return m
}

// MeterConfigRequest asks for MeterConfigs.
type MeterConfigRequest struct{ Meter uint32 } // MeterAll: all

func (*MeterConfigRequest) multipartType() uint16        { return mpMeterConfig }
func (m *MeterConfigRequest) appendBody(b []byte) []byte { return appendPadded(b, m.Meter) }

// MeterConfigs are meters.
type MeterConfigs []Meter

const meterConfigLen = 8

func (MeterConfigs) multipartType() uint16 { return mpMeterConfig }

func (l MeterConfigs) appendBody(b []byte) []byte {
	for i := range l {
		m := &l[i]
		b = be.AppendUint16(b, uint16(meterConfigLen+meterBandLen*len(m.Bands)))
		b = be.AppendUint32(be.AppendUint16(b, uint16(m.Flags)), m.ID)
		b = m.appendBands(b)
	}
	return b
}

func (r *reader) meterConfig() (m Meter) {
	n := int(r.uint16())
	m.Flags, m.ID = MeterFlags(r.uint16()), r.uint32()
	body := r.entry("meter", n, meterConfigLen)
	m.decodeBands(&body)
	r.end("meter", &body)
	return m
}
