// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// PacketIn2 is a packet that the switch sends to the controller. It comes in Nicira's form
// (NXT_PACKET_IN2) after SetPacketInFormat, and otherwise in OpenFlow's, which has no
// Userdata and no Continuation.
type PacketIn2 struct {
	Packet  []byte
	FullLen uint32 // length of the packet, which may have been cut
	Table   uint8
	// Of the flow with the action that sent it; NoCookie if none is known, as
	// for a paused pipeline.
	Cookie       uint64
	Reason       PacketInReason
	Metadata     Match // in_port, registers, tunnel, conntrack
	Userdata     []byte
	Continuation []byte // of a paused pipeline: give it back with Resume
}

// NoCookie is the cookie of a packet that no known flow sent.
const NoCookie = 1<<64 - 1

// Properties of NXT_PACKET_IN2 and NXT_RESUME, from nicira-ext.h.
const (
	pinPacket = iota
	pinFullLen
	pinBufferID
	pinTable
	pinCookie
	pinReason
	pinMetadata
	pinUserdata
	pinContinuation
)

// InPort returns the port on which the packet came in.
func (m *PacketIn2) InPort() uint32 {
	port, _ := m.Metadata.Get(FieldInPort.All())
	return uint32(port)
}

func (*PacketIn2) msgType() uint8 { return typeExperimenter }

func (m *PacketIn2) appendBody(b []byte) []byte {
	return m.appendProps(appendNicira(b, nxtPacketIn2))
}

func (m *PacketIn2) appendProps(b []byte) []byte {
	b = appendProp(b, pinPacket, m.Packet)
	if m.FullLen != 0 && int(m.FullLen) != len(m.Packet) {
		b = appendProp32(b, pinFullLen, m.FullLen)
	}
	b = appendProp(b, pinTable, []byte{m.Table})
	if m.Cookie != NoCookie {
		b = appendProp(b, pinCookie, be.AppendUint64([]byte{0, 0, 0, 0}, m.Cookie))
	}
	b = appendProp(b, pinReason, []byte{m.Reason.wire()})
	b = appendProp(b, pinMetadata, []byte(m.Metadata.oxm))
	if len(m.Continuation) > 0 {
		start := len(b)
		b = append(beginProp(b, pinContinuation), 0, 0, 0, 0)
		b = endProp(append(b, m.Continuation...), start)
	}
	if len(m.Userdata) > 0 {
		b = appendProp(b, pinUserdata, m.Userdata)
	}
	return b
}

func (m *PacketIn2) decodeProps(r *reader) {
	m.Cookie = NoCookie
	for r.left() > 0 {
		if err := m.decodeProp(r.prop()); err != nil {
			r.fail("packet-in: %w", err)
		}
	}
	if m.FullLen == 0 {
		m.FullLen = uint32(len(m.Packet))
	}
}

func (m *PacketIn2) decodeProp(p prop) (err error) {
	value := append([]byte(nil), p.value...)
	switch p.typ {
	case pinPacket:
		m.Packet = value
	case pinFullLen:
		m.FullLen, err = p.uint32()
	case pinTable:
		m.Table, err = p.uint8()
	case pinCookie:
		if len(value) < 12 {
			return errShort
		}
		m.Cookie = be.Uint64(value[4:])
	case pinReason:
		var reason uint8
		reason, err = p.uint8()
		m.Reason = PacketInReason(PacketInReason(reason).wire())
	case pinMetadata:
		m.Metadata, err = decodeMatch(p.value)
	case pinUserdata:
		m.Userdata = value
	case pinContinuation:
		if len(value) < 4 {
			return errShort
		}
		m.Continuation = value[4:]
	}
	return err
}

// decodePacketIn reads OpenFlow's own packet-in.
func decodePacketIn(r *reader) Message {
	r.skip(4)
	m := &PacketIn2{FullLen: uint32(r.uint16()), Reason: PacketInReason(PacketInReason(r.uint8()).wire())}
	m.Table, m.Cookie = r.uint8(), r.uint64()
	m.Metadata = r.match()
	r.skip(2)
	m.Packet = r.rest()
	return m
}

// Resume lets a paused pipeline go on. Change Packet and Metadata of the
// PacketIn2 first, if wanted.
type Resume struct{ PacketIn PacketIn2 }

func (*Resume) msgType() uint8 { return typeExperimenter }

func (m *Resume) appendBody(b []byte) []byte {
	p := m.PacketIn
	p.FullLen, p.Userdata = 0, nil
	return p.appendProps(appendNicira(b, nxtResume))
}

// PacketOut makes the switch process a packet.
type PacketOut struct {
	InPort  uint32 // PortController for none
	Match   Match  // further metadata: registers, tunnel
	Actions []Action
	Packet  []byte
}

func (*PacketOut) msgType() uint8 { return typePacketOut }

func (m *PacketOut) appendBody(b []byte) []byte {
	start := len(b)
	b = be.AppendUint32(b, noBuffer)
	b = append(b, 0, 0, 0, 0)
	b = m.Match.With(InPort(m.InPort)).appendTo(b)
	actions := len(b)
	b = appendActions(b, m.Actions)
	be.PutUint16(b[start+4:], uint16(len(b)-actions))
	return append(b, m.Packet...)
}

func decodePacketOut(r *reader) Message {
	r.skip(4)
	n := int(r.uint16())
	r.skip(2)
	m := &PacketOut{Match: r.match()}
	port, mask := m.Match.Get(FieldInPort.All())
	if mask == 0 {
		port = uint64(PortController)
	}
	m.InPort = uint32(port)
	m.Match = m.Match.Without(FieldInPort)
	actions := r.sub(n)
	m.Actions = actions.actions()
	if actions.err != nil {
		r.err = fmt.Errorf("actions: %w", actions.err)
	}
	m.Packet = r.rest()
	return m
}
