// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/translate/translatetest"
)

var both, onlyIPv4, onlyIPv6 = [families]bool{true, true}, [families]bool{true, false}, [families]bool{false, true}

// rangeVectors say what a list of ranges comes to, and of each source whether it may.
var rangeVectors = []struct {
	name     string
	of       [families]bool
	texts    string // separated by |
	want     string // separated by blanks
	may, not string
	problems string
}{
	{name: "nothing", of: both, may: "192.0.2.1 2001:db8::1"},
	{name: "blanks", of: both, texts: "| \t|", may: "192.0.2.1 2001:db8::1"},
	{
		name: "blanks around", of: onlyIPv4, texts: " 10.0.0.0/8|192.0.2.0/24\t", want: "10.0.0.0/8 192.0.2.0/24",
		may: "10.0.0.0 10.255.255.255 192.0.2.128", not: "9.255.255.255 11.0.0.0 192.0.3.0",
	},
	{name: "one address", of: onlyIPv4, texts: "192.0.2.7/32", want: "192.0.2.7/32", may: "192.0.2.7", not: "192.0.2.6 192.0.2.8"},
	{name: "bits of the host", of: both, texts: "10.1.2.3/8|2001:db8::7/32", want: "10.0.0.0/8 2001:db8::/32", may: "10.9.9.9 2001:db8:ffff::", not: "11.0.0.1 2001:db9::"},
	{name: "zeros in front", of: onlyIPv4, texts: "010.001.000.000/16", want: "10.1.0.0/16", may: "10.1.255.255", not: "10.2.0.0"},
	{name: "zeros in front of the length", of: both, texts: "10.0.0.0/08|2001:db8::/032|::/128", want: "10.0.0.0/8 ::/128 2001:db8::/32", may: "10.1.1.1"},
	{name: "one within another", of: onlyIPv4, texts: "10.1.0.0/16|10.0.0.0/8|10.0.0.0/9|10.0.0.0/8", want: "10.0.0.0/8", may: "10.1.2.3"},
	{name: "side by side", of: onlyIPv4, texts: "10.1.0.0/16|10.0.0.0/16", want: "10.0.0.0/16 10.1.0.0/16", may: "10.0.255.255 10.1.0.0", not: "10.2.0.0"},
	{name: "all of IPv4", of: onlyIPv4, texts: "10.0.0.0/8|0.0.0.0/0", may: "192.0.2.1"},
	{name: "all of both", of: both, texts: "0.0.0.0/0|::/0", may: "192.0.2.1 2001:db8::1"},
	{name: "all of one and some of the other", of: both, texts: "0.0.0.0/0|2001:db8::/32", want: "0.0.0.0/0 2001:db8::/32", may: "192.0.2.1 2001:db8::1", not: "2001:db9::1"},
	{name: "the other family is open", of: both, texts: "10.0.0.0/8", want: "10.0.0.0/8 ::/0", may: "10.0.0.1 2001:db8::1", not: "192.0.2.1"},
	{name: "the other family is open, the other way round", of: both, texts: "2001:db8::/32", want: "0.0.0.0/0 2001:db8::/32", may: "192.0.2.1", not: "2001:db9::1"},
	{name: "a family that the Service is not", of: onlyIPv4, texts: "2001:db8::/32", may: "192.0.2.1"},
	{name: "families apart", of: onlyIPv6, texts: "10.0.0.0/8|2001:db8::/32", want: "2001:db8::/32", may: "2001:db8::1", not: "::1"},
	{
		name: "none that can be read", of: both, texts: "10.0.0.0|everybody", want: "0.0.0.0/32 ::/128", not: "10.0.0.0 192.0.2.1 2001:db8::1",
		problems: "01",
	},
	{
		name: "one that cannot be read closes the family that it may mean", of: both, texts: "10.0.0.0/8|2001:db8::/129", want: "10.0.0.0/8 ::/128",
		may: "10.0.0.1", not: "192.0.2.1 2001:db8::1", problems: "1",
	},
	{name: "mapped", of: onlyIPv4, texts: "::ffff:10.0.0.0/104", want: "0.0.0.0/32", not: "10.0.0.1", problems: "0"},
	{name: "a zone", of: onlyIPv6, texts: "fe80::%eth0/64", want: "::/128", not: "fe80::1", problems: "0"},
	{name: "not quite", of: onlyIPv4, texts: "10.0.0.0/33|10.0.0.0/-1|10.0.0.0/|/8|10.0.0/8|10.0.0.0.0/8", want: "0.0.0.0/32", not: "10.0.0.1", problems: "012345"},
}

func TestSourceRanges(t *testing.T) {
	for _, c := range rangeVectors {
		t.Run(c.name, func(t *testing.T) {
			var problems, got []string
			ranges := sourceRanges(strings.Split(c.texts, "|"), c.of, func(i int, _ error) { problems = append(problems, fmt.Sprint(i)) })
			for _, p := range ranges {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.problems, strings.Join(problems, "")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			for text, want := range map[string]bool{c.may: true, c.not: false} {
				for _, ip := range strings.Fields(text) {
					if got := mayUse(ranges, netip.MustParseAddr(ip)); got != want {
						t.Errorf("%s may: %v", ip, got)
					}
				}
			}
		})
	}
}

// mayUse is what an empty list and one with prefixes mean.
func mayUse(ranges []netip.Prefix, source netip.Addr) bool {
	return len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(source) })
}

// The result allows exactly the sources that the prefixes as written allow.
func TestSourceRangesAgainstTheirTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := rapid.SliceOfN(translatetest.Prefixes, 1, 6).Draw(t, "written")
		texts := make([]string, len(written))
		for i, p := range written {
			texts[i] = p.String()
		}
		got := sourceRanges(texts, both, func(i int, err error) { t.Fatalf("%s: %v", texts[i], err) })
		for _, p := range written {
			for _, source := range []netip.Addr{p.Addr(), p.Addr().Prev(), lastOf(p), lastOf(p).Next()} {
				if !source.IsValid() {
					continue
				}
				is := func(p netip.Prefix) bool { return p.Addr().Is4() == source.Is4() }
				want := !slices.ContainsFunc(written, is) || slices.ContainsFunc(written, func(p netip.Prefix) bool { return p.Contains(source) })
				if mayUse(got, source) != want {
					t.Fatalf("%v let %s in: %v, and %v does not", written, source, want, got)
				}
			}
		}
	})
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

func TestServiceAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "010.000.0.01": "10.0.0.1", "2001:DB8::1": "2001:db8::1", "2001:0db8:0::01": "2001:db8::1", "240.0.0.1": "240.0.0.1",
		"0.0.0.00": "", "10..0.1": "", "10.0.0.256": "", "10.0.0.1 ": "", "0x0a.0.0.1": "", "1": "", "": "", "::ffff:10.0.0.1": "",
		"fe80::1": "", "fe80::1%1": "", "fd00::1%1": "", "127.1.2.3": "", "::1": "", "::": "", "239.1.1.1": "", "ff0e::1": "", "169.254.64.2": "",
		"fd69:c0e1::1": "", "fd69:c0e1::2": "", "fd69:c0e1::3": "fd69:c0e1::3",
	} {
		ip, err := serviceAddress(text)
		if (err == nil) != (want != "") || err == nil && ip.String() != want {
			t.Errorf("serviceAddress(%q) = %v, %v; want %q", text, ip, err, want)
		}
	}
}
