// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// specOf is how the blocks of a Network's only subnet are.
func specOf(t interface{ Fatalf(string, ...any) }, s v1alpha1.Subnet) spec {
	n := translate.Network(lan(s))
	if n.Withheld != "" || len(n.Pools) != 1 {
		t.Fatalf("%+v: %s", n.Pools, n.Withheld)
	}
	return specs(n)[0]
}

// The candidates are disjoint parts of the subnet that all hold something, each once, and all
// addresses that can be handed out are in one.
func TestCandidatesCoverTheSubnet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, width := "10.3.0.0", 32
		if rapid.Bool().Draw(t, "IPv6") {
			base, width = "fd00:1:2:3::", 128
		}
		host := rapid.IntRange(2, 9).Draw(t, "host bits")
		subnet := netip.PrefixFrom(netip.MustParseAddr(base), width-host).Masked()
		s := v1alpha1.Subnet{CIDR: subnet.String(), BlockPrefixLength: int32(rapid.IntRange(0, 128).Draw(t, "length"))}
		nth := func(n int) string {
			a := subnet.Addr()
			for range n {
				a = a.Next()
			}
			return a.String()
		}
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			from := rapid.IntRange(0, 1<<host-1).Draw(t, "from")
			to := rapid.IntRange(from, 1<<host-1).Draw(t, "to")
			s.Ranges = append(s.Ranges, v1alpha1.AddressRange{From: nth(from), To: nth(to)})
		}
		sp := specOf(t, s)
		whole, err := sp.Block(subnet)
		if err != nil {
			t.Fatal(err)
		}
		var sum uint64
		seen := map[netip.Prefix]bool{}
		for p := range sp.candidates(rapid.String().Draw(t, "seed")) {
			r, err := sp.Block(p)
			if err != nil || r.Size() == 0 || seen[p] || !subnet.Contains(p.Addr()) || p != p.Masked() {
				t.Fatalf("candidate %s: size %d, seen %v, %v", p, r.Size(), seen[p], err)
			}
			seen[p] = true
			sum += r.Size()
		}
		if sum != whole.Size() {
			t.Fatalf("the candidates hold %d addresses, the subnet %d", sum, whole.Size())
		}
	})
}

func TestCandidatesOfALargeSubnet(t *testing.T) {
	sp := specOf(t, v1alpha1.Subnet{CIDR: "fd00::/16"})
	n, last := 0, netip.Prefix{}
	for p := range sp.candidates("node") {
		if p == last || p.Bits() != 122 {
			t.Fatalf("candidate %s after %s", p, last)
		}
		if last, n = p, n+1; n == 100 {
			return
		}
	}
	t.Errorf("only %d candidates", n)
}

// With parts, the candidates are those that are in one of them.
func TestCandidatesOfParts(t *testing.T) {
	for _, tc := range []struct {
		parts string
		want  int // candidates
	}{
		{"", 16}, {"10.3.0.0/24", 16}, {"10.3.0.64/26", 4}, {"10.3.0.16/28", 1}, {"10.3.0.16/28 10.3.0.128/25", 9},
		{"10.0.0.0/8", 16}, {"fd00::/64", 16},
		// A part that holds no whole block, or is elsewhere, has none.
		{"10.3.0.16/29", 0}, {"10.9.0.0/16", 0},
	} {
		var parts []netip.Prefix
		for _, text := range strings.Fields(tc.parts) {
			parts = append(parts, netip.MustParsePrefix(text))
		}
		sp := specOf(t, v1alpha1.Subnet{CIDR: "10.3.0.0/24", BlockPrefixLength: 28}).of(parts)
		n := 0
		for p := range sp.candidates("node") {
			if len(sp.parts) > 0 && !slices.ContainsFunc(sp.parts, p.Overlaps) {
				t.Errorf("%q: candidate %s", tc.parts, p)
			}
			n++
		}
		if n != tc.want {
			t.Errorf("%q: %d candidates, want %d", tc.parts, n, tc.want)
		}
	}
}
