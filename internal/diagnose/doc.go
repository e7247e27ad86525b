// SPDX-License-Identifier: Apache-2.0

// Package diagnose asks the agents of a cluster what they see: their state, their ports, what is
// wrong, and which way a packet takes from node to node. The agents are asked by a command in their
// pods, so that the API server authenticates the user and no node needs another open port.
package diagnose
