// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ipam"
)

// Pool is a subnet of a Network as needed for address allocation.
type Pool struct {
	Prefix  netip.Prefix // masked
	Gateway netip.Addr
	// Only are the addresses that are handed out; empty: all. Except are not.
	Only, Except []netipx.IPRange
	// BlockBits is the length of the blocks that the subnet is handed out in.
	BlockBits int
}

// Pools reads the subnets of a Network, in order; none if its addresses are of the nodes'
// podCIDRs. An error names the field. The API server refuses all that is an error here if
// its definitions are Coelan's.
func Pools(n *v1alpha1.Network) ([]Pool, error) {
	var pools []Pool
	for i, s := range n.Spec.Subnets {
		p, err := pool(s)
		if err != nil {
			return nil, fmt.Errorf("spec.subnets[%d].%w", i, err)
		}
		for _, other := range pools {
			if other.Prefix.Overlaps(p.Prefix) {
				return nil, fmt.Errorf("spec.subnets[%d].cidr: %s overlaps %s of the same Network", i, p.Prefix,
					other.Prefix)
			}
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// minHostBits of a subnet are in node.go: room for its own number, the gateway and an interface.
func pool(s v1alpha1.Subnet) (Pool, error) {
	prefix, err := netip.ParsePrefix(s.CIDR)
	switch {
	case err != nil || prefix.Addr().Is4In6() || prefix != prefix.Masked():
		return Pool{}, fmt.Errorf("cidr: %q is not a CIDR without bits set after its length", s.CIDR)
	case !prefix.Addr().IsGlobalUnicast():
		return Pool{}, fmt.Errorf("cidr: %s is not a range of unicast addresses", prefix)
	case prefix.Addr().BitLen()-prefix.Bits() < minHostBits:
		return Pool{}, fmt.Errorf("cidr: %s is too small: a /%d is the smallest that has room for a gateway and an interface",
			prefix, prefix.Addr().BitLen()-minHostBits)
	}
	p := Pool{Prefix: prefix, Gateway: prefix.Addr().Next(), BlockBits: blockBits(prefix)}
	if s.Gateway != "" {
		p.Gateway, err = netip.ParseAddr(s.Gateway)
		if err != nil || !prefix.Contains(p.Gateway) || p.Gateway == prefix.Addr() {
			return Pool{}, fmt.Errorf("gateway: %q is not an address of an interface in %s", s.Gateway, prefix)
		}
	}
	if bits := int(s.BlockPrefixLength); bits != 0 {
		if bits < prefix.Bits() || bits > prefix.Addr().BitLen()-minHostBits {
			return Pool{}, fmt.Errorf("blockPrefixLength: %d is not between %d and %d", bits, prefix.Bits(),
				prefix.Addr().BitLen()-minHostBits)
		}
		p.BlockBits = bits
	}
	if p.Only, err = intervals("ranges", prefix, rangeTexts(s.Ranges)); err != nil {
		return Pool{}, err
	}
	p.Except, err = intervals("exclusions", prefix, s.Exclusions)
	return p, err
}

// blockBits is four bits more than the subnet has, and between /26 and /30, or /122 and /126.
func blockBits(subnet netip.Prefix) int {
	size := subnet.Addr().BitLen()
	return max(subnet.Bits(), min(max(subnet.Bits()+4, size-6), size-2))
}

func rangeTexts(ranges []v1alpha1.AddressRange) []string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.From + "-" + r.To
	}
	return texts
}

func intervals(field string, subnet netip.Prefix, texts []string) ([]netipx.IPRange, error) {
	var list []netipx.IPRange
	for i, text := range texts {
		v, err := ipam.ParseRange(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		case !subnet.Contains(v.From()) || !subnet.Contains(v.To()):
			return nil, fmt.Errorf("%s[%d]: %s is not in %s", field, i, text, subnet)
		}
		list = append(list, v)
	}
	return list, nil
}

// Whole is all of the subnet as one block.
func (p Pool) Whole() ipam.Block { return p.Block(p.Prefix) }

// Block is a part of the subnet, to hand addresses out of.
func (p Pool) Block(prefix netip.Prefix) ipam.Block {
	return ipam.Block{Prefix: prefix, Subnet: p.Prefix, Gateway: p.Gateway, Only: p.Only, Except: p.Except}
}

// LastFree is the last block of the subnet that is not taken and has an address to hand out. Nodes
// start their search elsewhere, so that a search from the end collides with them last.
func (p Pool) LastFree(taken func(netip.Prefix) bool) (netip.Prefix, bool) {
	spans := slices.Clone(p.Only)
	if len(spans) == 0 {
		spans = []netipx.IPRange{netipx.RangeOfPrefix(p.Prefix)}
	}
	slices.SortFunc(spans, func(a, b netipx.IPRange) int { return b.To().Compare(a.To()) })
	for _, s := range spans {
		for at := s.To(); s.Contains(at); {
			block := netip.PrefixFrom(at, p.BlockBits).Masked()
			if size, err := p.Block(block).Range(); err == nil && size.Size() > 0 && !taken(block) {
				return block, true
			}
			at = p.before(block)
		}
	}
	return netip.Prefix{}, false
}

// before is the highest address below a block that no exclusion that reaches into the
// block covers as well.
func (p Pool) before(block netip.Prefix) netip.Addr {
	at := block.Addr().Prev()
	for again := true; again; {
		again = false
		for _, e := range p.Except {
			if e.Contains(at) {
				at, again = e.From().Prev(), true
			}
		}
	}
	return at
}
