// SPDX-License-Identifier: Apache-2.0

package openflow

// Error is what a switch answers to a message that it refuses; its transaction id is that
// of the message.
type Error struct {
	Type, Code   uint16
	Experimenter uint32 // of Type ErrorExperimenter
	Data         []byte // the beginning of the message
}

// ErrorExperimenter is the type of errors that an experimenter has defined.
const ErrorExperimenter = 0xffff

// Unknown reports that the switch does not know messages of this type.
func (m *Error) Unknown() bool {
	const badRequest, badType, badExperimenter, badExperimenterType = 1, 1, 3, 4
	return m.Type == badRequest && (m.Code == badType || m.Code == badExperimenter || m.Code == badExperimenterType)
}

func (*Error) msgType() uint8 { return typeError }

func (m *Error) appendBody(b []byte) []byte {
	b = be.AppendUint16(be.AppendUint16(b, m.Type), m.Code)
	if m.Type == ErrorExperimenter {
		b = be.AppendUint32(b, m.Experimenter)
	}
	return append(b, m.Data...)
}

func decodeError(r *reader) Message {
	m := &Error{Type: r.uint16(), Code: r.uint16()}
	if m.Type == ErrorExperimenter {
		m.Experimenter = r.uint32()
	}
	m.Data = r.rest()
	return m
}
