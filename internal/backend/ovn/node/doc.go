// SPDX-License-Identifier: Apache-2.0

// Package node is the agent's half of the backends ovn and neutron. It plugs the interfaces of pods
// into the node's integration bridge under the names of their Logical_Switch_Ports, waits until
// ovn-controller has connected them, and keeps the node's kernel in the state that its pods need.
// It writes no OpenFlow flow.
//
// LogicalPorts gives these names. With the backend ovn (New) Coelan's controller makes the ports,
// and the names follow from those of objects (package names). With the backend neutron
// (NewOfOthers) Neutron makes them, and the controller writes their names into the statuses of
// objects (package neutronports).
//
// A node may also be a machine of OpenStack (LogicalPorts.Trunk). It has no ovn-controller: each
// port leaves the machine in a VLAN of its own, and OVN connects it on the machine's hypervisor.
// The package can make the bridge of such a node (machine.go).
//
// No database of OVN is written or watched. The southbound one is read once for each coelan check,
// which compares its bindings of ports with the node's interfaces (bindings.go); on a machine of
// OpenStack it is not read.
//
// Everything is level-triggered, as in package ovs: whatever restarts, the backend compares what is
// with what should be and writes the difference.
package node
