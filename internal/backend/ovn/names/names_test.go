// SPDX-License-Identifier: Apache-2.0

package names

import (
	"net/netip"
	"regexp"
	"testing"

	"coelan.io/coelan/internal/intent"
)

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"net-default@n1":   Cluster("").Switch("default", "n1"),
		"blue:net-red":     Cluster("blue").Switch("red", ""),
		"router-default":   Cluster("").Router("default"),
		"lrp-default@n1":   Cluster("").RouterPort("default", "n1"),
		"lsp-red":          Cluster("").SwitchPort("red", ""),
		"peer-red@default": Cluster("").PeerPort("red", "default"),
		"gw-wan@red":       Cluster("").GatewayPort("wan", "red"),
		"gwp-wan@red":      Cluster("").GatewaySwitchPort("wan", "red"),
		"wire-wan":         Cluster("").LocalnetPort("wan"),
		"blue:front-web@a": Cluster("blue").Front("a/web"),
		"ns/web-0":         Cluster("").Port("ns/web-0"),
		"blue:ns/web-0":    Cluster("blue").Port("ns/web-0"),
		"mgmt-n1":          Cluster("").ManagementPort("n1"),
		"coelan/Port/ns/a": Cluster("").Owner("Port/ns/a"),
		"blue/Router/red":  Cluster("blue").Owner("Router/red"),
	} {
		if got != want {
			t.Errorf("name %q, want %q", got, want)
		}
	}
}

// A namespace named node, and clusters, must not get each other's names.
func TestNamesAreDistinct(t *testing.T) {
	if Cluster("").ManagementPort("n1") == Cluster("").Port("node/n1") {
		t.Error("a Port in a namespace named node has the name of a management port")
	}
	if key, ok := Cluster("a").Owned(Cluster("aa").Owner("Port/x")); ok || key != "" {
		t.Errorf("cluster a owns %q of cluster aa", key)
	}
	if key, ok := Cluster("a").Owned("a/Port/ns/x"); !ok || key != "Port/ns/x" {
		t.Errorf("Owned = %q, %v", key, ok)
	}
	if key, ok := Cluster("").Owned("neutron:x"); ok || key != "" {
		t.Errorf("a row of another system is owned as %q", key)
	}
}

func TestSetIsAnIdentifier(t *testing.T) {
	a, b := Cluster("").Set("as4", "Group/x"), Cluster("blue").Set("as4", "Group/x")
	if a == b {
		t.Error("two clusters have an Address_Set of one name")
	}
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(a) {
		t.Errorf("%q is no identifier", a)
	}
}

func TestParseCluster(t *testing.T) {
	for name, valid := range map[string]bool{"": true, "blue": true, "coelan": false, "a:b": false, "a/b": false, "B": false} {
		if c, err := ParseCluster(name); (err == nil) != valid || valid && string(c) != name {
			t.Errorf("ParseCluster(%q) = %q, %v", name, c, err)
		}
	}
}

func TestManagementAddress(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.244.1.0/24": "10.244.1.254", "10.0.0.0/8": "10.255.255.254", "10.1.2.4/30": "10.1.2.6",
		"fd00:1::/64": "fd00:1::ffff:ffff:ffff:ffff", "fd00:1::/120": "fd00:1::ff",
		"10.1.2.4/31": "invalid IP", "fd00::1/128": "invalid IP",
	} {
		got, ok := ManagementAddress(netip.MustParsePrefix(subnet))
		if got.String() != want || ok != (want != "invalid IP") {
			t.Errorf("ManagementAddress(%s) = %s, %v; want %s", subnet, got, ok, want)
		}
	}
}

func TestManagementMAC(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.244.1.254"), netip.MustParseAddr("fd00::ff")
	if got := ManagementMAC([]netip.Addr{v6, v4}).String(); got != "0a:ce:0a:f4:01:fe" {
		t.Errorf("MAC of both families is %s", got)
	}
	if got := ManagementMAC([]netip.Addr{v6}); got == (intent.MAC{}) {
		t.Error("no MAC of an IPv6 address")
	}
	if got := ManagementMAC(nil); got != (intent.MAC{}) {
		t.Errorf("MAC of no address is %s", got)
	}
	n := intent.Node{Subnets: []intent.Subnet{
		{Network: "default", Prefix: netip.MustParsePrefix("10.244.1.0/24")},
		{Network: "default", Prefix: netip.MustParsePrefix("fd00::/120")},
		{Network: "red", Prefix: netip.MustParsePrefix("10.9.0.0/24")},
	}}
	if got := ManagementAddresses(n); len(got) != 2 || got[0] != v4 || got[1] != v6 {
		t.Errorf("ManagementAddresses = %v", got)
	}
}
