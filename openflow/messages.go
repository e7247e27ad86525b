// SPDX-License-Identifier: Apache-2.0

package openflow

import "time"

// Hello opens a connection. Versions are those offered, by their number on the wire; nil means up to Version.
type Hello struct{ Versions []uint8 }

// Error is what a switch answers to a message that it refuses; its XID is that of the message.
type Error struct {
	Type, Code   uint16
	Experimenter uint32 // of Type 0xffff
	Data         []byte // the beginning of the message
}

// EchoRequest asks for an EchoReply with the same data.
type EchoRequest struct{ Data []byte }

// EchoReply answers an EchoRequest.
type EchoReply struct{ Data []byte }

// FeaturesRequest asks for Features.
type FeaturesRequest struct{}

// Features describes the switch.
type Features struct {
	DatapathID   uint64
	NBuffers     uint32
	NTables      uint8
	AuxiliaryID  uint8
	Capabilities uint32
}

// GetConfigRequest asks for a GetConfigReply.
type GetConfigRequest struct{}

// GetConfigReply is the switch's configuration.
type GetConfigReply struct{ Config SwitchConfig }

// SetConfig sets the switch's configuration for this connection.
type SetConfig struct{ Config SwitchConfig }

// SwitchConfig is the configuration of a switch.
type SwitchConfig struct {
	Flags       uint16
	MissSendLen uint16
}

// BarrierRequest is answered when all earlier messages have been processed.
type BarrierRequest struct{}

// BarrierReply answers a BarrierRequest.
type BarrierReply struct{}

// PacketIn2 is a packet that the switch sends to the controller (NXT_PACKET_IN2).
type PacketIn2 struct {
	Packet       []byte
	FullLen      uint32
	BufferID     uint32
	Table        uint8
	Cookie       uint64
	Reason       PacketInReason
	Metadata     Match // in_port, registers, tunnel, conntrack
	Userdata     []byte
	Continuation []byte // of a paused pipeline: give it back with Resume
}

// Resume lets a paused pipeline go on. Change Packet and Metadata of the PacketIn2 first, if wanted.
type Resume struct{ PacketIn PacketIn2 }

// PacketOut makes the switch process a packet.
type PacketOut struct {
	InPort  uint32 // PortController for none
	Match   Match  // further metadata: registers, tunnel
	Actions []Action
	Packet  []byte
}

// FlowRemoved says that a flow with FlowSendFlowRem has gone.
type FlowRemoved struct {
	Flow   Flow // Table, Priority, Cookie, Match and timeouts
	Reason FlowRemovedReason
	Stats  FlowStats
}

// FlowRemovedReason says why a flow has gone.
type FlowRemovedReason uint8

// Reasons.
const (
	RemovedIdleTimeout FlowRemovedReason = iota
	RemovedHardTimeout
	RemovedDelete
	RemovedGroupDelete
	RemovedMeterDelete
	RemovedEviction
)

// FlowStats are the counters of a flow.
type FlowStats struct {
	Duration, IdleAge time.Duration
	Packets, Bytes    uint64
}

// PortStatus says that a port came, went or changed.
type PortStatus struct {
	Reason PortReason
	Port   Port
}

// PortReason says what happened to a port.
type PortReason uint8

// Reasons.
const (
	PortAdded PortReason = iota
	PortDeleted
	PortModified
)

// Port describes a port.
type Port struct {
	No     uint32
	MAC    MAC
	Name   string
	Config uint32 // bit 0: administratively down
	State  uint32 // bit 0: link down; bit 2: live
}

// RoleRequest asks for a role on this connection.
type RoleRequest struct {
	Role         Role
	ShortID      uint16 // 0xffff: none
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

// SetAsync chooses which messages come unasked on this connection.
type SetAsync struct{ Masks []AsyncMask }

// AsyncMask says which reasons of one kind of message are wanted, in both roles or as secondary.
type AsyncMask struct {
	Property uint16 // Async…
	Mask     uint32 // bit n: reason n
}

// Properties of SetAsync; add 1 to each for the primary and equal roles.
const (
	AsyncPacketIn       = 0
	AsyncPortStatus     = 2
	AsyncFlowRemoved    = 4
	AsyncRoleStatus     = 6
	AsyncTableStatus    = 8
	AsyncRequestFowards = 10
)

// BundleControl opens, closes, commits or discards a bundle; a switch answers with one of Reply type.
type BundleControl struct {
	BundleID uint32
	Type     BundleControlType
	Flags    BundleFlags
}

// BundleControlType is a request for or an answer to a bundle.
type BundleControlType uint16

// Types.
const (
	BundleOpenRequest BundleControlType = iota
	BundleOpenReply
	BundleCloseRequest
	BundleCloseReply
	BundleCommitRequest
	BundleCommitReply
	BundleDiscardRequest
	BundleDiscardReply
)

// BundleFlags are properties of a bundle, the same in all of its messages.
type BundleFlags uint16

// Flags.
const (
	BundleAtomic BundleFlags = 1 << iota
	BundleOrdered
)

// BundleAdd adds a message to a bundle. The message carries the same transaction id as the BundleAdd.
type BundleAdd struct {
	BundleID uint32
	Flags    BundleFlags
	Message  Message
}

// SetPacketInFormat chooses the form of packet-in messages; this package reads PacketInNXT2.
type SetPacketInFormat struct{ Format uint32 }

// PacketInNXT2 is the format that carries userdata and continuations.
const PacketInNXT2 = 2

// SetControllerID gives this connection the id that Controller actions name.
type SetControllerID struct{ ID uint16 }

// TLVTableMod changes the table that maps tunnel options to tun_metadata fields.
type TLVTableMod struct {
	Command  TLVTableCommand
	Mappings []TLVMapping
}

// TLVTableCommand says what a TLVTableMod does.
type TLVTableCommand uint16

// Commands.
const (
	TLVAdd TLVTableCommand = iota
	TLVDelete
	TLVClear
)

// TLVMapping maps a Geneve option to field tun_metadata<Index>.
type TLVMapping struct {
	Class  uint16
	Type   uint8
	Length uint8 // bytes, a multiple of 4 up to 124
	Index  uint16
}

// TLVTableRequest asks for a TLVTableReply.
type TLVTableRequest struct{}

// TLVTableReply is the table of tunnel options.
type TLVTableReply struct {
	MaxSpace  uint32 // bytes of all options together
	MaxFields uint16
	Mappings  []TLVMapping
}

// CTFlushZone forgets all connections of a zone.
type CTFlushZone struct{ Zone uint16 }

// CTFlush forgets the connections that match.
type CTFlush struct {
	Zone  *uint16 // nil: any
	Proto uint8   // 0: any
	Orig  CTTuple // direction in which the connection began
	Reply CTTuple
}

// Experimenter is a message of an experimenter that this package does not know.
type Experimenter struct {
	Experimenter, Subtype uint32
	Data                  []byte
}

// Unknown is a message that this package does not know.
type Unknown struct {
	Type uint8
	Body []byte
}
