// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// Meter limits the rate of what passes it.
type Meter struct {
	ID    uint32
	Flags MeterFlags
	Bands []MeterBand
}

// MeterFlags say what a meter's rates are.
type MeterFlags uint16

// Meter flags; one of MeterKbps and MeterPktps is needed.
const (
	MeterKbps  MeterFlags = 1 << iota // rates in kilobits a second
	MeterPktps                        // rates in packets a second
	MeterBurst                        // burst sizes are given
	MeterCount                        // count packets and bytes (printed as stats)
)

var meterFlagNames = []string{"kbps", "pktps", "burst", "stats"}

// MeterBand says what happens to packets above a rate.
type MeterBand struct {
	Type  MeterBandType
	Rate  uint32
	Burst uint32
	Prec  uint8 // of MeterRemark: by how much the drop precedence rises
}

// MeterBandType is what a band does.
type MeterBandType uint16

// Band types.
const (
	MeterDrop   MeterBandType = 1
	MeterRemark MeterBandType = 2
)

// Reserved meter numbers.
const (
	MeterController uint32 = 0xfffffffe // the meter of packets to the controller
	MeterAll        uint32 = 0xffffffff
)

const meterBandLen = 16

// Equal reports whether m and n are the same meter with the same effect. Burst sizes do not
// count without MeterBurst: Open vSwitch then dumps what it chose.
func (m *Meter) Equal(n *Meter) bool {
	sameBand := func(a, b MeterBand) bool {
		if m.Flags&MeterBurst == 0 {
			a.Burst, b.Burst = 0, 0
		}
		return a == b
	}
	return m.ID == n.ID && m.Flags == n.Flags && slices.EqualFunc(m.Bands, n.Bands, sameBand)
}

// String prints m as "ovs-ofctl dump-meters" does.
func (m Meter) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "meter=%d %s bands=", m.ID,
		strings.ReplaceAll(joinFlags(uint64(m.Flags), meterFlagNames), "|", " "))
	for _, band := range m.Bands {
		s.WriteString("\n" + band.text(m.Flags))
	}
	return s.String()
}

func (m MeterBand) text(flags MeterFlags) string {
	s := "type=drop"
	switch m.Type {
	case MeterDrop:
	case MeterRemark:
		s = "type=dscp_remark"
	default:
		s = "type=" + utoa(m.Type)
	}
	s += " rate=" + utoa(m.Rate)
	if flags&MeterBurst != 0 {
		s += " burst_size=" + utoa(m.Burst)
	}
	if m.Type == MeterRemark {
		s += " prec_level=" + utoa(m.Prec)
	}
	return s
}

func (m *Meter) appendBands(b []byte) []byte {
	for _, band := range m.Bands {
		b = be.AppendUint16(be.AppendUint16(b, uint16(band.Type)), meterBandLen)
		b = be.AppendUint32(be.AppendUint32(b, band.Rate), band.Burst)
		b = append(b, band.Prec, 0, 0, 0)
	}
	return b
}

// decodeBands reads bands up to the end of r.
func (m *Meter) decodeBands(r *reader) {
	for r.left() > 0 {
		band := MeterBand{Type: MeterBandType(r.uint16())}
		n := int(r.uint16())
		if n < meterBandLen && r.err == nil {
			r.fail("band of %d bytes", n)
		}
		band.Rate, band.Burst, band.Prec = r.uint32(), r.uint32(), r.uint8()
		r.skip(n - meterBandLen + 3)
		if r.err == nil {
			m.Bands = append(m.Bands, band)
		}
	}
}

// MeterModCommand says what a MeterMod does.
type MeterModCommand uint16

// Commands.
const (
	MeterAdd MeterModCommand = iota
	MeterModify
	MeterDelete
)

// MeterMod adds, changes or deletes a meter.
type MeterMod struct {
	Command MeterModCommand
	Meter   Meter
}

func (*MeterMod) msgType() uint8 { return typeMeterMod }

func (m *MeterMod) appendBody(b []byte) []byte {
	b = be.AppendUint16(be.AppendUint16(b, uint16(m.Command)), uint16(m.Meter.Flags))
	return m.Meter.appendBands(be.AppendUint32(b, m.Meter.ID))
}

func decodeMeterMod(r *reader) Message {
	m := &MeterMod{Command: MeterModCommand(r.uint16())}
	m.Meter.Flags, m.Meter.ID = MeterFlags(r.uint16()), r.uint32()
	m.Meter.decodeBands(r)
	return m
}
