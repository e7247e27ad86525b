// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// What machines are told is as the spec says. What cannot be read is left out and named, and what
// the API would not admit has no effect.
func TestDHCP(t *testing.T) {
	subnet := v1alpha1.Subnet{CIDR: "10.1.0.0/24"}
	routed := subnet
	routed.Routes = []v1alpha1.Route{
		{Destination: "192.168.9.0/24", NextHop: "10.1.0.9"}, {Destination: "192.168.8.0", NextHop: "10.1.0.9"},
		{Destination: "192.168.7.0/24", NextHop: "fd00::9"},
	}
	addr := netip.MustParseAddr
	for _, tc := range []struct {
		name     string
		spec     v1alpha1.NetworkSpec
		want     intent.DHCP
		problems []string // their fields
	}{
		{"none", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{routed}}, intent.DHCP{}, nil},
		{
			"the least", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{subnet}, DHCP: &v1alpha1.DHCP{}},
			intent.DHCP{Enabled: true, Lease: 24 * time.Hour}, nil,
		},
		{
			"all", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{subnet}, DHCP: &v1alpha1.DHCP{
				LeaseSeconds: 600, AddressMode: v1alpha1.Stateless, NTPServers: []string{"192.0.2.1", "fd00::1"},
				NextServer: "192.0.2.2", BootFile: "boot",
			}},
			intent.DHCP{
				Enabled: true, Lease: 10 * time.Minute, IPv6: intent.StatelessIPv6, NTP: []netip.Addr{addr("192.0.2.1"), addr("fd00::1")},
				NextServer: addr("192.0.2.2"), BootFile: "boot",
			}, nil,
		},
		{
			"not all can be read", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{routed}, DHCP: &v1alpha1.DHCP{
				AddressMode: v1alpha1.NoIPv6, NTPServers: []string{"ntp", "192.0.2.1"}, NextServer: "fd00::1",
			}},
			intent.DHCP{
				Enabled: true, Lease: 24 * time.Hour, IPv6: intent.NoIPv6, NTP: []netip.Addr{addr("192.0.2.1")},
				Routes: []intent.Route{{Destination: netip.MustParsePrefix("192.168.9.0/24"), NextHop: addr("10.1.0.9")}},
			},
			[]string{
				"spec.dhcp.nextServer", "spec.dhcp.ntpServers[0]", "spec.subnets[0].routes[1].destination",
				"spec.subnets[0].routes[2].nextHop",
			},
		},
		{
			"next server by name", v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{subnet}, DHCP: &v1alpha1.DHCP{NextServer: "tftp"}},
			intent.DHCP{Enabled: true, Lease: 24 * time.Hour}, []string{"spec.dhcp.nextServer"},
		},
		{"a wire", v1alpha1.NetworkSpec{Type: v1alpha1.Flat, PhysicalNetwork: "p", DHCP: &v1alpha1.DHCP{}}, intent.DHCP{}, nil},
		{"podCIDRs", v1alpha1.NetworkSpec{IPAM: v1alpha1.PodCIDR, DHCP: &v1alpha1.DHCP{}}, intent.DHCP{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			router := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Status: v1alpha1.RouterStatus{ID: 9, VNI: 9}}
			o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: tc.spec, Status: v1alpha1.NetworkStatus{ID: 7, VNI: 7}}
			_, networks, problems := Networks([]*v1alpha1.Router{router}, []*v1alpha1.Network{o})
			var got intent.DHCP
			for _, n := range networks {
				if n.Name == "lan" {
					got = n.DHCP
				}
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("DHCP (-want +got):\n%s", diff)
			}
			var fields []string
			for _, p := range problems {
				fields = append(fields, p.Field)
			}
			if diff := cmp.Diff(tc.problems, fields); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Nodes ask the servers that the spec names. If it cannot be read, they ask fewer or none, and not
// those on the physical network.
func TestDHCPRelay(t *testing.T) {
	subnet, server := netip.MustParsePrefix("192.168.70.0/24"), netip.MustParseAddr("192.0.2.7")
	for _, tc := range []struct {
		name     string
		ipam     v1alpha1.IPAM
		relay    *v1alpha1.DHCPRelay
		want     intent.Relay
		problems int
	}{
		{"none", v1alpha1.DHCPServers, nil, intent.Relay{}, 0},
		{
			"two servers", v1alpha1.DHCPServers, &v1alpha1.DHCPRelay{Servers: []string{"192.0.2.7", "192.0.2.8"}, Subnet: "192.168.70.0/24"},
			intent.Relay{Enabled: true, Servers: []netip.Addr{server, server.Next()}, Subnet: subnet}, 0,
		},
		{
			"not all can be read", v1alpha1.DHCPServers,
			&v1alpha1.DHCPRelay{Servers: []string{"dhcp", "fd00::7", "192.0.2.7"}, Subnet: "192.168.70.0/24"},
			intent.Relay{Enabled: true, Servers: []netip.Addr{server}, Subnet: subnet}, 2,
		},
		{
			"no subnet", v1alpha1.DHCPServers, &v1alpha1.DHCPRelay{Servers: []string{"192.0.2.7"}, Subnet: "fd00::/64"},
			intent.Relay{Enabled: true}, 1,
		},
		{"of blocks", v1alpha1.Blocks, &v1alpha1.DHCPRelay{Servers: []string{"192.0.2.7"}, Subnet: "192.168.70.0/24"}, intent.Relay{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Status: v1alpha1.NetworkStatus{ID: 7}, Spec: v1alpha1.NetworkSpec{
				Type: v1alpha1.Flat, PhysicalNetwork: "p", IPAM: tc.ipam, DHCPRelay: tc.relay,
			}}
			_, networks, problems := Networks(nil, []*v1alpha1.Network{o})
			var got intent.Relay
			for _, n := range networks {
				if n.Name == "lan" {
					got = n.Relay
				}
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("relay (-want +got):\n%s", diff)
			}
			if len(problems) != tc.problems {
				t.Errorf("problems %v, want %d", problems, tc.problems)
			}
		})
	}
}
