// SPDX-License-Identifier: Apache-2.0

package openflow

import "strings"

// Controller sends the packet to a controller, which gets it as a PacketIn2 if it has
// chosen PacketInNXT2 with SetPacketInFormat.
type Controller struct {
	ID       uint16 // the controller connection's id, as set by SetControllerID
	MaxLen   uint16 // bytes of packet to send; 0: all
	NoPacket bool   // send no byte of the packet
	Reason   PacketInReason
	Userdata string // comes back in the message
	Pause    bool   // hold the pipeline's state: the controller may go on with Resume
	Meter    uint32 // a meter that limits the rate; 0: none
}

// PacketInReason says why a packet came to the controller.
type PacketInReason uint8

// Reasons.
const (
	ReasonAction     PacketInReason = iota // by an action, the usual one
	ReasonNoMatch                          // no flow matched
	ReasonInvalidTTL                       // the TTL would have become 0
	ReasonActionSet
	ReasonGroup
	ReasonPacketOut
)

var reasonNames = []string{"action", "no_match", "invalid_ttl", "action_set", "group", "packet_out"}

// String prints r as ovs-ofctl does.
func (r PacketInReason) String() string { return nameOf(reasonNames, r) }

// wire converts between r and its number in OpenFlow, where the first two are swapped.
func (r PacketInReason) wire() uint8 {
	if r <= ReasonNoMatch {
		return uint8(r ^ 1)
	}
	return uint8(r)
}

// Properties of Nicira's controller2.
const (
	ctlMaxLen = iota
	ctlID
	ctlReason
	ctlUserdata
	ctlPause
	ctlMeter
)

// maxLen returns what stands on the wire.
func (a Controller) maxLen() uint16 {
	switch {
	case a.NoPacket:
		return 0
	case a.MaxLen == 0:
		return maxLenAll
	}
	return a.MaxLen
}

func (a Controller) String() string {
	var s []string
	if a.Reason != ReasonAction {
		s = append(s, "reason="+a.Reason.String())
	}
	if n := a.maxLen(); n != maxLenAll {
		s = append(s, "max_len="+utoa(n))
	}
	if a.ID != 0 {
		s = append(s, "id="+utoa(a.ID))
	}
	if a.Userdata != "" {
		s = append(s, "userdata="+hexBytes(a.Userdata))
	}
	if a.Pause {
		s = append(s, "pause")
	}
	if a.Meter != 0 {
		s = append(s, "meter_id="+utoa(a.Meter))
	}
	if a.plain() {
		return "CONTROLLER:" + utoa(a.maxLen())
	}
	return "controller(" + strings.Join(s, ",") + ")"
}

// plain reports whether a is nothing but an output to PortController. It is sent as that,
// as Open vSwitch does.
func (a Controller) plain() bool { return a == Controller{MaxLen: a.MaxLen, NoPacket: a.NoPacket} }

func (a Controller) appendTo(b []byte) []byte {
	if a.plain() {
		return OutputAction{PortController, a.maxLen()}.appendTo(b)
	}
	start := len(b)
	if a.Userdata == "" && !a.Pause && a.Meter == 0 {
		b = be.AppendUint16(nxAction(b, nxController), a.maxLen())
		b = be.AppendUint16(b, a.ID)
		return endAction(append(b, a.Reason.wire()), start)
	}
	b = appendZeros(nxAction(b, nxController2), 6)
	if n := a.maxLen(); n != maxLenAll {
		b = appendProp16(b, ctlMaxLen, n)
	}
	if a.ID != 0 {
		b = appendProp16(b, ctlID, a.ID)
	}
	if a.Reason != ReasonAction {
		b = appendProp(b, ctlReason, []byte{a.Reason.wire()})
	}
	if a.Userdata != "" {
		b = appendProp(b, ctlUserdata, []byte(a.Userdata))
	}
	if a.Pause {
		b = appendProp(b, ctlPause, nil)
	}
	if a.Meter != 0 {
		b = appendProp32(b, ctlMeter, a.Meter)
	}
	return endAction(b, start)
}
