// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNetworksRefused(t *testing.T) {
	networks := load(t, "networks")
	subnet := func(fields string) string { return "subnets: [{" + fields + "}]" }
	v4 := func(fields string) string { return subnet("cidr: 10.1.0.0/16, " + fields) }
	for _, tc := range []struct{ test, name, spec, want string }{
		{"no such type", "n", `type: gre`, `spec.type: Unsupported value: "gre": supported values: "Overlay", "VLAN", "Flat"`},
		{"no such role", "n", `role: third`, `spec.role: Unsupported value: "third"`},
		{"no such source", "n", `ipam: slaac`, `spec.ipam: Unsupported value: "slaac"`},
		{"DHCP servers of an overlay", "n", `ipam: DHCP, ` + v4(""), `spec.ipam: Invalid value: "object": ipam DHCP is for types VLAN and Flat only`},
		{"DHCP servers and subnets", "n", `ipam: DHCP, type: Flat, physicalNetwork: p, ` + v4(""), `with ipam DHCP the subnets are those of the physical network's servers: leave subnets empty`},
		{"DHCP servers, external", "n", `ipam: DHCP, type: Flat, physicalNetwork: p, external: true, ` + v4(""), `external needs addresses that Coelan gives`},
		{"an overlay without subnet", "n", ``, `spec.subnets: Invalid value: "object": an overlay with ipam Blocks needs a subnet`},
		{"an overlay with an empty list", "n", `subnets: []`, `an overlay with ipam Blocks needs a subnet`},
		{"long name", strings.Repeat("n", 64), subnet("cidr: 10.0.0.0/8"), `metadata.name must not be longer than 63 characters`},

		{"VNI zero", "n", `vni: 0`, `spec.vni: Invalid value: 0: spec.vni in body should be greater than or equal to 1`},
		{"VNI too large", "n", `vni: 16777216`, `spec.vni in body should be less than or equal to 16777215`},
		{"VNI of default", "n", `vni: 1, ` + v4(""), `spec.vni: Invalid value: "object": VNI 1 is that of the Network default`},
		{"VNI of a VLAN", "n", `type: VLAN, vlan: 5, physicalNetwork: p, vni: 70`, `spec.vni: Invalid value: "object": vni is for type Overlay only`},
		{"VLAN of an overlay", "n", `vlan: 5, ` + v4(""), `vlan is for type VLAN only`},
		{"VLAN untagged", "n", `type: Flat, physicalNetwork: p, vlan: 5`, `vlan is for type VLAN only`},
		{"VLAN without id", "n", `type: VLAN, physicalNetwork: p`, `type VLAN needs a vlan`},
		{"VLAN id too large", "n", `type: VLAN, physicalNetwork: p, vlan: 4095`, `should be less than or equal to 4094`},
		{"VLAN on nothing", "n", `type: VLAN, vlan: 5`, `types VLAN and Flat need a physicalNetwork`},
		{"flat on nothing", "n", `type: Flat`, `types VLAN and Flat need a physicalNetwork`},
		{"overlay on a wire", "n", `physicalNetwork: p, ` + v4(""), `physicalNetwork is for types VLAN and Flat only`},
		{"wire of bad name", "n", `type: Flat, physicalNetwork: "p:br-ex"`, `spec.physicalNetwork: Invalid value: "string": must be letters`},
		{"wire without name", "n", `type: Flat, physicalNetwork: ""`, `spec.physicalNetwork in body should be at least 1 chars long`},
		{"VLAN with a Router", "n", `type: VLAN, vlan: 5, physicalNetwork: p, router: r`, `router is for type Overlay only`},
		{"flat with a Router", "n", `type: Flat, physicalNetwork: p, router: r`, `router is for type Overlay only`},
		{"VLAN for first interfaces", "n", `type: VLAN, vlan: 5, physicalNetwork: p, role: Primary, namespaceSelector: {}`, `type VLAN or Flat is secondary`},

		{"external overlay", "n", `external: true, ` + v4(""), `spec.external: Invalid value: "object": external is for types VLAN and Flat only: an overlay does not lead out of the cluster`},
		{"external without subnets", "n", `type: Flat, physicalNetwork: p, external: true`, `spec.subnets: Invalid value: "object": an external Network needs a subnet`},
		{"external with an empty list", "n", `type: VLAN, vlan: 5, physicalNetwork: p, external: true, subnets: []`, `an external Network needs a subnet`},
		{"external in words", "n", `type: Flat, physicalNetwork: p, external: "yes", ` + v4(""), `spec.external`},

		{"primary for nobody", "n", `role: Primary, ` + v4(""), `spec.namespaceSelector: Invalid value: "object": a primary Network needs a namespaceSelector`},
		{"secondary of podCIDRs", "n", `ipam: PodCIDR`, `ipam PodCIDR is for primary Networks only`},
		{"podCIDRs and subnets", "n", `role: Primary, namespaceSelector: {}, ipam: PodCIDR, ` + v4(""), `leave subnets empty`},
		{"default of blocks", "default", `role: Primary, ` + v4(""), `the Network default is of type Overlay, role Primary and ipam PodCIDR`},
		{"default secondary", "default", v4(""), `the Network default is of`},
		{"default elsewhere", "default", `role: Primary, ipam: PodCIDR, router: r`, `the Network default is of`},
		{"default with a VNI", "default", `role: Primary, ipam: PodCIDR, vni: 2`, `the Network default is of`},
		{"default for some", "default", `role: Primary, ipam: PodCIDR, namespaceSelector: {}`, `the Network default is of`},
		{"default on a node", "default", `role: Primary, ipam: PodCIDR, node: a`, `the Network default is of`},
		{"small MTU", "n", `mtu: 1279, ` + v4(""), `mtu must be 0 or at least 1280`},
		{"negative MTU", "n", `mtu: -1`, `spec.mtu in body should be greater than or equal to 0`},
		{"name server by name", "n", `dns: {nameservers: [dns.example.org]}, ` + v4(""), `spec.dns.nameservers[0]: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "dns.example.org"`},
		{"four name servers", "n", `dns: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}`, `spec.dns.nameservers: Too many: 4: must have at most 3 items`},

		{"no prefix", "n", subnet("gateway: 10.1.0.1"), `spec.subnets[0].cidr: Required value`},
		{"address for prefix", "n", subnet("cidr: 10.1.0.0"), `spec.subnets[0].cidr: Invalid value: "string": must be an IPv4 or IPv6 prefix, such as 10.10.0.0/16 or fd00:10::/64, not "10.1.0.0"`},
		{"host bits", "n", subnet("cidr: 10.1.0.1/16"), `spec.subnets[0].cidr: Invalid value: "string": must be a prefix in canonical form, with no bits set after its length, not "10.1.0.1/16"`},
		{"host bits, IPv6", "n", subnet(`cidr: "fd00:10::1/64"`), `with no bits set after its length`},
		{"not canonical", "n", subnet(`cidr: "FD00:10:0::/64"`), `must be a prefix in canonical form`},
		{"IPv4 in IPv6", "n", subnet(`cidr: "::ffff:10.0.0.0/112"`), `must be an IPv4 or IPv6 prefix`},
		{"length too large", "n", subnet("cidr: 10.1.0.0/33"), `must be an IPv4 or IPv6 prefix`},
		{"too small", "n", subnet("cidr: 10.1.0.0/31"), `spec.subnets[0].cidr: Invalid value: "object": is too small for a gateway and an interface: at most /30, or /126 for IPv6`},
		{"too small, IPv6", "n", subnet(`cidr: "fd00:10::/127"`), `is too small`},
		{"too large", "n", subnet("cidr: 10.0.0.0/7"), `is too large`},
		{"too large, IPv6", "n", subnet(`cidr: "fc00::/7"`), `is too large`},
		{"multicast", "n", subnet("cidr: 224.0.0.0/24"), `must be a prefix of unicast addresses`},
		{"loopback", "n", subnet("cidr: 127.0.0.0/8"), `must be a prefix of unicast addresses`},
		{"link-local", "n", subnet(`cidr: "fe80::/64"`), `must be a prefix of unicast addresses`},
		{"everything", "n", subnet("cidr: 0.0.0.0/0"), `must be a prefix of unicast addresses`},
		{"twice", "n", "subnets: [{cidr: 10.1.0.0/16}, {cidr: 10.1.0.0/16}]", `spec.subnets[1]: Duplicate value`},
		{"overlapping", "n", "subnets: [{cidr: 10.1.0.0/24}, {cidr: 10.1.0.0/16}]", `spec.subnets: Invalid value: "object": subnets must not overlap`},
		{"too many", "n", "subnets: [" + many(17, "{cidr: 10.%d.0.0/16}") + "]", `spec.subnets: Too many: 17: must have at most 16 items`},

		{"gateway is no address", "n", v4("gateway: first"), `spec.subnets[0].gateway: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "first"`},
		{"gateway empty", "n", v4(`gateway: ""`), `spec.subnets[0].gateway: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not ""`},
		{"gateway outside", "n", v4("gateway: 10.2.0.1"), `spec.subnets[0].gateway: Invalid value: "object": must be an address of the subnet`},
		{"gateway of the other family", "n", v4(`gateway: "fd00::1"`), `must be an address of the subnet`},
		{"gateway is the network", "n", v4("gateway: 10.1.0.0"), `must be an address of the subnet, other than its first`},
		{"gateway is the anycast address", "n", subnet(`cidr: "fd00:10::/64", gateway: "fd00:10::"`), `other than its first`},
		{"range is none", "n", v4("ranges: [{from: a, to: 10.1.0.9}]"), `spec.subnets[0].ranges[0].from: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "a"`},
		{"range without end", "n", v4("ranges: [{from: 10.1.0.9}]"), `spec.subnets[0].ranges[0].to: Required value`},
		{"range not canonical", "n", subnet(`cidr: "fd00::/64", ranges: [{from: "fd00::1", to: "fd00::0:9"}]`), `spec.subnets[0].ranges[0].to: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form`},
		{"range begins outside", "n", v4("ranges: [{from: 10.0.0.9, to: 10.1.0.20}]"), `spec.subnets[0].ranges: Invalid value: "object": must lie in the subnet`},
		{"range ends outside", "n", v4("ranges: [{from: 10.1.0.9, to: 10.2.0.20}]"), `spec.subnets[0].ranges: Invalid value: "object": must lie in the subnet`},
		{"range backwards", "n", v4("ranges: [{from: 10.1.1.0, to: 10.1.0.255}]"), `spec.subnets[0].ranges[0].from: Invalid value: "object": from must not be after to`},
		{"exclusion is none", "n", v4("exclusions: [first]"), `spec.subnets[0].exclusions[0]: Invalid value: "string": must be an address, a prefix, or a range such as 10.10.0.5-10.10.0.9, not "first"`},
		{"exclusion of three", "n", v4("exclusions: [10.1.0.1-10.1.0.2-10.1.0.3]"), `spec.subnets[0].exclusions[0]: Invalid value`},
		{"exclusion outside", "n", v4("exclusions: [10.1.0.1, 10.2.0.1]"), `spec.subnets[0].exclusions: Invalid value: "object": must lie in the subnet`},
		{"excluded prefix outside", "n", v4("exclusions: [10.0.0.0/8]"), `spec.subnets[0].exclusions: Invalid value: "object": must lie in the subnet`},
		{"excluded range begins outside", "n", v4("exclusions: [10.0.0.1-10.1.0.1]"), `spec.subnets[0].exclusions: Invalid value: "object": must lie in the subnet`},
		{"excluded range ends outside", "n", v4("exclusions: [10.1.0.1-10.2.0.1]"), `spec.subnets[0].exclusions: Invalid value: "object": must lie in the subnet`},
		{"fixed addresses of a kind", "n", `fixed: {addresses: some}, ` + v4(""), `spec.fixed.addresses: Unsupported value: "some": supported values: "Any", "Ranges", "None"`},
		{"fixed MACs of a kind", "n", `fixed: {macs: Ranges}, ` + v4(""), `spec.fixed.macs: Unsupported value: "Ranges": supported values: "Any", "Local", "None"`},
		{"DHCP of a wire", "n", `type: Flat, physicalNetwork: p, dhcp: {}, ` + v4(""), `spec.dhcp: Invalid value: "object": dhcp is for type Overlay with ipam Blocks only`},
		{"DHCP of podCIDRs", "n", `role: Primary, namespaceSelector: {}, ipam: PodCIDR, dhcp: {}`, `dhcp is for type Overlay with ipam Blocks only`},
		{"relay with blocks", "n", `dhcpRelay: {servers: [192.0.2.7], subnet: 10.1.0.0/16}, ` + v4(""), `spec.dhcpRelay: Invalid value: "object": dhcpRelay is for ipam DHCP only`},
		{"relay to nothing", "n", relay(`servers: [], subnet: 10.1.0.0/16`), `spec.dhcpRelay.servers: Invalid value: 0: spec.dhcpRelay.servers in body should have at least 1 items`},
		{"relay to many", "n", relay(`servers: [` + many(9, "10.0.0.%d") + `], subnet: 10.1.0.0/16`), `spec.dhcpRelay.servers: Too many: 9: must have at most 8 items`},
		{"relay by name", "n", relay(`servers: [dhcp.example.org], subnet: 10.1.0.0/16`), `spec.dhcpRelay.servers[0]: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form`},
		{"relay by IPv6", "n", relay(`servers: [192.0.2.7, "fd00::7"], subnet: 10.1.0.0/16`), `spec.dhcpRelay.servers: Invalid value: "array": must be IPv4 addresses`},
		{"relay to all", "n", relay(`servers: [255.255.255.255], subnet: 10.1.0.0/16`), `must be a unicast address`},
		{"relay for no subnet", "n", relay(`servers: [192.0.2.7]`), `spec.dhcpRelay.subnet: Required value`},
		{"relay for IPv6", "n", relay(`servers: [192.0.2.7], subnet: "fd00::/64"`), `spec.dhcpRelay.subnet: Invalid value: "string": must be an IPv4 prefix`},
		{"relay for a group", "n", relay(`servers: [192.0.2.7], subnet: 224.0.1.0/24`), `spec.dhcpRelay.subnet: Invalid value: "string": must be a prefix of unicast addresses`},
		{"relay for an address", "n", relay(`servers: [192.0.2.7], subnet: 10.1.0.9/16`), `spec.dhcpRelay.subnet: Invalid value: "string": must be a prefix in canonical form`},
		{"short lease", "n", `dhcp: {leaseSeconds: 59}, ` + v4(""), `spec.dhcp.leaseSeconds: Invalid value: "integer": must be 0 or at least 60`},
		{"negative lease", "n", `dhcp: {leaseSeconds: -1}, ` + v4(""), `spec.dhcp.leaseSeconds in body should be greater than or equal to 0`},
		{"lease in words", "n", `dhcp: {leaseSeconds: "1h"}, ` + v4(""), `spec.dhcp.leaseSeconds`},
		{"no such way to IPv6", "n", `dhcp: {addressMode: SLAAC}, ` + v4(""), `spec.dhcp.addressMode: Unsupported value: "SLAAC": supported values: "Stateful", "Stateless", "None"`},
		{"time server by name", "n", `dhcp: {ntpServers: [ntp.example.org]}, ` + v4(""), `spec.dhcp.ntpServers[0]: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form`},
		{"time servers of a group", "n", `dhcp: {ntpServers: [224.0.1.1]}, ` + v4(""), `spec.dhcp.ntpServers[0]: Invalid value: "string": must be a unicast address`},
		{"five time servers", "n", `dhcp: {ntpServers: [` + many(5, "10.0.0.%d") + `]}, ` + v4(""), `spec.dhcp.ntpServers: Too many: 5: must have at most 4 items`},
		{"next server of IPv6", "n", `dhcp: {nextServer: "fd00::1"}, ` + v4(""), `spec.dhcp.nextServer: Invalid value: "string": must be an IPv4 address`},
		{"next server by name", "n", `dhcp: {nextServer: tftp}, ` + v4(""), `spec.dhcp.nextServer: Invalid value: "string": must be an IPv4 or IPv6 address in canonical form`},
		{"boot file with a space", "n", `dhcp: {bootFile: "a b"}, ` + v4(""), `spec.dhcp.bootFile: Invalid value: "string": must be of printable ASCII characters without spaces`},
		{"long boot file", "n", `dhcp: {bootFile: ` + strings.Repeat("f", 128) + `}, ` + v4(""), `spec.dhcp.bootFile: Too long: may not be more than 127 bytes`},
		{"route to an address", "n", v4("routes: [{destination: 10.9.0.1, nextHop: 10.1.0.5}]"), `spec.subnets[0].routes[0].destination: Invalid value: "string": must be an IPv4 or IPv6 prefix, such as 10.10.0.0/16 or fd00:10::/64, not "10.9.0.1"`},
		{"route with host bits", "n", v4("routes: [{destination: 10.9.0.1/16, nextHop: 10.1.0.5}]"), `spec.subnets[0].routes[0].destination: Invalid value: "string": must be a prefix in canonical form`},
		{"route by a name", "n", v4("routes: [{destination: 10.9.0.0/16, nextHop: vm}]"), `spec.subnets[0].routes[0].nextHop: Invalid value: "string": must be an IPv4 or IPv6 address`},
		{"route by nothing", "n", v4("routes: [{destination: 10.9.0.0/16}]"), `spec.subnets[0].routes[0].nextHop: Required value`},
		{"route by the other family", "n", v4(`routes: [{destination: "fd00:9::/64", nextHop: 10.1.0.5}]`), `spec.subnets[0].routes[0].nextHop: Invalid value: "object": destination and nextHop must be of one family`},
		{"route by afar", "n", v4("routes: [{destination: 10.9.0.0/16, nextHop: 10.2.0.5}]"), `spec.subnets[0].routes: Invalid value: "object": must have next hops in the subnet`},
		{"route twice", "n", v4("routes: [{destination: 10.9.0.0/16, nextHop: 10.1.0.5}, {destination: 10.9.0.0/16, nextHop: 10.1.0.6}]"), `spec.subnets[0].routes[1]: Duplicate value`},
		{"blocks larger than the subnet", "n", v4("blockPrefixLength: 15"), `spec.subnets[0].blockPrefixLength: Invalid value: "object": must be 0, or between the subnet's length and 30`},
		{"blocks of one address", "n", v4("blockPrefixLength: 32"), `spec.subnets[0].blockPrefixLength: Invalid value`},
		{"blocks of one address, IPv6", "n", subnet(`cidr: "fd00:10::/64", blockPrefixLength: 128`), `spec.subnets[0].blockPrefixLength: Invalid value`},
	} {
		t.Run(tc.test, func(t *testing.T) { refused(t, networks.create(t, tc.name, tc.spec), tc.want) })
	}
}

