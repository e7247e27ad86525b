// SPDX-License-Identifier: Apache-2.0

package openflow

// Nicira's messages, from nicira-ext.h and ofp-msgs.h.
const (
	nxtSetPacketInFormat = 16
	nxtSetControllerID   = 20
	nxtTLVTableMod       = 24
	nxtTLVTableRequest   = 25
	nxtTLVTableReply     = 26
	nxtResume            = 28
	nxtCTFlushZone       = 29
	nxtPacketIn2         = 30
	nxtCTFlush           = 32
)

// appendNicira begins the body of one of Nicira's messages.
func appendNicira(b []byte, subtype uint32) []byte {
	return be.AppendUint32(be.AppendUint32(b, vendorNicira), subtype)
}

// decodeExperimenter reads Nicira's messages, and those of others as Experimenter.
func decodeExperimenter(r *reader) Message {
	vendor, subtype := r.uint32(), r.uint32()
	if vendor == vendorNicira {
		switch subtype {
		case nxtSetPacketInFormat:
			return &SetPacketInFormat{r.uint32()}
		case nxtSetControllerID:
			r.skip(6)
			return &SetControllerID{r.uint16()}
		case nxtTLVTableMod:
			return decodeTLVTableMod(r)
		case nxtTLVTableRequest:
			return &TLVTableRequest{}
		case nxtTLVTableReply:
			return decodeTLVTableReply(r)
		case nxtResume:
			m := &Resume{}
			m.PacketIn.decodeProps(r)
			return m
		case nxtCTFlushZone:
			r.skip(6)
			return &CTFlushZone{r.uint16()}
		case nxtPacketIn2:
			m := &PacketIn2{}
			m.decodeProps(r)
			return m
		case nxtCTFlush:
			return decodeCTFlush(r)
		}
	}
	return &Experimenter{vendor, subtype, r.rest()}
}

// SetPacketInFormat chooses the form of packet-in messages on this connection.
type SetPacketInFormat struct{ Format uint32 }

// PacketInNXT2 is the format that carries userdata and continuations.
const PacketInNXT2 = 2

func (*SetPacketInFormat) msgType() uint8 { return typeExperimenter }

func (m *SetPacketInFormat) appendBody(b []byte) []byte {
	return be.AppendUint32(appendNicira(b, nxtSetPacketInFormat), m.Format)
}

// SetControllerID gives this connection the id that Controller actions name.
type SetControllerID struct{ ID uint16 }

func (*SetControllerID) msgType() uint8 { return typeExperimenter }

func (m *SetControllerID) appendBody(b []byte) []byte {
	return be.AppendUint16(appendZeros(appendNicira(b, nxtSetControllerID), 6), m.ID)
}

// TLVTableMod changes the table that maps tunnel options to tun_metadata fields. Without a
// mapping a switch refuses the field.
type TLVTableMod struct {
	Command  TLVTableCommand
	Mappings []TLVMapping
}

// TLVTableCommand says what a TLVTableMod does.
type TLVTableCommand uint16

// Commands.
const (
	TLVAdd    TLVTableCommand = iota
	TLVDelete                 // by Index
	TLVClear
)

// TLVMapping maps a Geneve option to field tun_metadata<Index>.
type TLVMapping struct {
	Class  uint16
	Type   uint8
	Length uint8  // bytes, a multiple of 4 up to 124
	Index  uint16 // 0 to 63
}

func (*TLVTableMod) msgType() uint8 { return typeExperimenter }

func (m *TLVTableMod) appendBody(b []byte) []byte {
	b = be.AppendUint16(appendNicira(b, nxtTLVTableMod), uint16(m.Command))
	return appendMappings(appendZeros(b, 6), m.Mappings)
}

func appendMappings(b []byte, mappings []TLVMapping) []byte {
	for _, m := range mappings {
		b = append(be.AppendUint16(b, m.Class), m.Type, m.Length)
		b = append(be.AppendUint16(b, m.Index), 0, 0)
	}
	return b
}

func decodeTLVTableMod(r *reader) Message {
	m := &TLVTableMod{Command: TLVTableCommand(r.uint16())}
	r.skip(6)
	m.Mappings = r.mappings()
	return m
}

// mappings reads mappings up to the end of r.
func (r *reader) mappings() (list []TLVMapping) {
	for r.left() > 0 {
		m := TLVMapping{r.uint16(), r.uint8(), r.uint8(), r.uint16()}
		r.skip(2)
		list = append(list, m)
	}
	return list
}

// TLVTableRequest asks for a TLVTableReply.
type TLVTableRequest struct{}

func (*TLVTableRequest) msgType() uint8             { return typeExperimenter }
func (*TLVTableRequest) appendBody(b []byte) []byte { return appendNicira(b, nxtTLVTableRequest) }

// TLVTableReply is the table of tunnel options.
type TLVTableReply struct {
	MaxSpace  uint32 // bytes of all options together
	MaxFields uint16
	Mappings  []TLVMapping
}

func (*TLVTableReply) msgType() uint8 { return typeExperimenter }

func (m *TLVTableReply) appendBody(b []byte) []byte {
	b = be.AppendUint32(appendNicira(b, nxtTLVTableReply), m.MaxSpace)
	b = be.AppendUint16(b, m.MaxFields)
	return appendMappings(appendZeros(b, 10), m.Mappings)
}

func decodeTLVTableReply(r *reader) Message {
	m := &TLVTableReply{MaxSpace: r.uint32(), MaxFields: r.uint16()}
	r.skip(10)
	m.Mappings = r.mappings()
	return m
}

// CTFlushZone forgets all connections of a zone.
type CTFlushZone struct{ Zone uint16 }

func (*CTFlushZone) msgType() uint8 { return typeExperimenter }

func (m *CTFlushZone) appendBody(b []byte) []byte {
	return be.AppendUint16(appendZeros(appendNicira(b, nxtCTFlushZone), 6), m.Zone)
}

// Experimenter is a message of an experimenter that this package does not know.
type Experimenter struct {
	Experimenter, Subtype uint32
	Data                  []byte
}

func (*Experimenter) msgType() uint8 { return typeExperimenter }

func (m *Experimenter) appendBody(b []byte) []byte {
	return append(be.AppendUint32(be.AppendUint32(b, m.Experimenter), m.Subtype), m.Data...)
}
