// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// Reserved OpenFlow ports.
const (
	PortMax        uint32 = 0xffffff00 // the first number that no port can have
	PortUnset      uint32 = 0xfffffff7
	PortInPort     uint32 = 0xfffffff8
	PortTable      uint32 = 0xfffffff9
	PortNormal     uint32 = 0xfffffffa
	PortFlood      uint32 = 0xfffffffb
	PortAll        uint32 = 0xfffffffc
	PortController uint32 = 0xfffffffd
	PortLocal      uint32 = 0xfffffffe
	PortAny        uint32 = 0xffffffff // also "none"
)

// maxLenAll as a MaxLen sends whole packets to the controller.
const maxLenAll = 0xffff

// OutputAction sends the packet out of a port.
type OutputAction struct {
	Port   uint32
	MaxLen uint16 // bytes sent, if Port is PortController
}

// Output sends the packet out of port. A packet never leaves by the port on which it
// came in: see OutputInPort.
func Output(port uint32) Action {
	if port == PortController {
		return OutputAction{port, maxLenAll}
	}
	return OutputAction{Port: port}
}

// OutputInPort sends the packet back out of the port on which it came in.
func OutputInPort() Action { return OutputAction{Port: PortInPort} }

func (a OutputAction) String() string {
	switch {
	case a.Port < PortMax:
		return "output:" + PortName(a.Port)
	case a.Port == PortController:
		return "CONTROLLER:" + utoa(a.MaxLen)
	}
	return PortName(a.Port)
}

func (a OutputAction) appendTo(b []byte) []byte {
	b = append(b, 0, actOutput, 0, 16)
	b = be.AppendUint32(b, a.Port)
	if a.Port != PortController {
		a.MaxLen = 0
	}
	return appendZeros(be.AppendUint16(b, a.MaxLen), 6)
}

// OutputFieldAction sends the packet out of the port that a field holds.
type OutputFieldAction struct {
	Source Subfield
	MaxLen uint16 // bytes sent, if that is PortController
}

// OutputField sends the packet out of the port that s holds, such as FieldReg3.All().
func OutputField(s Subfield) Action { return OutputFieldAction{s, maxLenAll} }

func (a OutputFieldAction) String() string { return "output:" + a.Source.String() }

func (a OutputFieldAction) appendTo(b []byte) []byte {
	start := len(b)
	if a.Source.Field.info().nxmID.class == classExp {
		b = be.AppendUint16(nxAction(b, nxOutputReg2), a.Source.ofsBits())
		b = be.AppendUint16(b, a.MaxLen)
		return endAction(a.Source.appendHeader(b), start)
	}
	b = be.AppendUint16(nxAction(b, nxOutputReg), a.Source.ofsBits())
	b = a.Source.appendHeader(b)
	b = be.AppendUint16(b, a.MaxLen)
	return endAction(b, start)
}

// OutputTruncAction sends the first MaxLen bytes of the packet out of a port.
type OutputTruncAction struct{ Port, MaxLen uint32 }

// OutputTrunc sends the first maxLen bytes of the packet, at least 14, out of port.
func OutputTrunc(port, maxLen uint32) Action { return OutputTruncAction{port, maxLen} }

func (a OutputTruncAction) String() string {
	return fmt.Sprintf("output(port=%s,max_len=%d)", PortName(a.Port), a.MaxLen)
}

func (a OutputTruncAction) appendTo(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(nxAction(b, nxOutputTrunc), uint16(a.Port))
	return endAction(be.AppendUint32(b, a.MaxLen), start)
}

// GroupAction hands the packet to a group.
type GroupAction struct{ Group uint32 }

// ToGroup hands the packet to a group.
func ToGroup(id uint32) Action { return GroupAction{id} }

func (a GroupAction) String() string { return "group:" + utoa(a.Group) }

func (a GroupAction) appendTo(b []byte) []byte {
	return be.AppendUint32(append(b, 0, actGroup, 0, 8), a.Group)
}

// MeterAction passes the packet through a meter.
type MeterAction struct{ Meter uint32 }

// ToMeter passes the packet through a meter, which may drop it.
func ToMeter(id uint32) Action { return MeterAction{id} }

func (a MeterAction) String() string { return "meter:" + utoa(a.Meter) }

func (a MeterAction) appendTo(b []byte) []byte {
	return be.AppendUint32(append(b, 0, actMeter, 0, 8), a.Meter)
}

// SetQueueAction selects the queue of later outputs.
type SetQueueAction struct{ Queue uint32 }

// SetQueue selects the queue of later outputs.
func SetQueue(queue uint32) Action { return SetQueueAction{queue} }

func (a SetQueueAction) String() string { return "set_queue:" + utoa(a.Queue) }

func (a SetQueueAction) appendTo(b []byte) []byte {
	return be.AppendUint32(append(b, 0, actSetQueue, 0, 8), a.Queue)
}
