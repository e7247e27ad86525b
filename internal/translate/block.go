// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Blocks translates the blocks that nodes hand addresses out of, of the given Networks. Their
// objects are among specs. A block of a single address is none: its Port is the route. One of
// another length than its subnet's has no effect: a node could claim a whole subnet, and have the
// addresses of blocks that others claim later. Where blocks overlap, which their names prevent
// unless they are made by hand, the older one counts.
func Blocks(objects []*v1alpha1.AddressBlock, networks []intent.Network, specs []*v1alpha1.Network,
) ([]intent.Block, []Problem) {
	byName := make(map[string]intent.Network, len(networks))
	for _, n := range networks {
		byName[n.Name] = n
	}
	subnets := make(map[string][]v1alpha1.Subnet, len(specs))
	for _, n := range specs {
		subnets[n.Name] = n.Spec.Subnets
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
		if bits := blockBitsAt(subnets[network.Name], prefix.Addr()); prefix.Bits() != bits {
			p.Text = fmt.Sprintf("is not of the length of the subnet's blocks, which is %d", bits)
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

// blockBitsAt is the length of the blocks of the subnet that an address is in, 0 if there is none.
func blockBitsAt(subnets []v1alpha1.Subnet, a netip.Addr) int {
	for _, s := range subnets {
		if p, err := pool(s); err == nil && p.Prefix.Contains(a) {
			return p.BlockBits
		}
	}
	return 0
}

func inSubnet(n intent.Network, p netip.Prefix) bool {
	return slices.ContainsFunc(n.Subnets, func(s intent.NetworkSubnet) bool {
		return s.Prefix.Bits() <= p.Bits() && s.Prefix.Contains(p.Addr())
	})
}

// Older compares two objects by age, then by name.
func Older[T metav1.Object](a, b T) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()))
}
