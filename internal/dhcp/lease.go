// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// Lease is what the machine of a Port is told.
type Lease struct {
	MAC    intent.MAC
	Router intent.MAC // of the virtual router, which answers
	// Host is the machine's name, a label of DNS; empty: none.
	Host      string
	Addresses []netip.Addr // of both families, the preferred ones first
	Subnets   []intent.NetworkSubnet
	MTU       int
	DNS       intent.DNS
	intent.DHCP
}

// LeaseOf is the Lease of a Port of the node that a State is of; false if its Network's machines
// are not answered. router is the MAC of the virtual router.
func LeaseOf(s *intent.State, p intent.Port, router intent.MAC) (Lease, bool) {
	n, ok := s.Networks().Get(p.Network)
	if !ok || !n.DHCP.Enabled {
		return Lease{}, false
	}
	mtu := s.Local().MTU
	return Lease{
		MAC: p.MAC, Router: router, Host: HostName(p.Pod), Addresses: p.Addresses,
		Subnets: n.Subnets, MTU: min(cmp.Or(n.MTU, mtu), mtu), DNS: n.DNS, DHCP: n.DHCP,
	}, true
}

// maxLabel is the length of a label of DNS (RFC 1035, section 2.3.4).
const maxLabel = 63

// HostName is the first label of a Port's or pod's name; empty if it is too long.
func HostName(name string) string {
	label, _, _ := strings.Cut(name, ".")
	if len(label) > maxLabel {
		return ""
	}
	return label
}

// of are those of a list of addresses that are of the family.
func of(list []netip.Addr, v6 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return a.Is6() != v6 })
}

// subnetOf is the subnet that holds an address.
func (l Lease) subnetOf(a netip.Addr) (intent.NetworkSubnet, bool) {
	for _, s := range l.Subnets {
		if s.Prefix.Contains(a) {
			return s, true
		}
	}
	return intent.NetworkSubnet{}, false
}

// eui64 is the address that a machine makes of a prefix and its MAC (RFC 4291, appendix A).
func (l Lease) eui64(prefix netip.Prefix) netip.Addr {
	b, own := prefix.Addr().As16(), l.MAC.LinkLocal().As16()
	copy(b[8:], own[8:])
	return netip.AddrFrom16(b)
}

// selfMade says whether a machine is to make its address of a prefix by itself, and will have the
// Port's then.
func (l Lease) selfMade(prefix netip.Prefix) bool {
	return l.IPv6 == intent.StatelessIPv6 && prefix.Addr().Is6() && prefix.Bits() == 64 &&
		slices.Contains(l.Addresses, l.eui64(prefix))
}

// asked says whether the machine has to ask for one of its IPv6 addresses.
func (l Lease) asked() bool {
	return slices.ContainsFunc(of(l.Addresses, true), func(a netip.Addr) bool {
		s, ok := l.subnetOf(a)
		return ok && !(l.selfMade(s.Prefix) && a == l.eui64(s.Prefix))
	})
}
