// SPDX-License-Identifier: Apache-2.0

// Package client is a DHCPv4 client as a state machine (RFC 2131, section 4.4). It does no I/O and
// reads no clock: messages and the time go in, frames and the time of the next step come out. What
// answers what is asked for an interface is the same before and after a restart: a Lease can be
// stored, and a Client goes on with it.
//
// An interface that has had a lease keeps its address: when a server takes it away, the client asks
// for the same one, and takes no other.
package client
