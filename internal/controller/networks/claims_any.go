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
	list, refusal, err := c.several(ctx, by, b, pools, others, 1)
	if len(list) == 0 {
		return netip.Addr{}, refusal, err
	}
	return list[0], refusal, err
}

// several are so many addresses of the pools that the claimant has, and new ones if it has less, of
// the first pools that have some left. With a refusal they are those that it has already, the last
// of which may be waiting for a node.
func (c claims) several(ctx context.Context, by claimant, b *blocksOf, pools []translate.Pool,
	others []*v1alpha1.Port, count int,
) (list []netip.Addr, _ *outcome, _ error) {
	for _, a := range b.before(by, pools) {
		if len(list) == count {
			return list, nil, nil
		}
		refusal, err := c.keep(ctx, by, b, a, others)
		switch {
		case err != nil:
			return list, nil, err
		case refusal == nil:
			list = append(list, a)
		case refusal.state == waiting:
			return append(list, a), refusal, nil
		}
	}
	var full []string
	for _, p := range pools {
		for len(list) < count {
			a, left, err := c.next(ctx, by, b, p)
			if err != nil {
				return list, nil, err
			}
			if !left {
				break
			}
			list = append(list, a)
		}
		full = append(full, p.Prefix.String())
	}
	if len(list) == count {
		return list, nil, nil
	}
	return list, refusal(v1alpha1.ReasonExhausted,
		"all addresses of %s are taken or in blocks of nodes", strings.Join(full, " and ")), nil
}

// before are the addresses of the pools that the claimant has: first those in its status, with a
// claim that is there or is not known here, then those that were claimed first. A new leader may
// claim others before it knows of these.
func (b *blocksOf) before(by claimant, pools []translate.Pool) (found []netip.Addr) {
	for _, a := range by.had {
		claim := b.claimOf(a)
		if claim == nil && handsOut(pools, a) || claim != nil && by.claimed(claim) && inPools(pools, a) {
			found = append(found, a)
		}
	}
	var own []*v1alpha1.AddressBlock
	for _, o := range b.list {
		a, single := address(o)
		if single && by.claimed(o) && inPools(pools, a) && !slices.Contains(found, a) {
			own = append(own, o)
		}
	}
	slices.SortFunc(own, translate.Older)
	for _, o := range own {
		a, _ := address(o)
		found = append(found, a)
	}
	return found
}

func inPools(pools []translate.Pool, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p translate.Pool) bool { return p.Prefix.Contains(a) })
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
