// SPDX-License-Identifier: Apache-2.0

// Package conntrack reads and changes the kernel's connection table by ctnetlink. The kernel's
// datapath of Open vSwitch tracks its connections there, in zones of its own; the userspace
// datapath has a table that only ovs-vswitchd knows.
//
// A dump costs a walk through the table, which the kernel does in the time of the caller:
// ovs-vswitchd goes on meanwhile.
package conntrack

import "net/netip"

// Connection is one that conntrack knows.
type Connection struct {
	Protocol uint8
	// Orig is the direction in which it began, Reply the other, as seen before
	// either is translated back.
	Orig, Reply Tuple
	Zone        uint16
	Mark        uint32
}

// Tuple is one direction of a Connection. Ports are those of TCP, UDP and SCTP, the ICMP values
// those of ICMP.
type Tuple struct {
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}
