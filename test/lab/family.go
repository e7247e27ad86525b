// SPDX-License-Identifier: Apache-2.0

package lab

import "net/netip"

// Family is a set of address families.
type Family int

// The families, and both.
const (
	IPv4 Family = 1 << iota
	IPv6
	Dual = IPv4 | IPv6
)

// FamilyOf is the family of one address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String is IPv4, IPv6 or Dual.
func (f Family) String() string {
	return map[Family]string{IPv4: "IPv4", IPv6: "IPv6", Dual: "Dual"}[f]
}

// Each yields the families of the set, IPv4 first.
func (f Family) Each(yield func(Family) bool) {
	for _, one := range []Family{IPv4, IPv6} {
		if f&one != 0 && !yield(one) {
			return
		}
	}
}

// pick keeps the prefixes of the families in the set.
func (f Family) pick(prefixes ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range prefixes {
		if p := netip.MustParsePrefix(s); f&FamilyOf(p.Addr()) != 0 {
			out = append(out, p)
		}
	}
	return out
}
