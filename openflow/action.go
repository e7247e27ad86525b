// SPDX-License-Identifier: Apache-2.0

package openflow

// Action is what a switch does with a packet. String prints it as ovs-ofctl does.
//
// Simple actions come from functions (Output, SetField, Resubmit …); those with many
// options are structs (CT, NAT, Learn, Controller …) to be used by value.
type Action interface {
	String() string
	// appendTo appends the wire form, a multiple of 8 bytes.
	appendTo(b []byte) []byte
}

// Reserved OpenFlow ports.
const (
	PortMax        uint32 = 0xffffff00
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

// OutputAction sends the packet out of a port.
type OutputAction struct {
	Port   uint32
	MaxLen uint16 // bytes sent to the controller, if Port is PortController
}

// Output sends the packet out of port, which is never the packet's own input port: see OutputInPort.
func Output(port uint32) Action { return OutputAction{Port: port} }

// OutputInPort sends the packet back out of the port on which it came in.
func OutputInPort() Action { return OutputAction{Port: PortInPort} }

// OutputFieldAction sends the packet out of the port that a field holds.
type OutputFieldAction struct {
	Source Subfield
	MaxLen uint16
}

// OutputField sends the packet out of the port that s holds, such as FieldReg3.All().
func OutputField(s Subfield) Action { return OutputFieldAction{Source: s} }

// GroupAction hands the packet to a group.
type GroupAction struct{ Group uint32 }

// ToGroup hands the packet to a group.
func ToGroup(id uint32) Action { return GroupAction{id} }

// MeterAction passes the packet through a meter.
type MeterAction struct{ Meter uint32 }

// ToMeter passes the packet through a meter, which may drop it.
func ToMeter(id uint32) Action { return MeterAction{id} }

// SetFieldAction assigns a field or some bits of it.
type SetFieldAction struct{ FieldValue FieldValue }

// SetField assigns a field or, with a mask, some bits of it.
func SetField(v FieldValue) Action { return SetFieldAction{v} }

// MoveAction copies bits between fields.
type MoveAction struct{ From, To Subfield }

// Move copies from to to; both must have the same width. (copy_field, printed as move)
func Move(from, to Subfield) Action { return MoveAction{from, to} }

// DecTTL decrements the TTL or hop limit; a packet that reaches 0 goes to the controller and stops.
func DecTTL() Action { return simpleAction(actDecTTL) }

// PushVLAN adds an empty VLAN tag of the given Ethernet type, normally EthTypeVLAN.
func PushVLAN(etherType uint16) Action { return PushVLANAction{etherType} }

// PushVLANAction adds a VLAN tag.
type PushVLANAction struct{ EtherType uint16 }

// PopVLAN removes the outermost VLAN tag.
func PopVLAN() Action { return simpleAction(actPopVLAN) }

// Exit ends the processing of the packet; pending resubmits do not return.
func Exit() Action { return simpleAction(actExit) }

// CTClear forgets what conntrack said about the packet.
func CTClear() Action { return simpleAction(actCTClear) }

// PopQueue restores the packet's original queue.
func PopQueue() Action { return simpleAction(actPopQueue) }

// simpleAction is an action without arguments.
type simpleAction uint8

const (
	actDecTTL simpleAction = iota
	actPopVLAN
	actExit
	actCTClear
	actPopQueue
)

// SetQueueAction selects the queue of later outputs.
type SetQueueAction struct{ Queue uint32 }

// SetQueue selects the queue of later outputs.
func SetQueue(queue uint32) Action { return SetQueueAction{queue} }

// ResubmitAction looks the packet up in another table and then goes on.
type ResubmitAction struct {
	InPort uint32 // PortInPort: the packet's own
	Table  uint8  // 255: the current one
	CT     bool   // look up with the conntrack tuple in place of the packet's addresses and ports
}

// Resubmit looks the packet up in table and then goes on with the next action.
func Resubmit(table uint8) Action { return ResubmitAction{InPort: PortInPort, Table: table} }

// ResubmitCT is Resubmit with the original conntrack tuple in place of the packet's; the match needs ct_state=+trk.
func ResubmitCT(table uint8) Action {
	return ResubmitAction{InPort: PortInPort, Table: table, CT: true}
}

// ConjunctionAction marks a flow as clause Clause (from 1) of NClauses of conjunction ID.
type ConjunctionAction struct {
	ID       uint32
	Clause   uint8
	NClauses uint8
}

// Conjunction marks a flow as clause k (from 1) of n of conjunction id.
func Conjunction(id uint32, k, n uint8) Action { return ConjunctionAction{id, k, n} }

// NoteAction does nothing; it holds bytes for whoever reads the flow.
type NoteAction struct{ Note string }

// Note does nothing; it holds bytes for whoever reads the flow. The switch pads them with zeros to 6 + 8n bytes.
func Note(b []byte) Action { return NoteAction{string(b)} }

// PushAction pushes bits of a field on the stack.
type PushAction struct{ Source Subfield }

// Push pushes bits of a field on the stack.
func Push(s Subfield) Action { return PushAction{s} }

// PopAction pops the stack into bits of a field.
type PopAction struct{ Dest Subfield }

// Pop pops the stack into bits of a field.
func Pop(s Subfield) Action { return PopAction{s} }

// CloneAction runs actions on a copy of the packet.
type CloneAction struct{ Actions []Action }

// Clone runs actions on a copy of the packet and its metadata.
func Clone(actions ...Action) Action { return CloneAction{actions} }

// CheckPktLargerAction sets a bit if the packet is longer than Len bytes, Ethernet header included.
type CheckPktLargerAction struct {
	Len  uint16
	Dest Subfield // one bit
}

// CheckPktLarger sets bit dest if the packet is longer than n bytes, Ethernet header included, and else clears it.
func CheckPktLarger(n uint16, dest Subfield) Action { return CheckPktLargerAction{n, dest} }

// MultipathAction hashes a packet's fields and stores the chosen link's number.
type MultipathAction struct {
	Fields    HashFields
	Basis     uint16
	Algorithm MultipathAlgorithm
	Links     uint16 // number of links, at least 1
	Arg       uint32
	Dest      Subfield
}

// HashFields says which fields a multipath action hashes.
type HashFields uint16

// Hashed fields.
const (
	HashEthSrc HashFields = iota
	HashSymmetricL4
	HashSymmetricL3L4
	HashSymmetricL3L4UDP
	HashNWSrc
	HashNWDst
	HashSymmetricL3
)

// MultipathAlgorithm says how a multipath action chooses a link from a hash.
type MultipathAlgorithm uint16

// Algorithms.
const (
	ModuloN MultipathAlgorithm = iota
	HashThreshold
	HRW
	IterHash
)

// UnknownAction is an action that this package does not know, kept as it came.
type UnknownAction struct{ Raw string }
