// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"

	"go4.org/netipx"
)

// BenchmarkRange is what an ADD does for each block and podCIDR.
func BenchmarkRange(b *testing.B) {
	only, err := ParseRange("10.9.0.5-10.9.0.200")
	if err != nil {
		b.Fatal(err)
	}
	block := Block{
		Prefix: netip.MustParsePrefix("10.9.0.0/26"), Subnet: netip.MustParsePrefix("10.9.0.0/24"),
		Gateway: netip.MustParseAddr("10.9.0.1"), Only: []netipx.IPRange{only},
	}
	for name, b1 := range map[string]Block{"whole": {Prefix: block.Prefix, Subnet: block.Subnet, Gateway: block.Gateway}, "parts": block} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := b1.Range(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	var list []netip.Prefix
	for i := range 1000 {
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0}), 24))
	}
	b.ReportAllocs()
	for b.Loop() {
		Merge(list)
	}
}
