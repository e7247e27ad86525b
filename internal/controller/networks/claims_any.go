// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// any is the address of the pools that the claimant has, or a new one: of the first pool that has
// one left.
func (c claims) any(ctx context.Context, by claimant, b *blocksOf, pools []translate.Pool,
	others []*v1alpha1.Port,
) (netip.Addr, *outcome, error) {
	if a, has := b.before(by, pools); has {
		refusal, err := c.keep(ctx, by, b, a, others)
		if err != nil || refusal == nil || refusal.state == waiting {
			return a, refusal, err
		}
	}
	var full []string
	for _, p := range pools {
		a, left, err := c.next(ctx, by, b, p)
		if err != nil || left {
			return a, nil, err
		}
		full = append(full, p.Prefix.String())
	}
	return netip.Addr{}, refusal(v1alpha1.ReasonExhausted,
		"all addresses of %s are taken or in blocks of nodes", strings.Join(full, " and ")), nil
}

// before is the address of the pools that the claimant has: the one in its status if its claim is
// there, or is not known here, else the one that was claimed first. A new leader may claim another
// one before it knows of that.
func (b *blocksOf) before(by claimant, pools []translate.Pool) (found netip.Addr, has bool) {
	if by.had.IsValid() && b.claimOf(by.had) == nil && handsOut(pools, by.had) {
		return by.had, true
	}
	var first *v1alpha1.AddressBlock
	for _, o := range b.list {
		a, single := address(o)
		if !single || !by.claimed(o) || !slices.ContainsFunc(pools, func(p translate.Pool) bool {
			return p.Prefix.Contains(a)
		}) {
			continue
		}
		if a == by.had {
			return a, true
		}
		if first == nil || translate.Older(o, first) < 0 {
			first, found, has = o, a, true
		}
	}
	return found, has
}

// claimOf is the block of one address, nil if there is none.
func (b *blocksOf) claimOf(a netip.Addr) *v1alpha1.AddressBlock {
	return b.byName[names.BlockName(b.network.Name, netip.PrefixFrom(a, a.BitLen()))]
}

// handsOut says whether an address is one that pools hand out.
func handsOut(pools []translate.Pool, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p translate.Pool) bool {
		r, err := p.Whole().Range()
		return err == nil && r.Contains(a)
	})
}

// keep is fixed for an address that the claimant had without asking for it.
func (c claims) keep(ctx context.Context, by claimant, b *blocksOf, a netip.Addr,
	others []*v1alpha1.Port,
) (*outcome, error) {
	if covering := b.covering(a); b.claimOf(a) != nil && (covering == nil || covering.Spec.Node == "") {
		return nil, nil
	}
	return c.fixed(ctx, by, b, []netip.Addr{a}, others)
}

// next claims an address of the pool from a block of the controller's, or from a new block; false
// if none is left.
func (c claims) next(ctx context.Context, by claimant, b *blocksOf, pool translate.Pool) (netip.Addr, bool, error) {
	for {
		ranges := b.own(pool)
		for {
			a, _, err := ipam.Next(ranges, netip.Addr{}, func(a netip.Addr) bool {
				return b.claimOf(a) != nil
			})
			if err != nil {
				break // all taken
			}
			// The winner is known now, and the next try takes the next address.
			_, owner, err := c.claim(ctx, by, b, a)
			if err != nil || owner == "" {
				return a, true, err
			}
		}
		prefix, left := pool.LastFree(func(p netip.Prefix) bool {
			return b.byName[names.BlockName(b.network.Name, p)] != nil
		})
		if !left {
			return netip.Addr{}, false, nil
		}
		if _, err := c.create(ctx, b, prefix, v1alpha1.AddressBlockSpec{}); err != nil {
			return netip.Addr{}, false, err
		}
	}
}

// own are the ranges of the controller's blocks of a pool.
func (b *blocksOf) own(pool translate.Pool) []ipam.Range {
	var ranges []ipam.Range
	for _, o := range b.list {
		prefix, err := netip.ParsePrefix(o.Spec.CIDR)
		if err != nil || !ofController(o) || !pool.Prefix.Contains(prefix.Addr()) {
			continue
		}
		if r, err := pool.Block(prefix).Range(); err == nil {
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(x, y ipam.Range) int { return x.Prefix().Addr().Compare(y.Prefix().Addr()) })
	return ranges
}
