// SPDX-License-Identifier: Apache-2.0

package openflow

// Hello opens a connection. Versions are those offered, by their number on the wire; nil
// means Version alone.
type Hello struct{ Versions []uint8 }

// helloBitmap is the element of a Hello that lists versions.
const helloBitmap = 1

func (*Hello) msgType() uint8 { return typeHello }

func (m *Hello) appendBody(b []byte) []byte {
	var bitmap uint32
	for _, v := range m.Versions {
		bitmap |= 1 << v
	}
	if len(m.Versions) == 0 {
		bitmap = 1 << Version
	}
	return appendProp32(b, helloBitmap, bitmap)
}

func decodeHello(r *reader) Message {
	m := &Hello{}
	for r.left() > 0 {
		p := r.prop()
		if p.typ != helloBitmap {
			continue
		}
		bitmap, err := p.uint32()
		if err != nil {
			r.fail("hello: %w", err)
		}
		for v := range uint8(32) {
			if bitmap>>v&1 != 0 {
				m.Versions = append(m.Versions, v)
			}
		}
	}
	return m
}

// EchoRequest asks for an EchoReply with the same data.
type EchoRequest struct{ Data []byte }

func (*EchoRequest) msgType() uint8               { return typeEchoRequest }
func (m *EchoRequest) appendBody(b []byte) []byte { return append(b, m.Data...) }

// EchoReply answers an EchoRequest.
type EchoReply struct{ Data []byte }

func (*EchoReply) msgType() uint8               { return typeEchoReply }
func (m *EchoReply) appendBody(b []byte) []byte { return append(b, m.Data...) }

// FeaturesRequest asks for Features.
type FeaturesRequest struct{}

func (*FeaturesRequest) msgType() uint8             { return typeFeaturesRequest }
func (*FeaturesRequest) appendBody(b []byte) []byte { return b }

// Features describes the switch.
type Features struct {
	DatapathID   uint64
	NBuffers     uint32
	NTables      uint8
	AuxiliaryID  uint8
	Capabilities uint32
}

func (*Features) msgType() uint8 { return typeFeatures }

func (m *Features) appendBody(b []byte) []byte {
	b = be.AppendUint64(b, m.DatapathID)
	b = be.AppendUint32(b, m.NBuffers)
	b = append(b, m.NTables, m.AuxiliaryID, 0, 0)
	return appendZeros(be.AppendUint32(b, m.Capabilities), 4)
}

func decodeFeatures(r *reader) Message {
	m := &Features{DatapathID: r.uint64(), NBuffers: r.uint32(), NTables: r.uint8(), AuxiliaryID: r.uint8()}
	r.skip(2)
	m.Capabilities = r.uint32()
	return m
}

// GetConfigRequest asks for a GetConfigReply.
type GetConfigRequest struct{}

func (*GetConfigRequest) msgType() uint8             { return typeGetConfigRequest }
func (*GetConfigRequest) appendBody(b []byte) []byte { return b }

// GetConfigReply is the switch's configuration.
type GetConfigReply struct{ Config SwitchConfig }

func (*GetConfigReply) msgType() uint8               { return typeGetConfigReply }
func (m *GetConfigReply) appendBody(b []byte) []byte { return m.Config.appendTo(b) }

// SetConfig sets the switch's configuration for this connection.
type SetConfig struct{ Config SwitchConfig }

func (*SetConfig) msgType() uint8               { return typeSetConfig }
func (m *SetConfig) appendBody(b []byte) []byte { return m.Config.appendTo(b) }

// SwitchConfig is the configuration of a switch.
type SwitchConfig struct {
	Flags       uint16
	MissSendLen uint16 // bytes of a packet sent to the controller by default
}

func (c SwitchConfig) appendTo(b []byte) []byte {
	return be.AppendUint16(be.AppendUint16(b, c.Flags), c.MissSendLen)
}

// BarrierRequest is answered when all earlier messages have been processed.
type BarrierRequest struct{}

func (*BarrierRequest) msgType() uint8             { return typeBarrierRequest }
func (*BarrierRequest) appendBody(b []byte) []byte { return b }

// BarrierReply answers a BarrierRequest.
type BarrierReply struct{}

func (*BarrierReply) msgType() uint8             { return typeBarrierReply }
func (*BarrierReply) appendBody(b []byte) []byte { return b }

// RoleRequest asks for a role on this connection.
type RoleRequest struct {
	Role         Role
	ShortID      uint16
	GenerationID uint64
}

// RoleReply answers a RoleRequest.
type RoleReply RoleRequest

// Role of a controller.
type Role uint32

// Roles.
const (
	RoleNoChange Role = iota
	RoleEqual
	RolePrimary
	RoleSecondary
)

func (*RoleRequest) msgType() uint8 { return typeRoleRequest }

func (m *RoleRequest) appendBody(b []byte) []byte {
	b = be.AppendUint32(b, uint32(m.Role))
	b = append(be.AppendUint16(b, m.ShortID), 0, 0)
	return be.AppendUint64(b, m.GenerationID)
}

func (*RoleReply) msgType() uint8               { return typeRoleReply }
func (m *RoleReply) appendBody(b []byte) []byte { return (*RoleRequest)(m).appendBody(b) }

func decodeRole(r *reader) RoleRequest {
	m := RoleRequest{Role: Role(r.uint32()), ShortID: r.uint16()}
	r.skip(2)
	m.GenerationID = r.uint64()
	return m
}

// SetAsync chooses which messages come unasked on this connection.
type SetAsync struct{ Masks []AsyncMask }

// AsyncMask says which reasons of one kind of message are wanted.
type AsyncMask struct {
	Kind AsyncKind
	Mask uint32 // bit n: reason n, by its number on the wire
}

// AsyncKind is a kind of message, for a secondary controller; add AsyncPrimary for one in
// the equal or primary role.
type AsyncKind uint16

// Kinds.
const (
	AsyncPacketIn       AsyncKind = 0
	AsyncPortStatus     AsyncKind = 2
	AsyncFlowRemoved    AsyncKind = 4
	AsyncRoleStatus     AsyncKind = 6
	AsyncTableStatus    AsyncKind = 8
	AsyncRequestForward AsyncKind = 10
	AsyncPrimary        AsyncKind = 1
)

func (*SetAsync) msgType() uint8 { return typeSetAsync }

func (m *SetAsync) appendBody(b []byte) []byte {
	for _, a := range m.Masks {
		b = appendProp32(b, uint16(a.Kind), a.Mask)
	}
	return b
}

func decodeSetAsync(r *reader) Message {
	m := &SetAsync{}
	for r.left() > 0 {
		p := r.prop()
		mask, err := p.uint32()
		if err != nil {
			r.fail("set async: %w", err)
		}
		m.Masks = append(m.Masks, AsyncMask{AsyncKind(p.typ), mask})
	}
	return m
}

// Unknown is a message that this package does not know.
type Unknown struct {
	Type uint8
	Body []byte
}

func (m *Unknown) msgType() uint8             { return m.Type }
func (m *Unknown) appendBody(b []byte) []byte { return append(b, m.Body...) }
