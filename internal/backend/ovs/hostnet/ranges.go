// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"go4.org/netipx"
)

// ranges turns the prefixes of one family into sorted ranges that neither overlap nor touch: the
// kernel's interval sets refuse overlaps, and equal content must compare equal.
func ranges(prefixes []netip.Prefix, family func(netip.Addr) bool) []netipx.IPRange {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		if family(p.Addr()) {
			b.AddPrefix(p)
		}
	}
	return rangesIn(&b)
}

// rangesIn is what a builder holds. Its error is about prefixes that are not
// valid: they hold nothing.
func rangesIn(b *netipx.IPSetBuilder) []netipx.IPRange {
	set, _ := b.IPSet()
	return set.Ranges()
}

// elements writes ranges as the kernel's interval sets want them: a start, and the first address
// behind the end, which a range up to the family's last address does not have.
func elements(rs []netipx.IPRange) []nftables.SetElement {
	var es []nftables.SetElement
	for _, r := range rs {
		es = append(es, nftables.SetElement{Key: r.From().AsSlice()})
		if after := r.To().Next(); after.IsValid() {
			es = append(es, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return es
}

// rangesOf reads what elements wrote, in the kernel's order.
func rangesOf(es []nftables.SetElement) []netipx.IPRange {
	slices.SortFunc(es, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	var rs []netipx.IPRange
	open := false
	for _, e := range es {
		a, ok := netip.AddrFromSlice(e.Key)
		switch {
		case !ok:
			return nil
		case !e.IntervalEnd:
			rs = append(rs, netipx.IPRangeFrom(a, netipx.PrefixLastIP(netip.PrefixFrom(a, 0))))
			open = true
		case open:
			rs[len(rs)-1] = netipx.IPRangeFrom(rs[len(rs)-1].From(), a.Prev())
			open = false
		}
	}
	return rs
}
