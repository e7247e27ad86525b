// SPDX-License-Identifier: Apache-2.0

package openflow

// MeterFlags say what a meter's rates are.
type MeterFlags uint16

// Meter flags; one of MeterKbps and MeterPktps is needed.
const (
	MeterKbps  MeterFlags = 1 << iota // rates in kilobits a second
	MeterPktps                        // rates in packets a second
	MeterBurst                        // burst sizes are given
	MeterCount                        // count packets and bytes (printed as stats)
)

// Meter limits the rate of what passes it.
type Meter struct {
	ID    uint32
	Flags MeterFlags
	Bands []MeterBand
}

// MeterBand says what happens to packets above a rate.
type MeterBand struct {
	Type  MeterBandType
	Rate  uint32
	Burst uint32
	Prec  uint8 // of MeterRemark: by how much drop precedence rises
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
	MeterController uint32 = 0xfffffffe
	MeterAll        uint32 = 0xffffffff
)

// Equal reports whether m and n are the same meter with the same effect.
func (m *Meter) Equal(n *Meter) bool { return false }

// String prints m as "ovs-ofctl dump-meters" does.
func (m *Meter) String() string { return "" }

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