// relay is the spec of a Network with servers that nodes ask as relays.
func relay(fields string) string {
	return `ipam: DHCP, type: Flat, physicalNetwork: p, dhcpRelay: {` + fields + `}`
}

// many is the text n times, each with its number, as the items of a list.
func many(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ", ")
}

func TestNetworksAccepted(t *testing.T) {
	networks := load(t, "networks")
	full := `cidr: 10.%d.0.0/16, gateway: 10.%[1]d.255.254, blockPrefixLength: 30, ranges: [` +
		many(16, "{from: 10.%%[1]d.%d.1, to: 10.%%[1]d.%[1]d.255}") + `], exclusions: [` +
		many(64, "10.%%[1]d.%d.9-10.%%[1]d.%[1]d.9") + `], routes: [` +
		many(32, "{destination: 192.168.%d.0/24, nextHop: 10.%%[1]d.0.7}") + `]`
	for _, tc := range []struct{ test, name, spec string }{
		{"the least", "n", `subnets: [{cidr: 10.1.0.0/16}]`},
		{"both families", "n", `vni: 4711, router: r, mtu: 1280, subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.255.254}, {cidr: "fd00:10::/64", gateway: "fd00:10::ffff"}]`},
		{"the smallest subnets", "n", `subnets: [{cidr: 10.1.0.0/30}, {cidr: "fd00:10::/126"}]`},
		{"the largest subnets", "n", `subnets: [{cidr: 10.0.0.0/8}, {cidr: "fd00::/16"}]`},
		{"selected", "n", `role: Primary, namespaceSelector: {matchLabels: {tenant: red}}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"of podCIDRs", "n", `role: Primary, namespaceSelector: {}, ipam: PodCIDR`},
		{"of a namespace on a node", "ns-red-node-a", `role: Primary, ipam: PodCIDR, node: node-a, router: ns-red`},
		{"the default", "default", `role: Primary, ipam: PodCIDR, router: default, vni: 1`},
		{"the default without more", "default", `role: Primary, ipam: PodCIDR`},
		{"VLAN", "n", `type: VLAN, vlan: 4094, physicalNetwork: physnet1, subnets: [{cidr: 192.0.2.0/24, exclusions: [192.0.2.1, 192.0.2.128/25, 192.0.2.3-192.0.2.9]}]`},
		{"external", "n", `type: Flat, physicalNetwork: p, external: true, namespaceSelector: {matchLabels: {may: float}}, subnets: [{cidr: 192.0.2.0/24}, {cidr: "2001:db8::/64"}]`},
		{"not external", "n", `external: false, subnets: [{cidr: 10.1.0.0/16}]`},
		{"fixed of everything", "n", `fixed: {addresses: Any, macs: Any}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"fixed of ranges", "n", `type: Flat, physicalNetwork: p, fixed: {addresses: Ranges, macs: Local}`},
		{"fixed of nothing", "n", `fixed: {addresses: None, macs: None}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"fixed MACs only", "n", `fixed: {macs: None}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"DHCP servers", "n", `type: VLAN, vlan: 7, physicalNetwork: p, ipam: DHCP`},
		{"DHCP servers by relay", "n", relay(`servers: [192.0.2.7, 198.51.100.7], subnet: 192.168.70.0/24`)},
		{"untagged, without addresses", "n", `type: Flat, physicalNetwork: dc.2_b`},
		{"exclusions, IPv6", "n", `subnets: [{cidr: "fd00:10::/64", exclusions: ["fd00:10::1", "fd00:10::/120", "fd00:10::8000-fd00:10::9000"], ranges: [{from: "fd00:10::1", to: "fd00:10::ffff"}]}]`},
		{"a range of one", "n", `subnets: [{cidr: 10.1.0.0/16, ranges: [{from: 10.1.0.9, to: 10.1.0.9}]}]`},
		{"DHCP", "n", `dhcp: {}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"DHCP with everything", "n", `dhcp: {leaseSeconds: 60, addressMode: Stateless, ntpServers: [10.1.0.2, "fd00::2"], nextServer: 10.1.0.3, bootFile: "http://10.1.0.3/boot.efi"}, subnets: [{cidr: 10.1.0.0/16}]`},
		{"as much as goes", strings.Repeat("n", 63), `dns: {nameservers: [10.1.0.2, "fd00::2"], searches: [a.example.org], options: [ndots:2]}, subnets: [` + many(16, "{"+full+"}") + `]`},
	} {
		t.Run(tc.test, func(t *testing.T) {
			if got := networks.create(t, tc.name, tc.spec); got != "" {
				t.Error(got)
			}
			if got := networks.update(t, tc.name, tc.spec, tc.spec); got != "" {
				t.Errorf("unchanged: %s", got)
			}
		})
	}
}

func TestNetworkDefaults(t *testing.T) {
	networks := load(t, "networks")
	want := map[string]any{"type": "Overlay", "role": "Secondary", "ipam": "Blocks"}
	if diff := cmp.Diff(want, networks.object(t, "n", "").Object["spec"]); diff != "" {
		t.Errorf("an empty spec (-want +got):\n%s", diff)
	}
}

func TestNetworkChanges(t *testing.T) {
	networks := load(t, "networks")
	const one, two = "subnets: [{cidr: 10.1.0.0/16}]", "subnets: [{cidr: 10.1.0.0/16}, {cidr: 10.2.0.0/16}]"
	const physical = "type: VLAN, physicalNetwork: p, vlan: 5"
	for _, tc := range []struct{ test, before, after, want string }{
		{"type", physical, "type: Flat, physicalNetwork: p", `spec.type: Invalid value: "object": type cannot be changed`},
		{"role", "namespaceSelector: {}, " + one, "role: Primary, namespaceSelector: {}, " + one, `role cannot be changed`},
		{"ipam", "role: Primary, namespaceSelector: {}, " + one, "role: Primary, namespaceSelector: {}, ipam: PodCIDR", `ipam cannot be changed`},
		{"VNI", "vni: 7, " + one, "vni: 8, " + one, `spec.vni: Invalid value: "object": vni cannot be changed`},
		{"VNI given later", one, "vni: 8, " + one, `vni cannot be changed`},
		{"VNI taken away", "vni: 8, " + one, one, `vni cannot be changed`},
		{"VLAN", physical, "type: VLAN, physicalNetwork: p, vlan: 6", `vlan cannot be changed`},
		{"wire", physical, "type: VLAN, physicalNetwork: q, vlan: 5", `physicalNetwork cannot be changed`},
		{"Router", "router: a, " + one, "router: b, " + one, `router cannot be changed`},
		{"Router given later", one, "router: b, " + one, `router cannot be changed`},
		{"node", "node: a, " + one, "node: b, " + one, `node cannot be changed`},
		{"external", physical + ", external: true, " + one, physical + ", external: false, " + one, `spec.external: Invalid value: "object": external cannot be changed`},
		{"external given later", physical + ", " + one, physical + ", external: true, " + one, `external cannot be changed`},
		{"external taken away", physical + ", external: true, " + one, physical + ", " + one, `external cannot be changed`},
		{"subnet replaced", one, "subnets: [{cidr: 10.1.0.0/24}]", `spec.subnets: Invalid value: "object": subnets can be added, but not removed or changed`},
		{"subnet removed", two, one, `subnets can be added, but not removed or changed`},
		{"all subnets removed", physical + ", " + one, physical, `subnets can be added, but not removed or changed`},
		{"gateway", "subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1}]", "subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.2}]", `spec.subnets[0].gateway: Invalid value: "object": gateway cannot be changed`},
		{"gateway, moved", "subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1}]", "subnets: [{cidr: 10.2.0.0/16}, {cidr: 10.1.0.0/16, gateway: 10.1.0.2}]", `spec.subnets[1].gateway: Invalid value: "object": gateway cannot be changed`},
		{"gateway given later", one, "subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.2}]", `gateway cannot be changed`},
		{"blocks", one, "subnets: [{cidr: 10.1.0.0/16, blockPrefixLength: 24}]", `spec.subnets[0].blockPrefixLength: Invalid value: "object": blockPrefixLength cannot be changed`},

		{"false spelled out", one, "external: false, " + one, ""},
		{"subnet added", one, two, ""},
		{"first subnet added", physical, physical + ", " + one, ""},
		{"ranges, exclusions and routes", one, "subnets: [{cidr: 10.1.0.0/16, ranges: [{from: 10.1.0.9, to: 10.1.0.19}], exclusions: [10.1.0.12], routes: [{destination: 10.9.0.0/16, nextHop: 10.1.0.7}]}]", ""},
		{"MTU, selector, name servers", one, "mtu: 1400, namespaceSelector: {matchLabels: {a: b}}, dns: {nameservers: [10.1.0.2]}, " + one, ""},
		{"DHCP", one, "dhcp: {leaseSeconds: 0, addressMode: None}, " + one, ""},
		{"other DHCP servers", relay("servers: [192.0.2.7], subnet: 10.1.0.0/16"), relay("servers: [192.0.2.8], subnet: 10.2.0.0/16"), ""},
		{"DHCP servers by relay no more", relay("servers: [192.0.2.7], subnet: 10.1.0.0/16"), "ipam: DHCP, type: Flat, physicalNetwork: p", ""},
		{"DHCP taken away", "dhcp: {}, " + one, one, ""},
		{"fixed", one, "fixed: {addresses: None, macs: Local}, " + one, ""},
		{"length of blocks made explicit", one, "subnets: [{cidr: 10.1.0.0/16, blockPrefixLength: 0}]", ""},
	} {
		t.Run(tc.test, func(t *testing.T) {
			got := networks.update(t, "n", tc.before, tc.after)
			if tc.want == "" {
				if got != "" {
					t.Error(got)
				}
				return
			}
			refused(t, got, tc.want)
		})
	}
}
