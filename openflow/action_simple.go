// SPDX-License-Identifier: Apache-2.0

package openflow

// simpleAction is an action without arguments.
type simpleAction uint8

const (
	actDecTTL simpleAction = iota
	actDecMPLSTTL
	actPopVLAN
	actExit
	actCTClear
	actPopQueue
	numSimple
)

// simpleActions gives the name and wire form of actions without arguments: an OpenFlow
// type, or for Nicira's an actExperimenter with a subtype.
var simpleActions = [numSimple]struct {
	name         string
	typ, subtype uint16
}{
	actDecTTL:     {"dec_ttl", 24, 0},
	actDecMPLSTTL: {"dec_mpls_ttl", 16, 0},
	actPopVLAN:    {"pop_vlan", 18, 0},
	actExit:       {"exit", actExperimenter, nxExit},
	actCTClear:    {"ct_clear", actExperimenter, nxCTClear},
	actPopQueue:   {"pop_queue", actExperimenter, nxPopQueue},
}

// DecTTL decrements the TTL or hop limit; a packet that would reach 0 goes to the
// controller, if it wants such packets, and stops.
func DecTTL() Action { return actDecTTL }

// DecMPLSTTL decrements the TTL of the outermost MPLS label.
func DecMPLSTTL() Action { return actDecMPLSTTL }

// PopVLAN removes the outermost VLAN tag.
func PopVLAN() Action { return actPopVLAN }

// Exit ends the processing of the packet; pending resubmits do not return.
func Exit() Action { return actExit }

// CTClear removes what conntrack said about the packet.
func CTClear() Action { return actCTClear }

// PopQueue restores the packet's original queue.
func PopQueue() Action { return actPopQueue }

func (a simpleAction) String() string { return simpleActions[a].name }

func (a simpleAction) appendTo(b []byte) []byte {
	s := &simpleActions[a]
	if s.typ == actExperimenter {
		return endAction(nxAction(b, s.subtype), len(b))
	}
	return append(b, byte(s.typ>>8), byte(s.typ), 0, 8, 0, 0, 0, 0)
}
