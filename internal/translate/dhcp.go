// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// defaultLease is that of DHCP without leaseSeconds. It is long, because an address is its Port's
// for as long as there is the Port, and machines keep theirs while their node's agent is away.
const defaultLease = 24 * time.Hour

// Answers reports whether agents answer what machines on a Network ask about their addresses; not
// where the API admits no spec.dhcp.
func Answers(o *v1alpha1.Network) bool {
	overlay := o.Spec.Type != v1alpha1.VLAN && o.Spec.Type != v1alpha1.Flat
	return o.Spec.DHCP != nil && overlay && o.Spec.IPAM != v1alpha1.PodCIDR
}

// dhcp reads what machines on a Network are told.
func (t *networkTables) dhcp(o *v1alpha1.Network) intent.DHCP {
	if !Answers(o) {
		return intent.DHCP{}
	}
	spec := o.Spec.DHCP
	d := intent.DHCP{
		Enabled: true, Lease: cmp.Or(time.Duration(spec.LeaseSeconds)*time.Second, defaultLease),
		BootFile: spec.BootFile,
	}
	switch spec.AddressMode {
	case v1alpha1.Stateless:
		d.IPv6 = intent.StatelessIPv6
	case v1alpha1.NoIPv6:
		d.IPv6 = intent.NoIPv6
	case v1alpha1.Stateful:
	}
	address := func(field, text string) (netip.Addr, bool) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() {
			t.problem("network "+o.Name, field, text, "is not an address")
			return netip.Addr{}, false
		}
		return a, true
	}
	for i, text := range spec.NTPServers {
		if a, ok := address(fmt.Sprintf("spec.dhcp.ntpServers[%d]", i), text); ok {
			d.NTP = append(d.NTP, a)
		}
	}
	if spec.NextServer != "" {
		const field = "spec.dhcp.nextServer"
		switch a, ok := address(field, spec.NextServer); {
		case ok && a.Is4():
			d.NextServer = a
		case ok:
			t.problem("network "+o.Name, field, spec.NextServer, "is not an IPv4 address")
		}
	}
	d.Routes = t.subnetRoutes(o)
	return d
}

// relay reads which servers nodes ask as relays. What cannot be read has them ask none: those on
// the physical network are not meant, and without the subnet servers would give addresses of the
// nodes'.
func (t *networkTables) relay(o *v1alpha1.Network) intent.Relay {
	spec := o.Spec.DHCPRelay
	if spec == nil {
		return intent.Relay{}
	}
	r := intent.Relay{Enabled: true}
	var err error
	if r.Subnet, err = parsePrefix(spec.Subnet); err != nil || !r.Subnet.Addr().Is4() {
		t.problem("network "+o.Name, "spec.dhcpRelay.subnet", spec.Subnet, "is not an IPv4 prefix")
		return intent.Relay{Enabled: true}
	}
	for i, text := range spec.Servers {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is4() {
			t.problem("network "+o.Name, fmt.Sprintf("spec.dhcpRelay.servers[%d]", i), text, "is not an IPv4 address")
			continue
		}
		r.Servers = append(r.Servers, a)
	}
	return r
}

// subnetRoutes are the routes that interfaces get beside the default route.
func (t *networkTables) subnetRoutes(o *v1alpha1.Network) (routes []intent.Route) {
	for i, s := range o.Spec.Subnets {
		for j, r := range s.Routes {
			field := fmt.Sprintf("spec.subnets[%d].routes[%d]", i, j)
			destination, err := parsePrefix(r.Destination)
			if err != nil {
				t.problem("network "+o.Name, field+".destination", r.Destination, err.Error())
				continue
			}
			hop, err := netip.ParseAddr(r.NextHop)
			if err != nil || hop.Is4In6() || hop.Is4() != destination.Addr().Is4() {
				t.problem("network "+o.Name, field+".nextHop", r.NextHop,
					"is not an address of the destination's family")
				continue
			}
			routes = append(routes, intent.Route{Destination: destination, NextHop: hop})
		}
	}
	return routes
}
