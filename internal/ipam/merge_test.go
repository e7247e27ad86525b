// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var equalPrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in, want []netip.Prefix
	}{
		{"nothing", nil, nil},
		{"podCIDRs of four nodes", prefixes("10.244.2.0/24", "10.244.0.0/24", "10.244.3.0/24", "10.244.1.0/24"), prefixes("10.244.0.0/22")},
		{"a gap", prefixes("10.244.0.0/24", "10.244.2.0/24"), prefixes("10.244.0.0/24", "10.244.2.0/24")},
		{"not halves of one", prefixes("10.244.1.0/24", "10.244.2.0/24"), prefixes("10.244.1.0/24", "10.244.2.0/24")},
		{"one in another, twice, with host bits", prefixes("10.244.0.0/16", "10.244.7.0/24", "10.244.9.9/16"), prefixes("10.244.0.0/16")},
		{"both families", prefixes("fd00:1::/64", "10.0.0.1/32", "fd00::/64", "10.0.0.0/32"), prefixes("10.0.0.0/31", "fd00::/64", "fd00:1::/64")},
		{"everything", prefixes("128.0.0.0/1", "0.0.0.0/1", "::/1", "8000::/1"), prefixes("0.0.0.0/0", "::/0")},
		{"invalid", []netip.Prefix{{}}, nil},
	} {
		if diff := cmp.Diff(tt.want, Merge(tt.in), equalPrefix); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The same addresses as before, and nothing that could be merged.
func TestMergeAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "prefixes") {
			in = append(in, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "at")}), rapid.IntRange(24, 32).Draw(t, "length")))
		}
		merged := Merge(in)
		in24 := func(list []netip.Prefix, a netip.Addr) (n int) {
			for _, p := range list {
				if p.Contains(a) {
					n++
				}
			}
			return n
		}
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if got, want := in24(merged, a), min(in24(in, a), 1); got != want {
				t.Fatalf("%s is in %d of %v, want %d", a, got, merged, want)
			}
		}
		for i := 1; i < len(merged); i++ {
			if pair := Merge(merged[i-1 : i+1]); len(pair) < 2 {
				t.Fatalf("%v and %v are %v", merged[i-1], merged[i], pair)
			}
		}
	})
}
