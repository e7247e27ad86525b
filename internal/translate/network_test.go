// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

func TestPort(t *testing.T) {
	at := attachment.Attachment{
		Spec: attachment.Spec{
			Key:    attachment.Key{ContainerID: "3f2a", IfName: "eth0"},
			PodUID: "uid", PodNamespace: "shop", PodName: "web-0",
		},
		MAC:       intent.MAC{0x0a, 0xce, 10, 244, 1, 2},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.2/24"), netip.MustParsePrefix("fd00:10:244:1::2/64")},
		OFPort:    16,
	}
	want := intent.Port{
		ID: "3f2a/eth0", Namespace: "shop", Pod: "web-0", Interface: "eth0", UID: "uid", Object: "web-0.eth0",
		Network: "default", Node: "worker1", MAC: at.MAC,
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:10:244:1::2")},
	}
	if diff := cmp.Diff(want, Port(at, "worker1"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("Port (-want +got):\n%s", diff)
	}
}

func TestDefaultNetworkIsRouted(t *testing.T) {
	network, router := Default()
	if network.Router != router.Name || network.ID != 1 || network.VNI != 1 || router.ID != 1 {
		t.Errorf("Default() = %+v, %+v", network, router)
	}
}

// What interfaces get of a Network is as its spec says; a name server that is no address is left
// out, and the rest has effect.
func TestNetworkSettings(t *testing.T) {
	o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}, Status: v1alpha1.NetworkStatus{ID: 7}}
	o.Spec = v1alpha1.NetworkSpec{
		Type: v1alpha1.Flat, PhysicalNetwork: "floor2", MTU: 1400, DNS: &v1alpha1.DNS{
			Nameservers: []string{"192.0.2.53", "ns.example", "fd00::53"}, Searches: []string{"example"}, Options: []string{"ndots:2"},
		},
	}
	_, networks, problems := Networks(nil, []*v1alpha1.Network{o})
	want := intent.Network{Name: "office", ID: 7, Physical: "floor2", MTU: 1400, DNS: intent.DNS{
		Servers:  []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("fd00::53")},
		Searches: []string{"example"}, Options: []string{"ndots:2"},
	}}
	if diff := cmp.Diff(want, networks[1], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("Network (-want +got):\n%s", diff)
	}
	if len(problems) != 1 || problems[0].Field != "spec.dns.nameservers[1]" || problems[0].Value != "ns.example" {
		t.Errorf("problems: %v", problems)
	}
}

// What is handed out of subnets is as the spec says, in their order. If any of it cannot be read,
// nothing is handed out, because it may be in use elsewhere; what is routed stays.
func TestNetworkPools(t *testing.T) {
	addresses := func(first, last string) intent.AddressRange {
		return intent.AddressRange{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
	}
	o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: "uid"}}
	o.Spec.Subnets = []v1alpha1.Subnet{
		{
			CIDR: "10.1.0.0/24", BlockPrefixLength: 29, Ranges: []v1alpha1.AddressRange{{From: "10.1.0.10", To: "10.1.0.99"}},
			Exclusions: []string{"10.1.0.11", "10.1.0.16/30", "10.1.0.20-10.1.0.29"},
		},
		{CIDR: "fd00::/64"},
	}
	want := []intent.Pool{
		{
			Subnet: netip.MustParsePrefix("10.1.0.0/24"), BlockBits: 29, Only: []intent.AddressRange{addresses("10.1.0.10", "10.1.0.99")},
			Except: []intent.AddressRange{
				addresses("10.1.0.11", "10.1.0.11"), addresses("10.1.0.16", "10.1.0.19"), addresses("10.1.0.20", "10.1.0.29"),
			},
		},
		{Subnet: netip.MustParsePrefix("fd00::/64"), BlockBits: 122},
	}
	values := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	n := Network(o)
	if diff := cmp.Diff(want, n.Pools, values); diff != "" || n.Withheld != "" || n.UID != "uid" {
		t.Errorf("%+v; pools (-want +got):\n%s", n, diff)
	}
	for field, change := range map[string]func(*v1alpha1.Subnet){
		"spec.subnets[0].cidr":          func(s *v1alpha1.Subnet) { s.CIDR = "10.1.0.0" },
		"spec.subnets[0].gateway":       func(s *v1alpha1.Subnet) { s.Gateway = "10.2.0.1" },
		"spec.subnets[0].ranges[0]":     func(s *v1alpha1.Subnet) { s.Ranges[0].To = "10.1.0.1" },
		"spec.subnets[0].exclusions[1]": func(s *v1alpha1.Subnet) { s.Exclusions[1] = "10.1.0" },
	} {
		bad := o.DeepCopy()
		change(&bad.Spec.Subnets[0])
		n := Network(bad)
		if !strings.Contains(n.Withheld, field) || len(n.Pools) != len(n.Subnets) || len(n.Subnets) == 0 {
			t.Errorf("%s: %+v", field, n)
		}
	}
}
