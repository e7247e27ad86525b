// SPDX-License-Identifier: Apache-2.0

// Package lab builds small clusters without Kubernetes, for tests of the data
// path: nodes with a real Open vSwitch and a real agent each, pods that the
// real CNI plugin plugs in, and a host outside. A node, a pod or the outside
// is a network namespace of the test process:
//
//	outside 192.168.33.1 ──┐ also 203.0.113.1, that stands for the internet
//	                    fabric (a bridge)
//	n1 192.168.33.11 ──────┤
//	n2 192.168.33.12 ──────┘ … with IPv6 fd00:33::11, fd00:33::12 …
//
// On the userspace datapath (netdev) the node's uplink eth0 is a port of a
// bridge br-phy, which carries the node's address; on the kernel's (system)
// eth0 carries it itself.
//
// Agents talk to an API server that the test serves on each node's loopback. There
// is no controller: tests publish Networks, Routers and Ports as the controller
// would have admitted them. With OVN, what the controller writes into its
// northbound database is written, of the same code.
//
// Every process is killed and every namespace ends with the test process,
// however that ends; nothing has a name outside of it.
package lab
