// SPDX-License-Identifier: Apache-2.0

// Package guestleases has the addresses of a node's machines, such as virtual ones, that DHCP
// servers of others give them. The agent is between both: a machine's questions and the servers'
// answers come to it, and those that may pass go on. So it knows which address a machine has, lets
// it send from that before it learns of it, and keeps that on disk. A machine without a valid lease
// may send from no address.
package guestleases
