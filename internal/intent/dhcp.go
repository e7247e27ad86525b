// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"slices"
	"time"
)

// DHCP is what machines on a Network are told when they ask. The zero value answers nothing.
type DHCP struct {
	Enabled bool
	Lease   time.Duration // how long an address is valid that a machine does not ask for again
	IPv6    IPv6Configuration
	// Routes are those of the Network's subnets beside the default route.
	Routes     []Route
	NTP        []netip.Addr
	NextServer netip.Addr // of IPv4; not valid: none
	BootFile   string     // a file on NextServer, or a URL; empty: none
}

// IPv6Configuration says how machines get their IPv6 addresses.
type IPv6Configuration uint8

// The ways to IPv6 addresses.
const (
	StatefulIPv6  IPv6Configuration = iota // by DHCPv6
	StatelessIPv6                          // from the prefix and the MAC, where that is the Port's
	NoIPv6                                 // by none
)

// Relay is how nodes ask DHCP servers for addresses of a Network. The zero value does not.
type Relay struct {
	Enabled bool
	Servers []netip.Addr // of IPv4; none: what names them cannot be read, and no server is asked
	Subnet  netip.Prefix // of which they give addresses
}

func (r Relay) equal(o Relay) bool {
	return r.Enabled == o.Enabled && slices.Equal(r.Servers, o.Servers) && r.Subnet == o.Subnet
}

func (d DHCP) equal(o DHCP) bool {
	return d.Enabled == o.Enabled && d.Lease == o.Lease && d.IPv6 == o.IPv6 && slices.Equal(d.Routes, o.Routes) &&
		slices.Equal(d.NTP, o.NTP) && d.NextServer == o.NextServer && d.BootFile == o.BootFile
}

func (d DHCP) clone() DHCP {
	d.Routes, d.NTP = slices.Clone(d.Routes), slices.Clone(d.NTP)
	return d
}
