// SPDX-License-Identifier: Apache-2.0

// Package portbinding connects the interfaces of virtual machines and other guests to users' Ports.
//
// The contract is that of libvirt, Neutron and OVN. The program that makes the interface, libvirt
// for instance, adds it to the integration bridge and writes the name of its Port on it:
//
//	ovs-vsctl add-port br-int tap0 -- set Interface tap0 external_ids:iface-id=NAMESPACE/NAME
//
// The UID of the Port does as well: libvirt accepts UUIDs only.
//
// With that, the Port NAMESPACE/NAME is bound to this node: the agent gives the interface an
// OpenFlow port number (ofport_request, the only thing of it that it changes), makes flows for the
// Port's addresses and MAC, and writes its name into the Port's status. The guest has to use that
// MAC and those addresses; its other packets are dropped.
//
// When the interface or its iface-id is removed, the flows go and the Port is Ready for another
// interface, on any node. When the Port is deleted, the flows go and the interface stays. The agent
// never removes an interface that it did not make. It ignores an iface-id that names no Port, so
// others may use the bridge in their own way.
//
// A guest that names no Port, by iface-id=NAMESPACE/?, has that of its namespace which asks for its
// MAC (external_ids:attached-mac), else one that is made for it: with addresses of this node's
// block of the Network that the namespace is on, if agents answer DHCP there. It outlasts the
// interface until its lease has expired.
//
// A Port is bound on one node at a time: on the one in spec.node, if that is set; else on the one
// in status.node as long as that node exists. Restarts of the agent and of Open vSwitch do not
// change which interface a Port has.
package portbinding
