// SPDX-License-Identifier: Apache-2.0

// Package dhcp answers what machines ask about their addresses: DHCP (RFC 2131), DHCPv6 (RFC 8415)
// and router solicitations (RFC 4861). A frame and what intent says of the Port go in, a frame
// comes out. There is no pool and no database: an address is its Port's for as long as there is the
// Port, on whichever node, so that every node gives the same answer at any time.
//
// Requests are from machines that may be hostile. Of a request, nothing is read but what the answer
// needs and what the machine calls itself; relays are not served.
package dhcp
