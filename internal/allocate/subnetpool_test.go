// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

func TestParseSubnetPools(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{"pool", "", `"pool" is not a CIDR and a prefix length`},
		{"10.128.0.0/14", "", "is not a CIDR and a prefix length, such as 10.128.0.0/14/24"},
		{"/24", "", "is not a CIDR and a prefix length"},
		{"10.128.0.0/33/33", "", "is not a CIDR and a prefix length"},
		{"::ffff:10.0.0.0/104/120", "", "is not a CIDR and a prefix length"},
		{"10.128.0.0/14/x", "", `"x" is not a prefix length`},
		{"10.128.0.0/14/-24", "", `"-24" is not a prefix length`},
		{"10.128.0.1/14/24", "", "10.128.0.1/14 has bits set after its length: write 10.128.0.0/14"},
		{"224.0.0.0/8/24", "", "224.0.0.0/8 is not a range of unicast addresses"},
		{"fe80::/48/64", "", "fe80::/48 is not a range of unicast addresses"},
		{"10.128.0.0/14/13", "", "is 13, not between 14, that of the pool, and 30"},
		{"10.128.0.0/14/31", "", "is 31, not between 14, that of the pool, and 30"},
		{"fd00:128::/48/127", "", "is 127, not between 48, that of the pool, and 126"},
		{"10.128.0.0/14/24,10.64.0.0/14/24", "", "10.128.0.0/14/24 and 10.64.0.0/14/24 are of one family"},
		{"fd00:1::/48/64,10.0.0.0/8/24,fd00:2::/48/64", "", "are of one family"},
		{"", "[]", ""},
		{" 10.128.0.0/14/24 , fd00:128::/48/64,", "[10.128.0.0/14/24 fd00:128::/48/64]", ""},
		{"10.128.0.0/30/30", "[10.128.0.0/30/30]", ""},
		{"fd00::/126/126", "[fd00::/126/126]", ""},
	} {
		got, err := ParseSubnetPools(c.text)
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q: %v, want %s", c.text, err, c.wrong)
		case c.wrong == "" && fmt.Sprint(got) != c.want:
			t.Errorf("%q: %v, want %s", c.text, got, c.want)
		}
	}
}

func TestNextSubnet(t *testing.T) {
	for _, c := range []struct{ name, pool, taken, after, want string }{
		{"the first", "10.128.0.0/22/24", "", "", "10.128.0.0/24"},
		{"all of it", "10.128.0.0/24/24", "", "", "10.128.0.0/24"},
		{"after one that is taken", "10.128.0.0/22/24", "10.128.0.0/24", "", "10.128.1.0/24"},
		{"between two", "10.128.0.0/22/24", "10.128.2.0/24 10.128.0.0/24", "", "10.128.1.0/24"},
		{"beside a smaller one", "10.128.0.0/22/24", "10.128.0.200/30 10.128.1.0/26", "", "10.128.2.0/24"},
		{"beside a larger one", "10.128.0.0/22/24", "10.128.0.0/23", "", "10.128.2.0/24"},
		{"beside one in another", "10.128.0.0/22/24", "10.128.0.0/24 10.128.0.0/23 10.128.0.64/26", "", "10.128.2.0/24"},
		{"all is taken", "10.128.0.0/23/24", "10.128.1.0/24 10.128.0.0/24", "", ""},
		{"all is in another", "10.128.0.0/23/24", "10.0.0.0/8", "10.128.0.0/24", ""},
		{"others do not matter", "10.128.0.0/23/24", "10.129.0.0/24 fd00::/8", "", "10.128.0.0/24"},
		{"the next", "10.128.0.0/22/24", "", "10.128.1.0/24", "10.128.2.0/24"},
		{"not the one that was freed", "10.128.0.0/22/24", "10.128.2.0/24", "10.128.1.0/24", "10.128.3.0/24"},
		{"around", "10.128.0.0/22/24", "10.128.0.0/24", "10.128.3.0/24", "10.128.1.0/24"},
		{"the one that was freed, as it is the last", "10.128.0.0/23/24", "10.128.0.0/24", "10.128.1.0/24", "10.128.1.0/24"},
		{"after one of another length", "10.128.0.0/22/24", "", "10.128.1.64/26", "10.128.2.0/24"},
		{"after one of another pool", "10.128.0.0/22/24", "", "10.64.0.0/24", "10.128.0.0/24"},
		{"IPv6", "fd00:128::/48/64", "fd00:128::/64", "", "fd00:128:0:1::/64"},
		{"at the end of all addresses", "255.255.254.0/23/24", "255.255.254.0/24", "", "255.255.255.0/24"},
		{"no address is left", "255.255.254.0/23/24", "255.255.254.0/23", "255.255.255.0/24", ""},
	} {
		pool := poolOf(c.pool)
		var after netip.Prefix
		if c.after != "" {
			after = netip.MustParsePrefix(c.after)
		}
		var taken []netip.Prefix
		for _, text := range strings.Fields(c.taken) {
			taken = append(taken, netip.MustParsePrefix(text))
		}
		got, err := NextSubnet(pool, taken, after)
		switch {
		case c.want == "" && (!errors.Is(err, ErrPoolUsedUp) || !strings.Contains(err.Error(), c.pool)):
			t.Errorf("%s: %s, %v", c.name, got, err)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func poolOf(text string) intent.SubnetPool {
	i := strings.LastIndex(text, "/")
	pool := intent.SubnetPool{Prefix: netip.MustParsePrefix(text[:i])}
	_, _ = fmt.Sscan(text[i+1:], &pool.Bits)
	return pool
}

// A subnet is in the pool and free whenever there is one, and all of a pool can be given in turn:
// as looking at each subnet finds.
func TestNextSubnetProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := intent.SubnetPool{Prefix: netip.MustParsePrefix("10.128.0.0/24"), Bits: rapid.IntRange(24, 29).Draw(t, "bits")}
		prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			at := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(127, 129).Draw(t, "b")), 0, rapid.Byte().Draw(t, "d")})
			return netip.PrefixFrom(at, rapid.IntRange(23, 32).Draw(t, "length"))
		})
		taken := rapid.SliceOfN(prefix, 0, 8).Draw(t, "taken")
		after := prefix.Draw(t, "after")
		free := map[netip.Prefix]bool{}
		for i := 0; i < 256; i += 1 << (32 - pool.Bits) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, 0, byte(i)}), pool.Bits)
			free[p] = true
			for _, other := range taken {
				if other.Overlaps(p) {
					delete(free, p)
				}
			}
		}
		for len(free) > 0 {
			got, err := NextSubnet(pool, taken, after)
			if err != nil || !free[got] {
				t.Fatalf("%s, %v: free are %v", got, err, free)
			}
			if len(free) > 1 && got == after {
				t.Fatalf("%s again, and %v are free", got, free)
			}
			delete(free, got)
			taken, after = append(taken, got), got
		}
		if got, err := NextSubnet(pool, taken, after); err == nil {
			t.Fatalf("%s: nothing is free", got)
		}
	})
}
