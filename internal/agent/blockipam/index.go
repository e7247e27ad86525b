// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"net/netip"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/sortedmap"
)

// index is what this node needs of all AddressBlocks. It follows them at the cost of what changes.
type index struct {
	seen apicache.Objects[v1alpha1.AddressBlock]
	// blocks are those of several addresses, by Network and name, and own those of them that are
	// this node's.
	blocks, own map[string]map[string]*v1alpha1.AddressBlock
	// oddNames are single addresses that have another name than names.BlockName gives, by name.
	oddNames map[string]*v1alpha1.AddressBlock
	// unsettled are single addresses, by name, that honor has to look at.
	unsettled map[string]*v1alpha1.AddressBlock
}

func newIndex() *index {
	return &index{
		blocks: map[string]map[string]*v1alpha1.AddressBlock{}, own: map[string]map[string]*v1alpha1.AddressBlock{},
		oddNames: map[string]*v1alpha1.AddressBlock{}, unsettled: map[string]*v1alpha1.AddressBlock{},
	}
}

// follow brings the index to all blocks.
func (x *index) follow(all apicache.Objects[v1alpha1.AddressBlock], node string) {
	gained := map[string]bool{} // Networks of which this node has other blocks
	sortedmap.Diff(x.seen, all, func(name string, old, now *v1alpha1.AddressBlock) {
		if old != nil {
			x.remove(name, old)
		}
		if now != nil && x.add(name, now, node) {
			gained[now.Spec.Network] = true
		}
	})
	x.seen = all
	if len(gained) == 0 {
		return
	}
	// Rare: a node seldom claims a block.
	for name, o := range all.All() {
		if _, single := singleAddress(o); single && gained[o.Spec.Network] {
			x.unsettled[name] = o
		}
	}
}

func (x *index) remove(name string, o *v1alpha1.AddressBlock) {
	for _, by := range []map[string]map[string]*v1alpha1.AddressBlock{x.blocks, x.own} {
		delete(by[o.Spec.Network], name)
		if len(by[o.Spec.Network]) == 0 {
			delete(by, o.Spec.Network)
		}
	}
	delete(x.oddNames, name)
	delete(x.unsettled, name)
}

// add adds a block, and says whether it is one of several addresses of this node.
func (x *index) add(name string, o *v1alpha1.AddressBlock, node string) (own bool) {
	p, err := netip.ParsePrefix(o.Spec.CIDR)
	if err != nil {
		return false
	}
	if p.IsSingleIP() {
		x.unsettled[name] = o
		if name != names.BlockName(o.Spec.Network, p) {
			x.oddNames[name] = o
		}
		return false
	}
	put(x.blocks, name, o)
	if own = o.Spec.Node == node; own {
		put(x.own, name, o)
	}
	return own
}

func put(by map[string]map[string]*v1alpha1.AddressBlock, name string, o *v1alpha1.AddressBlock) {
	if by[o.Spec.Network] == nil {
		by[o.Spec.Network] = map[string]*v1alpha1.AddressBlock{}
	}
	by[o.Spec.Network][name] = o
}

// prefixes are this node's blocks of several addresses, by Network.
func (x *index) prefixes() map[string][]netip.Prefix {
	own := make(map[string][]netip.Prefix, len(x.own))
	for network, blocks := range x.own {
		for _, o := range blocks {
			if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil {
				own[network] = append(own[network], p)
			}
		}
	}
	return own
}

// claims reports whether there is a block of the single address for the Port.
func (x *index) claims(h hold) bool {
	is := func(o *v1alpha1.AddressBlock) bool {
		a, single := singleAddress(o)
		return single && hold{o.Spec.Network, a, o.Spec.Port} == h
	}
	if o := x.seen.Get(names.BlockName(h.network, netip.PrefixFrom(h.addr, h.addr.BitLen()))); o != nil && is(o) {
		return true
	}
	for _, o := range x.oddNames {
		if is(o) {
			return true
		}
	}
	return false
}

// singleAddress is the address of a block that has one only.
func singleAddress(o *v1alpha1.AddressBlock) (netip.Addr, bool) {
	p, err := netip.ParsePrefix(o.Spec.CIDR)
	return p.Addr(), err == nil && p.IsSingleIP()
}
