// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/internal/intent"
)

// Pool is a subnet of a Network that nodes hand out in blocks.
type Pool struct {
	Subnet    netip.Prefix // masked
	Gateway   netip.Addr   // of the subnet; not valid: it has none
	BlockBits int          // the prefix length of its blocks
	// Only are the addresses that are handed out; empty: all. Except are not.
	Only, Except []netipx.IPRange
}

// Pools are those of a Network that pods get addresses from: its first subnet of each family.
func Pools(n intent.Network) []Pool {
	var list []Pool
	for i, p := range n.Pools {
		same := func(other Pool) bool { return other.Subnet.Addr().Is4() == p.Subnet.Addr().Is4() }
		if !slices.ContainsFunc(list, same) {
			list = append(list, Pool{
				Subnet: p.Subnet, Gateway: n.Subnets[i].Gateway, BlockBits: p.BlockBits,
				Only: spans(p.Only), Except: spans(p.Except),
			})
		}
	}
	return list
}

func spans(ranges []intent.AddressRange) []netipx.IPRange {
	list := make([]netipx.IPRange, len(ranges))
	for i, r := range ranges {
		list[i] = netipx.IPRangeFrom(r.First, r.Last)
	}
	return list
}

// Block is what one of its blocks hands out, as Block.Range.
func (p Pool) Block(prefix netip.Prefix) (Range, error) {
	return Block{Prefix: prefix, Subnet: p.Subnet, Gateway: p.Gateway, Only: p.Only, Except: p.Except}.Range()
}
