// SPDX-License-Identifier: Apache-2.0

// Package podleases has the addresses of a node's pods on Networks where DHCP servers of the
// physical network give them. It asks the servers in the name of each interface, keeps the leases
// on disk and renews them. An interface without a valid lease may not use its address.
package podleases
