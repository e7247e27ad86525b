// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"
)

func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		in     []string
		family func(netip.Addr) bool
		want   []string
	}{
		{"none", nil, netip.Addr.Is4, nil},
		{"other family", []string{"fd00::/64"}, netip.Addr.Is4, nil},
		{"one", []string{"10.244.1.0/24"}, netip.Addr.Is4, []string{"10.244.1.0-10.244.1.255"}},
		{"neighbours", []string{"10.244.2.0/24", "10.244.1.0/24"}, netip.Addr.Is4, []string{"10.244.1.0-10.244.2.255"}},
		{"one in the other", []string{"10.0.0.0/8", "10.244.1.0/24"}, netip.Addr.Is4, []string{"10.0.0.0-10.255.255.255"}},
		{"apart", []string{"10.2.0.0/24", "10.0.0.0/24"}, netip.Addr.Is4, []string{"10.0.0.0-10.0.0.255", "10.2.0.0-10.2.0.255"}},
		{"twice", []string{"10.0.0.0/24", "10.0.0.0/24"}, netip.Addr.Is4, []string{"10.0.0.0-10.0.0.255"}},
		{"everything", []string{"0.0.0.0/0"}, netip.Addr.Is4, []string{"0.0.0.0-255.255.255.255"}},
		{"to the end", []string{"255.255.255.0/24"}, netip.Addr.Is4, []string{"255.255.255.0-255.255.255.255"}},
		{"IPv6", []string{"fd00:1::/64", "10.0.0.0/8", "fd00:2::/64"}, netip.Addr.Is6,
			[]string{"fd00:1::-fd00:1::ffff:ffff:ffff:ffff", "fd00:2::-fd00:2::ffff:ffff:ffff:ffff"}},
	} {
		var prefixes []netip.Prefix
		for _, p := range tc.in {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		var got []string
		for _, r := range ranges(prefixes, tc.family) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestRangesOfElements reads back what would be written, for any prefixes in any order.
func TestRangesOfElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), rapid.IntRange(0, 32).Draw(t, "length"))
		})
		prefixes := rapid.SliceOf(prefix).Draw(t, "prefixes")
		want := ranges(prefixes, netip.Addr.Is4)
		got := rangesOf(elements(want))
		if !slices.Equal(want, got) {
			t.Fatalf("wrote %v, read %v", want, got)
		}
		var split []netip.Prefix
		for _, r := range want {
			split = append(split, r.Prefixes()...)
		}
		if again := ranges(split, netip.Addr.Is4); !slices.Equal(want, again) {
			t.Fatalf("%v became the prefixes %v", want, split)
		}
		for _, p := range prefixes {
			if !slices.ContainsFunc(want, func(r netipx.IPRange) bool {
				return r.Contains(p.Masked().Addr()) && r.Contains(netipx.PrefixLastIP(p))
			}) {
				t.Fatalf("%s is in none of %v", p, want)
			}
		}
	})
}

func TestPodMTU(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("fd33::11")
	for _, tc := range []struct {
		tunnel bool
		node   netip.Addr
		want   int
	}{{true, v4, 1450}, {true, v6, 1430}, {false, v4, 1500}, {false, v6, 1500}} {
		if got := PodMTU(1500, tc.tunnel, tc.node); got != tc.want {
			t.Errorf("PodMTU(1500, %v, %s) = %d, want %d", tc.tunnel, tc.node, got, tc.want)
		}
	}
}
