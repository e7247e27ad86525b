// SPDX-License-Identifier: Apache-2.0

// Package blockipam claims the parts of Networks' subnets that this node hands addresses out of,
// returns unused ones, and answers other nodes that claim single addresses of them.
//
// A block is claimed by creating its AddressBlock. The name follows from Network and prefix, so
// that the API lets one node create it. A fixed address is claimed in the same way, by a block of a
// single address. The creator of either lists those of the Network afterward, so of two that come
// at the same time at least one sees the other: the node of a block honors single addresses that
// were there before, and answers by the condition Granted whether later ones are free.
package blockipam
