// SPDX-License-Identifier: Apache-2.0

// Package node is the agent's half of the backend ovn. It plugs the interfaces of pods into the
// node's integration bridge under the names that the controller gives their ports in OVN's
// northbound database (package names), waits until ovn-controller has connected them, and keeps the
// node's kernel in the state that its pods need. It writes no flow and asks no database of OVN.
//
// Everything is level-triggered, as in package ovs: whatever restarts, the backend compares what is
// with what should be and writes the difference.
package node
