// SPDX-License-Identifier: Apache-2.0

// Package snoop follows what a machine and DHCP servers that Coelan does not run say to each other
// (RFC 2131), as the DHCP snooping of switches does: it decides which messages pass, and knows by
// them which address the machine has. It does no I/O and reads no clock.
//
// Machines may be hostile: what one says passes only if it is about itself, and a server's answer
// only if the machine has asked for it. Servers are believed.
package snoop
