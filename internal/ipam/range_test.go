// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func prefixes(cidrs ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, c := range cidrs {
		list = append(list, netip.MustParsePrefix(c))
	}
	return list
}

func TestParse(t *testing.T) {
	type bounds struct{ Gateway, First, Last string }
	for _, tt := range []struct {
		name  string
		cidrs []netip.Prefix
		want  []bounds
		err   string
	}{
		{"dual", prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), []bounds{
			{"10.244.1.1", "10.244.1.2", "10.244.1.254"},
			{"fd00:10:244:1::1", "fd00:10:244:1::2", "fd00:10:244:1:ffff:ffff:ffff:ffff"},
		}, ""},
		{"IPv6 first", prefixes("fd00::/112", "10.0.0.0/25"), []bounds{
			{"fd00::1", "fd00::2", "fd00::ffff"}, {"10.0.0.1", "10.0.0.2", "10.0.0.126"},
		}, ""},
		{"smallest", prefixes("10.0.0.4/30", "fd00::4/126"), []bounds{
			{"10.0.0.5", "10.0.0.6", "10.0.0.6"}, {"fd00::5", "fd00::6", "fd00::7"},
		}, ""},
		{"not on a byte", prefixes("10.0.4.0/22"), []bounds{{"10.0.4.1", "10.0.4.2", "10.0.7.254"}}, ""},
		{"whole families", prefixes("0.0.0.0/0", "::/0"), []bounds{
			{"0.0.0.1", "0.0.0.2", "255.255.255.254"},
			{"::1", "::2", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		}, ""},
		{"none", nil, nil, ErrNoCIDR.Error()},
		{"too small", prefixes("10.0.0.0/31"), nil, "podCIDR 10.0.0.0/31: too small: no address is left beside the gateway"},
		{"one address", prefixes("fd00::1/128"), nil, "podCIDR fd00::1/128: too small: no address is left beside the gateway"},
		{"host bits", prefixes("10.0.0.1/24"), nil, "podCIDR 10.0.0.1/24: has host bits set, want 10.0.0.0/24"},
		{"mapped", prefixes("::ffff:10.0.0.0/120"), nil, "podCIDR ::ffff:10.0.0.0/120: an IPv4-mapped IPv6 prefix"},
		{"invalid", []netip.Prefix{{}}, nil, "podCIDR invalid Prefix: not a prefix"},
		{"same family", prefixes("10.0.0.0/24", "10.0.1.0/24"), nil,
			"podCIDR 10.0.1.0/24: of the same family as 10.0.0.0/24, want at most one of each family"},
		{"three", prefixes("10.0.0.0/24", "fd00::/64", "fd01::/64"), nil,
			"podCIDR fd01::/64: of the same family as fd00::/64, want at most one of each family"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ranges, err := Parse(tt.cidrs)
			var got []bounds
			for _, r := range ranges {
				got = append(got, bounds{r.Gateway().String(), r.spans[0].From().String(), r.spans[0].To().String()})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if message(err) != tt.err {
				t.Errorf("error %q, want %q", message(err), tt.err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// genRange draws a range of 1 to 254 addresses of either family.
func genRange(t *rapid.T) Range {
	bits := rapid.IntRange(2, 8).Draw(t, "host bits")
	base := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "base")
	addr := netip.AddrFrom16([16]byte(base))
	if rapid.Bool().Draw(t, "IPv4") {
		addr = netip.AddrFrom4([4]byte(base[:4]))
	}
	if addr.Is4In6() {
		addr = netip.MustParseAddr("fd00::1234")
	}
	r, err := New(netip.PrefixFrom(addr, addr.BitLen()-bits).Masked())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Any sequence of hand outs and releases against a plain list: none of what is
// reserved, the next free one going round, and an error only when all are taken.
func TestNextAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRange(t)
		var all []netip.Addr
		for a := r.Prefix().Addr(); r.Prefix().Contains(a); a = a.Next() {
			all = append(all, a)
		}
		all = all[2:] // network or anycast address, gateway
		if all[0].Is4() {
			all = all[:len(all)-1] // broadcast
		}
		taken := map[netip.Addr]bool{}
		at := len(all) - 1 // of the last one handed out
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				got, err := r.Next(all[at], func(a netip.Addr) bool { return taken[a] })
				if len(taken) == len(all) {
					var exhausted *ExhaustedError
					if !errors.As(err, &exhausted) || exhausted.CIDRs[0] != r.Prefix() {
						t.Fatalf("all are taken: %v, %v", got, err)
					}
					return
				}
				for at = (at + 1) % len(all); taken[all[at]]; {
					at = (at + 1) % len(all)
				}
				if err != nil || got != all[at] {
					t.Fatalf("got %v, %v, want %v", got, err, all[at])
				}
				taken[got] = true
			},
			"release": func(t *rapid.T) {
				delete(taken, rapid.SampledFrom(all).Draw(t, "address"))
			},
		})
	})
}

func TestNextStartsAtTheFirst(t *testing.T) {
	r, err := New(netip.MustParsePrefix("10.0.0.0/29"))
	if err != nil {
		t.Fatal(err)
	}
	none := func(netip.Addr) bool { return false }
	for _, after := range []string{"", "10.0.0.0", "10.0.0.1", "10.0.0.6", "10.0.0.7", "10.9.9.9", "fd00::3"} {
		var last netip.Addr
		if after != "" {
			last = netip.MustParseAddr(after)
		}
		if got, err := r.Next(last, none); err != nil || got.String() != "10.0.0.2" {
			t.Errorf("after %q: %v, %v, want 10.0.0.2", after, got, err)
		}
	}
}
