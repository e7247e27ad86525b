// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// addressRange is a run of addresses, both ends included.
type addressRange struct{ first, last netip.Addr }

// ranges turns the prefixes of one family into sorted ranges that neither overlap nor touch: the kernel's interval sets
// refuse overlaps, and equal content must compare equal.
func ranges(prefixes []netip.Prefix, family func(netip.Addr) bool) []addressRange {
	var all []addressRange
	for _, p := range prefixes {
		if family(p.Addr()) {
			all = append(all, addressRange{p.Masked().Addr(), lastOf(p)})
		}
	}
	slices.SortFunc(all, func(a, b addressRange) int { return a.first.Compare(b.first) })
	var merged []addressRange
	for _, r := range all {
		if n := len(merged); n > 0 && merged[n-1].reaches(r) {
			if r.last.Compare(merged[n-1].last) > 0 {
				merged[n-1].last = r.last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// reaches says that next starts inside of r or right behind it.
func (r addressRange) reaches(next addressRange) bool {
	after := r.last.Next()
	return !after.IsValid() || next.first.Compare(after) <= 0
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (r addressRange) has(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

// prefixes are the fewest that hold r and nothing else.
func (r addressRange) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for first := r.first; ; {
		bits := first.BitLen()
		for bits > 0 {
			p, _ := first.Prefix(bits - 1)
			if p.Addr() != first || lastOf(p).Compare(r.last) > 0 {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(first, bits)
		all = append(all, p)
		if first = lastOf(p).Next(); !first.IsValid() || first.Compare(r.last) > 0 {
			return all
		}
	}
}

// elements writes ranges as the kernel's interval sets want them: a start, and the first address behind the end, which
// a range up to the family's last address does not have.
func elements(rs []addressRange) []nftables.SetElement {
	var es []nftables.SetElement
	for _, r := range rs {
		es = append(es, nftables.SetElement{Key: r.first.AsSlice()})
		if after := r.last.Next(); after.IsValid() {
			es = append(es, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return es
}

// rangesOf reads what elements wrote, in the kernel's order.
func rangesOf(es []nftables.SetElement) []addressRange {
	slices.SortFunc(es, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	var rs []addressRange
	open := false
	for _, e := range es {
		a, ok := netip.AddrFromSlice(e.Key)
		switch {
		case !ok:
			return nil
		case !e.IntervalEnd:
			rs = append(rs, addressRange{a, lastOf(netip.PrefixFrom(a, 0))})
			open = true
		case open:
			rs[len(rs)-1].last = a.Prev()
			open = false
		}
	}
	return rs
}
