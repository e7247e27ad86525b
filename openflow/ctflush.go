// SPDX-License-Identifier: Apache-2.0

package openflow

import "net/netip"

// CTTuple is what CTFlush compares of one direction of a connection. Zero values compare nothing.
type CTTuple struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	ICMPType         *uint8
	ICMPCode         *uint8
	ICMPID           *uint16
}
