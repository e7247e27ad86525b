// SPDX-License-Identifier: Apache-2.0

package openflow

// Controller sends the packet to a controller with a PacketIn2.
type Controller struct {
	ID       uint16 // the controller connection's id, as set by SetControllerID
	MaxLen   uint16 // bytes of packet to send; 0xffff: all
	Reason   PacketInReason
	Userdata string // returned in the message
	Pause    bool   // hold the pipeline's state: the controller may go on with Resume
	Meter    uint32 // 0: none; else a meter that limits the rate
}

// PacketInReason says why a packet came to the controller.
type PacketInReason uint8

// Reasons.
const (
	ReasonTableMiss PacketInReason = iota // printed as no_match
	ReasonApplyAction
	ReasonInvalidTTL
	ReasonActionSet
	ReasonGroup
	ReasonPacketOut
)
