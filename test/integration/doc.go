// SPDX-License-Identifier: Apache-2.0

// Package integration tests the data path and its promises with real agents,
// a real Open vSwitch per node and real pods, in the clusters of package lab.
//
// The same tests run on both datapaths: on the userspace datapath with
// `make integration`, on the kernel's, in an emulated machine, with
// `make test-kernel`.
package integration
