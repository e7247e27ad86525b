// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/internal/ipam"
)

// spec is how the blocks of a subnet are.
type spec struct {
	ipam.Pool
	// parts are the prefixes that new blocks are in; none: anywhere.
	parts []netip.Prefix
}

// of takes new blocks from those prefixes that are of the subnet's family; from anywhere if none
// is.
func (s spec) of(parts []netip.Prefix) spec {
	for _, p := range parts {
		if p.Addr().Is4() == s.Subnet.Addr().Is4() {
			s.parts = append(s.parts, p)
		}
	}
	return s
}

// allowed says whether a block is in one of the parts.
func (s spec) allowed(block netip.Prefix) bool {
	return len(s.parts) == 0 || slices.ContainsFunc(s.parts, func(p netip.Prefix) bool {
		return p.Bits() <= block.Bits() && p.Contains(block.Addr())
	})
}

// maxIndex bounds the numbers of blocks, so that sums of them do not overflow. No Network
// has as many nodes.
const maxIndex = 1 << 60

// segment is a run of blocks by number.
type segment struct{ first, last uint64 }

// candidates yields the prefixes of the blocks that hold something to hand out, beginning somewhere
// that depends on the seed, and going round once. Nodes that begin at different places seldom meet.
func (s spec) candidates(seed string) iter.Seq[netip.Prefix] {
	segments := s.segments()
	var total uint64
	for _, g := range segments {
		total += g.last - g.first + 1
	}
	return func(yield func(netip.Prefix) bool) {
		if total == 0 {
			return
		}
		h := fnv.New64a()
		h.Write([]byte(seed))
		start := h.Sum64() % total
		for i := range total {
			p := s.at(segments, (start+i)%total)
			if r, err := s.Block(p); err != nil || r.Size() == 0 || !s.allowed(p) {
				continue
			}
			if !yield(p) {
				return
			}
		}
	}
}

// segments are the runs of blocks that ranges touch; disjoint, in order.
func (s spec) segments() []segment {
	only := s.Only
	if len(only) == 0 {
		only = []netipx.IPRange{netipx.RangeOfPrefix(s.Subnet)}
	}
	if len(s.parts) > 0 {
		only = common(only, s.parts)
	}
	all := netipx.RangeOfPrefix(s.Subnet)
	var list []segment
	for _, o := range only {
		from, to := o.From(), o.To()
		if !all.Contains(from) && !all.Contains(to) {
			continue
		}
		if !all.Contains(from) {
			from = all.From()
		}
		if !all.Contains(to) {
			to = all.To()
		}
		list = append(list, segment{s.index(from), s.index(to)})
	}
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	var merged []segment
	for _, g := range list {
		if n := len(merged); n > 0 && g.first <= merged[n-1].last {
			merged[n-1].last = max(merged[n-1].last, g.last)
			continue
		}
		merged = append(merged, g)
	}
	return merged
}

// common are the parts of ranges that are in one of some prefixes.
func common(ranges []netipx.IPRange, prefixes []netip.Prefix) []netipx.IPRange {
	var list []netipx.IPRange
	for _, r := range ranges {
		for _, p := range prefixes {
			q := netipx.RangeOfPrefix(p)
			from, to := r.From(), r.To()
			if from.Less(q.From()) {
				from = q.From()
			}
			if q.To().Less(to) {
				to = q.To()
			}
			if both := netipx.IPRangeFrom(from, to); both.IsValid() {
				list = append(list, both)
			}
		}
	}
	return list
}

// at is the block of a number that counts through the segments.
func (s spec) at(segments []segment, number uint64) netip.Prefix {
	for _, g := range segments {
		if n := g.last - g.first + 1; number >= n {
			number -= n
			continue
		}
		return netip.PrefixFrom(s.offset(g.first+number), s.BlockBits)
	}
	return netip.Prefix{} // not reached: number is below the sum
}

// index is the number of the block that an address of the subnet is in.
func (s spec) index(a netip.Addr) uint64 {
	high, low := halves(a)
	baseHigh, baseLow := halves(s.Subnet.Addr())
	low, borrow := bits.Sub64(low, baseLow, 0)
	high, _ = bits.Sub64(high, baseHigh, borrow)
	switch shift := a.BitLen() - s.BlockBits; {
	case shift >= 64:
		low, high = high>>(shift-64), 0
	case shift > 0:
		low, high = low>>shift|high<<(64-shift), high>>shift
	}
	if high > 0 {
		return maxIndex - 1
	}
	return min(low, maxIndex-1)
}

// offset is the first address of the block of a number.
func (s spec) offset(number uint64) netip.Addr {
	addHigh, addLow := uint64(0), number
	switch shift := s.Subnet.Addr().BitLen() - s.BlockBits; {
	case shift >= 64:
		addHigh, addLow = number<<(shift-64), 0
	case shift > 0:
		addHigh, addLow = number>>(64-shift), number<<shift
	}
	high, low := halves(s.Subnet.Addr())
	low, carry := bits.Add64(low, addLow, 0)
	high, _ = bits.Add64(high, addHigh, carry)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	if s.Subnet.Addr().Is4() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// halves is an address as a number of 128 bits.
func halves(a netip.Addr) (high, low uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}
