// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net/netip"
)

// family is one of the two families of addresses.
type family string

const (
	ipv4 family = "IPv4"
	ipv6 family = "IPv6"
)

var families = []family{ipv4, ipv6}

func (f family) has(a netip.Addr) bool { return a.Is4() == (f == ipv4) }

// outside is an address beyond the nodes' network, at which a web server of the sandbox answers
// with the client's address.
func outside(f family) netip.Addr {
	if f == ipv4 {
		return netip.MustParseAddr("203.0.113.1")
	}
	return netip.MustParseAddr("2001:db8:cafe::1")
}
