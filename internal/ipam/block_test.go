// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"
)

func block(prefix, subnet, gateway string, only []string, except ...string) Block {
	b := Block{Prefix: netip.MustParsePrefix(prefix), Subnet: netip.MustParsePrefix(subnet)}
	if gateway != "" {
		b.Gateway = netip.MustParseAddr(gateway)
	}
	parse := func(list []string) (out []netipx.IPRange) {
		for _, s := range list {
			i, err := ParseRange(s)
			if err != nil {
				panic(err)
			}
			out = append(out, i)
		}
		return out
	}
	b.Only, b.Except = parse(only), parse(except)
	return b
}

func TestBlock(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    Block
		want []string // from-to
		size uint64
		err  string
	}{
		{"first of a subnet", block("10.1.0.0/28", "10.1.0.0/24", "10.1.0.1", nil), []string{"10.1.0.2-10.1.0.15"}, 14, ""},
		{"middle", block("10.1.0.16/28", "10.1.0.0/24", "10.1.0.1", nil), []string{"10.1.0.16-10.1.0.31"}, 16, ""},
		{"last", block("10.1.0.240/28", "10.1.0.0/24", "10.1.0.1", nil), []string{"10.1.0.240-10.1.0.254"}, 15, ""},
		{"gateway inside", block("10.1.0.16/28", "10.1.0.0/24", "10.1.0.20", nil), []string{"10.1.0.16-10.1.0.19", "10.1.0.21-10.1.0.31"}, 15, ""},
		{"no gateway", block("10.1.0.0/28", "10.1.0.0/28", "", nil), []string{"10.1.0.1-10.1.0.14"}, 14, ""},
		{"IPv6", block("fd00::/124", "fd00::/64", "fd00::1", nil), []string{"fd00::2-fd00::f"}, 14, ""},
		{"last of IPv6", block("fd00::ffff:ffff:ffff:fff0/124", "fd00::/64", "fd00::1", nil),
			[]string{"fd00::ffff:ffff:ffff:fff0-fd00::ffff:ffff:ffff:ffff"}, 16, ""},
		{"exclusions", block("10.1.0.0/28", "10.1.0.0/24", "10.1.0.1", nil, "10.1.0.5", "10.1.0.8/30", "10.1.0.14-10.1.0.200", "fd00::/8"),
			[]string{"10.1.0.2-10.1.0.4", "10.1.0.6-10.1.0.7", "10.1.0.12-10.1.0.13"}, 7, ""},
		{"ranges that overlap, in any order", block("10.1.0.0/24", "10.1.0.0/24", "10.1.0.1", []string{"10.1.0.20-10.1.0.30", "10.1.0.10-10.1.0.22", "10.1.1.0/24"}),
			[]string{"10.1.0.10-10.1.0.22", "10.1.0.23-10.1.0.30"}, 21, ""},
		{"ranges elsewhere", block("10.1.0.0/28", "10.1.0.0/24", "10.1.0.1", []string{"10.1.0.100-10.1.0.110"}), nil, 0, ""},
		{"all excluded", block("10.1.0.16/30", "10.1.0.0/24", "10.1.0.1", nil, "10.1.0.0/24"), nil, 0, ""},
		{"one address", block("10.1.0.7/32", "10.1.0.0/24", "10.1.0.1", nil), []string{"10.1.0.7-10.1.0.7"}, 1, ""},
		{"all of IPv6", block("::/0", "::/0", "", nil), []string{"::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, math.MaxUint64, ""},

		{"outside", block("10.2.0.0/28", "10.1.0.0/24", "", nil), nil, 0, "block 10.2.0.0/28: not a part of the subnet 10.1.0.0/24"},
		{"larger", block("10.1.0.0/16", "10.1.0.0/24", "", nil), nil, 0, "block 10.1.0.0/16: not a part of the subnet 10.1.0.0/24"},
		{"other family", block("fd00::/124", "10.1.0.0/24", "", nil), nil, 0, "block fd00::/124: not a part of the subnet 10.1.0.0/24"},
		{"host bits", block("10.1.0.1/28", "10.1.0.0/24", "", nil), nil, 0, "block 10.1.0.1/28: has host bits set, want 10.1.0.0/28"},
		{"gateway outside", block("10.1.0.0/28", "10.1.0.0/24", "10.2.0.1", nil), nil, 0, "block 10.1.0.0/24: does not contain the gateway 10.2.0.1"},
		{"invalid", Block{}, nil, 0, "block invalid Prefix: not a prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tt.b.Range()
			var got []string
			for _, s := range r.spans {
				got = append(got, s.From().String()+"-"+s.To().String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || message(err) != tt.err || r.Size() != tt.size {
				t.Errorf("size %d, want %d; error %q, want %q; (-want +got):\n%s", r.Size(), tt.size, message(err), tt.err, diff)
			}
		})
	}
}

func TestParseRange(t *testing.T) {
	for _, tt := range []struct{ text, from, to, err string }{
		{"10.0.0.5", "10.0.0.5", "10.0.0.5", ""},
		{"10.0.0.5/29", "10.0.0.0", "10.0.0.7", ""},
		{"10.0.0.5-10.0.0.9", "10.0.0.5", "10.0.0.9", ""},
		{" 10.0.0.5 - 10.0.0.5 ", "10.0.0.5", "10.0.0.5", ""},
		{"fd00::/120", "fd00::", "fd00::ff", ""},
		{"fd00::5-fd00::9", "fd00::5", "fd00::9", ""},
		{"", "", "", `"" is no address, prefix or range of addresses`},
		{"10.0.0", "", "", `"10.0.0" is no address, prefix or range of addresses`},
		{"10.0.0.5-", "", "", `"10.0.0.5-" is no address, prefix or range of addresses`},
		{"10.0.0.0/33", "", "", `"10.0.0.0/33" is no address, prefix or range of addresses`},
		{"fe80::1%eth0", "", "", `"fe80::1%eth0" is no address, prefix or range of addresses`},
		{"::ffff:10.0.0.1", "", "", `"::ffff:10.0.0.1" is no address, prefix or range of addresses`},
		{"10.0.0.9-10.0.0.5", "", "", `"10.0.0.9-10.0.0.5" ends before it begins`},
		{"10.0.0.9-fd00::1", "", "", `"10.0.0.9-fd00::1" begins and ends in different families`},
	} {
		i, err := ParseRange(tt.text)
		if message(err) != tt.err {
			t.Errorf("%q: error %q, want %q", tt.text, message(err), tt.err)
		}
		if err == nil && (i.From().String() != tt.from || i.To().String() != tt.to) {
			t.Errorf("%q: %v, want %s to %s", tt.text, i, tt.from, tt.to)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("10.0.0.5-10.0.0.9")
	f.Add("fd00::/120")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := ParseRange(text)
		if err == nil && (!i.Contains(i.From()) || !i.Contains(i.To()) || Size(i) == 0) {
			t.Fatalf("%q is %v", text, i)
		}
	})
}

// Several blocks with holes are one circle: each address once, beginning behind the last one.
func TestNextOverBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []Range
		var all []netip.Addr
		for n := range rapid.IntRange(1, 4).Draw(t, "blocks") {
			base := netip.AddrFrom4([4]byte{10, 0, 0, byte(n * 16)})
			b := Block{Prefix: netip.PrefixFrom(base, 28), Subnet: netip.MustParsePrefix("10.0.0.0/24")}
			for range rapid.IntRange(0, 3).Draw(t, "exclusions") {
				b.Except = append(b.Except, netipx.RangeOfPrefix(netip.PrefixFrom(
					netip.AddrFrom4([4]byte{10, 0, 0, byte(n*16 + rapid.IntRange(0, 15).Draw(t, "at"))}),
					rapid.IntRange(28, 32).Draw(t, "length")).Masked()))
			}
			r, err := b.Range()
			if err != nil {
				t.Fatal(err)
			}
			ranges = append(ranges, r)
			for a := base; b.Prefix.Contains(a); a = a.Next() {
				if r.Contains(a) {
					all = append(all, a)
				}
			}
		}
		after := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 70).Draw(t, "after"))})
		start := 0
		for i, a := range all {
			if a == after {
				start = i + 1
			}
		}
		var want, asked []netip.Addr
		for i := range all {
			want = append(want, all[(start+i)%len(all)])
		}
		_, _, err := Next(ranges, after, func(a netip.Addr) bool { asked = append(asked, a); return true })
		if err == nil {
			t.Fatal("no error although all are taken")
		}
		if diff := cmp.Diff(want, asked, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatalf("asked about (-want +got):\n%s", diff)
		}
	})
}
