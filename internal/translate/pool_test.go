// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
)

func TestBlockBits(t *testing.T) {
	for subnet, want := range map[string]int{
		"10.0.0.0/8": 26, "10.0.0.0/16": 26, "10.0.0.0/22": 26, "10.0.0.0/24": 28, "10.0.0.0/26": 30, "10.0.0.0/28": 30, "10.0.0.0/30": 30,
		"fd00::/48": 122, "fd00::/64": 122, "fd00::/120": 124, "fd00::/126": 126,
	} {
		if got := blockBits(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("blocks of %s are /%d, want /%d", subnet, got, want)
		}
	}
}

// LastFree takes blocks from the end, none that has nothing to hand out, and each once.
func TestLastFree(t *testing.T) {
	for _, c := range []struct {
		name   string
		subnet v1alpha1.Subnet
		want   string // at most four, from the first that is found
		all    int    // 0: more than four
	}{
		{"whole", v1alpha1.Subnet{CIDR: "10.0.0.0/24"}, "10.0.0.240/28 10.0.0.224/28 10.0.0.208/28 10.0.0.192/28", 16},
		{"one block", v1alpha1.Subnet{CIDR: "10.0.0.0/30"}, "10.0.0.0/30", 1},
		{"ranges", v1alpha1.Subnet{CIDR: "10.0.0.0/8", Ranges: []v1alpha1.AddressRange{
			{From: "10.0.0.5", To: "10.0.0.70"}, {From: "10.9.0.0", To: "10.9.0.1"},
		}}, "10.9.0.0/26 10.0.0.64/26 10.0.0.0/26", 3},
		{"exclusions of most", v1alpha1.Subnet{CIDR: "10.0.0.0/8", Exclusions: []string{"10.128.0.0/9", "10.0.0.64-10.127.255.255", "10.0.0.0/27"}}, "10.0.0.0/26", 1},
		{"nothing", v1alpha1.Subnet{CIDR: "10.0.0.0/24", Exclusions: []string{"10.0.0.0/24"}}, "", 0},
		{"IPv6", v1alpha1.Subnet{CIDR: "fd00::/64"}, "fd00::ffff:ffff:ffff:ffc0/122 fd00::ffff:ffff:ffff:ff80/122 fd00::ffff:ffff:ffff:ff40/122 fd00::ffff:ffff:ffff:ff00/122", 0},
		{"IPv6 exclusions of most", v1alpha1.Subnet{CIDR: "fd00::/16", Exclusions: []string{"fd00::1:0-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}}, "fd00::ffc0/122 fd00::ff80/122 fd00::ff40/122 fd00::ff00/122", 1024},
	} {
		pools, err := Pools(&v1alpha1.Network{Spec: v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{c.subnet}}})
		if err != nil {
			t.Fatal(err)
		}
		taken := map[netip.Prefix]bool{}
		var got []string
		for len(taken) <= 2000 {
			p, ok := pools[0].LastFree(func(p netip.Prefix) bool { return taken[p] })
			if !ok {
				break
			}
			if taken[p] {
				t.Fatalf("%s: %s is free and taken", c.name, p)
			}
			taken[p] = true
			got = append(got, p.String())
		}
		if text := strings.Join(got[:min(4, len(got))], " "); text != c.want || c.all != 0 && len(got) != c.all {
			t.Errorf("%s: %s, %d in all; want %s, %d", c.name, text, len(got), c.want, c.all)
		}
	}
}

func TestBlockLength(t *testing.T) {
	for _, tc := range []struct {
		subnet string
		asked  int32
		want   int
	}{
		{"10.0.0.0/8", 0, 26}, {"10.0.0.0/16", 0, 26}, {"10.0.0.0/24", 0, 28}, {"10.0.0.0/27", 0, 30}, {"10.0.0.0/30", 0, 30},
		{"10.0.0.0/31", 0, 31}, {"10.0.0.0/16", 24, 24}, {"10.0.0.0/24", 16, 24}, {"10.0.0.0/24", 32, 31},
		{"fd00::/64", 0, 122}, {"fd00::/120", 0, 124}, {"fd00::/126", 0, 126}, {"fd00::/48", 112, 112}, {"fd00::/64", 128, 127},
	} {
		if got := blockLength(netip.MustParsePrefix(tc.subnet), tc.asked); got != tc.want {
			t.Errorf("%s, asked for %d: %d, want %d", tc.subnet, tc.asked, got, tc.want)
		}
	}
}
