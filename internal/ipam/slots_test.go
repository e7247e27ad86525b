// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

func TestSlots(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cidrs []string
		n     int
		taken []string
		want  []string
	}{
		{"none", nil, 4, nil, nil},
		{"no number", []string{"10.1.0.0/24"}, 0, nil, nil},
		// Slots 0 and 1 are the network address and the gateway.
		{"one family", []string{"10.1.0.0/24"}, 4, nil, []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.7"}},
		{"a taken one", []string{"10.1.0.0/24"}, 2, []string{"10.1.0.3"}, []string{"10.1.0.2", "10.1.0.4", "10.1.0.5"}},
		{"both families", []string{"10.1.0.0/24", "fd00::/64"}, 2, []string{"fd00::2"}, []string{"10.1.0.3 fd00::3", "10.1.0.4 fd00::4", "10.1.0.5 fd00::5"}},
		{"small", []string{"fd00::/64", "10.1.0.0/29"}, 16, nil,
			[]string{"fd00::2 10.1.0.2", "fd00::3 10.1.0.3", "fd00::4 10.1.0.4", "fd00::5 10.1.0.5", "fd00::6 10.1.0.6"}},
		{"the last of all addresses", []string{"255.255.255.248/29"}, 16, []string{"255.255.255.250", "255.255.255.251"},
			[]string{"255.255.255.252", "255.255.255.253", "255.255.255.254"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var cidrs []netip.Prefix
			for _, c := range tt.cidrs {
				cidrs = append(cidrs, netip.MustParsePrefix(c))
			}
			ranges, err := Parse(cidrs)
			if err != nil && len(cidrs) > 0 {
				t.Fatal(err)
			}
			var got []string
			for _, slot := range Slots(ranges, tt.n, tt.n, func(a netip.Addr) bool { return slices.Contains(tt.taken, a.String()) }) {
				got = append(got, fmt.Sprint(slot)[1:len(fmt.Sprint(slot))-1])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Blocks of a Network follow each other, in whichever order they are given, and those of the other
// family are beside them. What the Network keeps to itself is no slot.
func TestSlotsOfBlocks(t *testing.T) {
	network := intent.Network{
		Subnets: []intent.NetworkSubnet{
			{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1")},
			{Prefix: netip.MustParsePrefix("10.8.0.0/24"), Gateway: netip.MustParseAddr("10.8.0.1")},
			{Prefix: netip.MustParsePrefix("fd09::/64")},
		},
		Pools: []intent.Pool{
			{Subnet: netip.MustParsePrefix("10.9.0.0/24"), BlockBits: 29,
				Except: []intent.AddressRange{{First: netip.MustParseAddr("10.9.0.35"), Last: netip.MustParseAddr("10.9.0.37")}}},
			{Subnet: netip.MustParsePrefix("10.8.0.0/24"), BlockBits: 29},
			{Subnet: netip.MustParsePrefix("fd09::/64"), BlockBits: 125},
		},
	}
	for _, tt := range []struct {
		name   string
		blocks []string
		want   []string
	}{
		{"one of each family", []string{"10.9.0.0/29", "fd09::10/125"}, []string{
			"10.9.0.2 fd09::12", "10.9.0.3 fd09::13", "10.9.0.4 fd09::14", "10.9.0.5 fd09::15", "10.9.0.6 fd09::16", "10.9.0.7 fd09::17",
		}},
		{"of two the lower one first", []string{"10.9.0.32/29", "10.9.0.16/29", "fd09::10/125", "fd09::8/125"}, []string{
			"10.9.0.16 fd09::8", "10.9.0.17 fd09::9", "10.9.0.18 fd09::a", "10.9.0.19 fd09::b",
			"10.9.0.20 fd09::c", "10.9.0.21 fd09::d", "10.9.0.22 fd09::e", "10.9.0.23 fd09::f",
			"10.9.0.32 fd09::10", "10.9.0.33 fd09::11", "10.9.0.34 fd09::12", "10.9.0.38 fd09::16", "10.9.0.39 fd09::17",
		}},
		{"as many as the family with fewer has", []string{"10.9.0.32/29", "10.9.0.40/29", "fd09::8/125"}, []string{
			"10.9.0.32 fd09::8", "10.9.0.33 fd09::9", "10.9.0.34 fd09::a", "10.9.0.38 fd09::e", "10.9.0.39 fd09::f",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pools := Pools(network)
			if len(pools) != 2 {
				t.Fatalf("%d pools, want that of the first subnet of each family", len(pools))
			}
			var ranges []Range
			for _, text := range tt.blocks {
				prefix := netip.MustParsePrefix(text)
				for _, p := range pools {
					if !p.Subnet.Contains(prefix.Addr()) {
						continue
					}
					r, err := p.Block(prefix)
					if err != nil {
						t.Fatal(err)
					}
					ranges = append(ranges, r)
				}
			}
			var got []string
			for _, slot := range Slots(ranges, 4, 100, func(netip.Addr) bool { return false }) {
				got = append(got, slot[0].String()+" "+slot[1].String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// As many as are asked for are there unless the podCIDR is full; more of them only add to the end;
// and one that comes to be taken is the only one to go as long as enough are left.
func TestSlotsThatComeAndGo(t *testing.T) {
	ranges, err := Parse([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/25")})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		taken := map[netip.Addr]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "pods") {
			taken[netip.AddrFrom4([4]byte{10, 1, 0, rapid.Byte().Draw(t, "address") % 128})] = true
		}
		n := rapid.IntRange(1, 20).Draw(t, "n")
		is := func(a netip.Addr) bool { return taken[a] }
		slots := Slots(ranges, n, n, is)
		if len(slots) < n {
			t.Errorf("%d slots of %d", len(slots), n)
		}
		more := Slots(ranges, n, n+len(slots), is)
		if diff := cmp.Diff(slots, more[:len(slots)], cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
			t.Errorf("the first of more (-want +got):\n%s", diff)
		}
		if end := Slots(ranges, n, n+len(slots)-1, is); len(end) > len(more) || len(end) < len(slots) {
			t.Errorf("%d, %d and %d slots", len(slots), len(end), len(more))
		}
		gone := rapid.SampledFrom(slots).Draw(t, "gone")[0]
		taken[gone] = true
		for i, slot := range Slots(ranges, n, n, is) {
			if slot[0] == gone || i < len(slots)-1 && slot[0] != slots[i][0] && slot[0] != slots[i+1][0] {
				t.Errorf("slot %d is %v after %v was taken of %v", i, slot, gone, slots)
			}
		}
	})
}
