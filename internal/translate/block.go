// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Blocks translates the blocks that nodes hand addresses out of, of the given Networks. A block of a single address is
// none: its Port is the route. Where blocks overlap, which their names do not let happen unless somebody makes them by
// hand, the older one counts.
func Blocks(objects []*v1alpha1.AddressBlock, networks []intent.Network) ([]intent.Block, []Problem) {
	byName := make(map[string]intent.Network, len(networks))
	for _, n := range networks {
		byName[n.Name] = n
	}
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *v1alpha1.AddressBlock) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken := map[string]*claims{} // by Network
	var blocks []intent.Block
	var problems []Problem
	for _, o := range objects {
		network, known := byName[o.Spec.Network]
		prefix, err := parsePrefix(o.Spec.CIDR)
		if o.Spec.Node == "" || !known || err == nil && prefix.IsSingleIP() {
			continue
		}
		p := Problem{Object: "addressblock " + o.Name, Field: "spec.cidr", Value: o.Spec.CIDR, Reason: Malformed}
		if err != nil || !inSubnet(network, prefix) {
			p.Text = fmt.Sprintf("is not a part of a subnet of network %s", network.Name)
			problems = append(problems, p)
			continue
		}
		c := taken[network.Name]
		if c == nil {
			c = &claims{}
			taken[network.Name] = c
		}
		at, other, found := overlapping(c.subnets, prefix)
		if found {
			p.Reason, p.Text = Overlap, fmt.Sprintf("overlaps %s, an older block of node %s", other.prefix, other.node)
			problems = append(problems, p)
			continue
		}
		c.subnets = slices.Insert(c.subnets, at, claim{prefix, o.Spec.Node})
		blocks = append(blocks, intent.Block{Network: network.Name, Prefix: prefix, Node: o.Spec.Node})
	}
	slices.SortFunc(blocks, func(a, b intent.Block) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	sortProblems(problems)
	return blocks, problems
}

func inSubnet(n intent.Network, p netip.Prefix) bool {
	return slices.ContainsFunc(n.Subnets, func(s intent.NetworkSubnet) bool {
		return s.Prefix.Bits() <= p.Bits() && s.Prefix.Contains(p.Addr())
	})
}
