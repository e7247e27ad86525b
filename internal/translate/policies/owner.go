// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// addressOwners says which addresses a node may give to its pods: those of its podCIDRs, and those
// of its AddressBlocks. What a node says of its pods' addresses counts only as far as this goes, so
// that a node cannot give its pods' identity to an address elsewhere. An AddressBlock counts under
// the name only that follows from its prefix, so that there is one for each, and a claim of a
// single address as it does for forwarding: see ClaimStands.
type addressOwners struct {
	ranges map[string][]netip.Prefix // podCIDRs, by node
	pools  map[string][]ownedPool    // by Network
	blocks map[string]ownedBlock     // by name
	// objects are the AddressBlocks that blocks are made of, and those of the controller; by name.
	objects map[string]*v1alpha1.AddressBlock
	// of are the blocks of more than one address, by node and Network.
	of map[string]map[string][]netip.Prefix
	// claims are the nodes that have claimed single addresses, by Network.
	claims map[string]map[netip.Addr]string
}

// ownedPool is a subnet of a Network, with the length of its blocks.
type ownedPool struct {
	prefix  netip.Prefix
	gateway netip.Addr
	bits    int
}

// ownedBlock is an AddressBlock of a node.
type ownedBlock struct {
	node, network, port string
	prefix              netip.Prefix
	created             int64 // in seconds
	// answer is the condition Granted, with its message.
	answer  metav1.ConditionStatus
	message string
}

func newAddressOwners() addressOwners {
	return addressOwners{
		ranges: map[string][]netip.Prefix{}, pools: map[string][]ownedPool{}, blocks: map[string]ownedBlock{},
		objects: map[string]*v1alpha1.AddressBlock{}, of: map[string]map[string][]netip.Prefix{},
		claims: map[string]map[netip.Addr]string{},
	}
}

// setNode reports whether the node's podCIDRs are others than before.
func (w addressOwners) setNode(o *corev1.Node) bool {
	cidrs := o.Spec.PodCIDRs
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		cidrs = []string{o.Spec.PodCIDR}
	}
	var ranges []netip.Prefix
	for _, text := range cidrs {
		if p, ok := parseBlock(text); ok {
			ranges = append(ranges, p)
		}
	}
	if slices.Equal(w.ranges[o.Name], ranges) {
		return false
	}
	w.ranges[o.Name] = ranges
	return true
}

// setNetwork returns the nodes with blocks of the Network if its pools are others than before. A
// Network that cannot be read has none, as one of the nodes' podCIDRs.
func (w addressOwners) setNetwork(o *v1alpha1.Network) (nodes []string) {
	var pools []ownedPool
	if list, err := translate.Pools(o); err == nil {
		for _, p := range list {
			pools = append(pools, ownedPool{p.Prefix, p.Gateway, p.BlockBits})
		}
	}
	if slices.Equal(w.pools[o.Name], pools) {
		return nil
	}
	w.pools[o.Name] = pools
	for node, networks := range w.of {
		if _, some := networks[o.Name]; some {
			nodes = append(nodes, node)
		}
	}
	return slices.AppendSeq(nodes, maps.Values(w.claims[o.Name]))
}

// setBlock returns what the block was before and is now; a block that cannot be read, has another
// name than its prefix gives it, or is no node's, is the zero value.
func (w addressOwners) setBlock(o *v1alpha1.AddressBlock) (before, now ownedBlock) {
	before = w.deleteBlock(o.Name)
	prefix, ok := parseBlock(o.Spec.CIDR)
	if !ok || o.Name != names.BlockName(o.Spec.Network, prefix) {
		return before, ownedBlock{}
	}
	w.objects[o.Name] = o
	if o.Spec.Node == "" {
		return before, ownedBlock{}
	}
	now = ownedBlock{
		node: o.Spec.Node, network: o.Spec.Network, port: o.Spec.Port, prefix: prefix,
		created: o.CreationTimestamp.Unix(),
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionGranted); c != nil {
		now.answer, now.message = c.Status, c.Message
	}
	w.blocks[o.Name] = now
	if prefix.IsSingleIP() {
		if w.claims[now.network] == nil {
			w.claims[now.network] = map[netip.Addr]string{}
		}
		w.claims[now.network][prefix.Addr()] = now.node
		return before, now
	}
	networks := w.of[now.node]
	if networks == nil {
		networks = map[string][]netip.Prefix{}
		w.of[now.node] = networks
	}
	networks[now.network] = append(networks[now.network], prefix)
	return before, now
}

func (w addressOwners) deleteBlock(name string) (before ownedBlock) {
	delete(w.objects, name)
	before, known := w.blocks[name]
	if !known {
		return before
	}
	delete(w.blocks, name)
	if before.prefix.IsSingleIP() {
		if delete(w.claims[before.network], before.prefix.Addr()); len(w.claims[before.network]) == 0 {
			delete(w.claims, before.network)
		}
		return before
	}
	networks := w.of[before.node]
	list := networks[before.network]
	if at := slices.Index(list, before.prefix); at >= 0 {
		list = slices.Delete(list, at, at+1)
	}
	networks[before.network] = list
	if len(list) == 0 {
		delete(networks, before.network)
	}
	if len(networks) == 0 {
		delete(w.of, before.node)
	}
	return before
}

// claimants are the nodes that have claimed single addresses in a block.
func (w addressOwners) claimants(b ownedBlock) (nodes []string) {
	if b.node == "" || b.prefix.IsSingleIP() {
		return nil
	}
	for a, node := range w.claims[b.network] {
		if b.prefix.Contains(a) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// ownRange reports whether an address is of the node's podCIDRs.
func (w addressOwners) ownRange(node string, a netip.Addr) bool { return inAny(w.ranges[node], a) }

// pool is the subnet of a Network that an address is in; false if there is none, and for a gateway.
func (w addressOwners) pool(network string, a netip.Addr) (ownedPool, bool) {
	for _, p := range w.pools[network] {
		if p.prefix.Contains(a) {
			return p, a != p.gateway
		}
	}
	return ownedPool{}, false
}

// ownBlock reports whether an address is of a block of several that the node hands out of a
// Network. A block of another length than its subnet's is none: see Blocks.
func (w addressOwners) ownBlock(node, network string, a netip.Addr) bool {
	p, ok := w.pool(network, a)
	return ok && slices.ContainsFunc(w.of[node][network], func(b netip.Prefix) bool {
		return b.Bits() == p.bits && b.Contains(a)
	})
}

// ownSingle reports whether an address of a Network belongs to the Port of that key by a claim of
// the node. The name of a claim makes it the only one for its address.
func (w addressOwners) ownSingle(node, network, port string, a netip.Addr) bool {
	name := names.BlockName(network, netip.PrefixFrom(a, a.BitLen()))
	b := w.blocks[name]
	if b.node != node || b.network != network || b.port != port || !b.prefix.IsSingleIP() || b.prefix.Addr() != a {
		return false
	}
	p, ok := w.pool(network, a)
	around := w.objects[names.BlockName(network, netip.PrefixFrom(a, p.bits))]
	return ok && translate.ClaimStands(w.objects[name], around)
}

// inAny reports whether one of the prefixes holds an address.
func inAny(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
