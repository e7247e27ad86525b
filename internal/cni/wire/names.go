// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
)

// Types are the names that the plugin is installed under, its own first. All are the same.
var Types = []string{"coelan-cni", "odlovs-cni", "odlcoe", "ovs-odl"}

// Names of IPAM plugins. IPAMPlugin stands for the agent's own addresses. IPAMDHCP needs an
// interface that works without an address, which none of Coelan does.
const (
	IPAMPlugin = "ipam-odl"
	IPAMDHCP   = "dhcp"
)

// Delegates says whether ipam.type of a configuration names a plugin that is to be called.
func Delegates(ipamType string) bool {
	return ipamType != "" && ipamType != "." && ipamType != ".." && ipamType != IPAMPlugin && ipamType != IPAMDHCP &&
		!slices.Contains(Types, ipamType) && !strings.ContainsAny(ipamType, "/\\\x00")
}
