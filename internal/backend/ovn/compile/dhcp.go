// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// dhcpKey is the key of the DHCP_Options of a Network's subnet.
func dhcpKey(network string, subnet netip.Prefix) string {
	return nb.Key("Network/"+network, subnet.String())
}

// dhcpOptions makes the DHCP_Options of each of a Network's subnets.
func dhcpOptions(s *intent.State, n intent.Network, u *nb.Unit) {
	for _, sn := range n.Subnets {
		if !sn.Gateway.IsValid() || sn.Prefix.Addr().Is6() && n.DHCP.IPv6 == intent.NoIPv6 {
			continue
		}
		options := optionsV4
		if sn.Prefix.Addr().Is6() {
			options = optionsV6
		}
		u.Add(dhcpKey(n.Name, sn.Prefix), &nb.DHCPOptions{CIDR: sn.Prefix.String(), Options: options(s, n, sn)})
	}
	if len(ofFamily(n.DHCP.NTP, true)) > 0 {
		u.Problem("Network "+n.Name, "DHCPv6NTPUnsupported",
			"OVN does not tell machines IPv6 time servers; name an IPv4 one, or configure the machines")
	}
}

func optionsV4(s *intent.State, n intent.Network, sn intent.NetworkSubnet) map[string]string {
	o := map[string]string{
		"server_id": sn.Gateway.String(), "server_mac": gatewayMAC(n), "router": sn.Gateway.String(),
		"lease_time": strconv.Itoa(int(n.DHCP.Lease / time.Second)),
	}
	if mtu := machineMTU(s, n); mtu > 0 {
		o["mtu"] = strconv.Itoa(mtu)
	}
	list(o, "dns_server", ofFamily(n.DNS.Servers, false))
	list(o, "ntp_server", ofFamily(n.DHCP.NTP, false))
	if len(n.DNS.Searches) > 0 {
		o["domain_name"] = strconv.Quote(n.DNS.Searches[0])
		o["domain_search_list"] = strconv.Quote(strings.Join(n.DNS.Searches, ","))
	}
	var routes []string
	for _, r := range n.DHCP.Routes {
		if r.Destination.Addr().Is4() && sn.Prefix.Contains(r.NextHop) {
			routes = append(routes, r.Destination.String()+","+r.NextHop.String())
		}
	}
	if len(routes) > 0 { // a machine that takes the option does not look at router (RFC 3442)
		routes = append(routes, "0.0.0.0/0,"+sn.Gateway.String())
		o["classless_static_route"] = "{" + strings.Join(routes, ", ") + "}"
	}
	if n.DHCP.NextServer.IsValid() {
		o["next_server"] = n.DHCP.NextServer.String()
		o["tftp_server"] = strconv.Quote(n.DHCP.NextServer.String())
	}
	if n.DHCP.BootFile != "" {
		o["bootfile_name"] = strconv.Quote(n.DHCP.BootFile)
	}
	return o
}

func optionsV6(_ *intent.State, n intent.Network, _ intent.NetworkSubnet) map[string]string {
	o := map[string]string{"server_id": gatewayMAC(n)}
	list(o, "dns_server", ofFamily(n.DNS.Servers, true))
	if len(n.DNS.Searches) > 0 {
		o["domain_search"] = strconv.Quote(strings.Join(n.DNS.Searches, ","))
	}
	if n.DHCP.IPv6 == intent.StatelessIPv6 {
		o["dhcpv6_stateless"] = "true"
	}
	return o
}

// list sets an option to a list, if that is not empty.
func list(o map[string]string, name string, values []string) {
	if len(values) > 0 {
		o[name] = "{" + strings.Join(values, ", ") + "}"
	}
}

// machineMTU is what machines of a Network are told; 0: it is not known.
func machineMTU(s *intent.State, n intent.Network) int { return cmp.Or(n.MTU, leastMTU(s)) }

// dhcpOf is the key of the DHCP_Options for a Port's first address of a family; nil: none.
func dhcpOf(n intent.Network, addresses []netip.Addr, v6 bool) *string {
	if !n.DHCP.Enabled || n.Physical != "" || v6 && n.DHCP.IPv6 == intent.NoIPv6 {
		return nil
	}
	i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is6() == v6 })
	if i < 0 {
		return nil
	}
	for _, sn := range n.Subnets {
		if sn.Prefix.Contains(addresses[i]) && sn.Gateway.IsValid() {
			return ptr(dhcpKey(n.Name, sn.Prefix))
		}
	}
	return nil
}
