// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// uses notes which addresses a Port has.
func (c *compiler) uses(p intent.Port) {
	space := ""
	if n, ok := c.state.Networks().Get(p.Network); !ok || !n.FromNodes() {
		space = p.Network
	}
	c.use(space, p.Addresses)
	c.use("", p.NodeAddresses)
}

func (c *compiler) use(space string, addresses []netip.Addr) {
	if c.used[space] == nil {
		c.used[space] = map[netip.Addr]bool{}
	}
	for _, a := range addresses {
		c.used[space][a] = true
	}
}

// hasSpare reports whether ports are ready on a Network. They are not where the controller gives
// addresses away, or Kuryr has ports, which agents know and intent does not.
func (c *compiler) hasSpare(n intent.Network) bool {
	return c.Spare > 0 && !n.External && n.Kuryr == ""
}

// spares makes ports of the addresses that nodes hand out next: their agents find them by
// ipam.Slots, too.
func (c *compiler) spares() {
	for n := range c.state.Networks().All() {
		switch {
		case !c.hasSpare(n):
		case n.Name == intent.DefaultNetworkName:
			for node := range c.state.Nodes().All() {
				// If the podCIDRs are of no use, the node's agent says so.
				ranges, _ := ipam.Parse(node.Prefixes())
				c.use("", names.ManagementAddresses(node))
				c.spare(n, node.Name, c.Spare, "", ranges)
			}
		case !n.FromNodes() && c.there(n):
			for node, ranges := range c.blocks(n) {
				c.spare(n, node, min(c.Spare, reserved.NeutronSpareOfNetwork), n.Name, ranges)
			}
		}
	}
}

// blocks are what nodes hand out of a Network, by their names. A node that has nothing of one of
// its pools is about to claim that.
func (c *compiler) blocks(n intent.Network) map[string][]ipam.Range {
	blocks := map[string][]ipam.Range{}
	for i, pool := range ipam.Pools(n) {
		of := map[string][]ipam.Range{}
		for b := range c.state.BlocksOf(n.Name) {
			if r, err := pool.Block(b.Prefix); err == nil && (i == 0 || len(blocks[b.Node]) > 0) {
				of[b.Node] = append(of[b.Node], r)
			}
		}
		for node, ranges := range of {
			of[node] = append(blocks[node], ranges...)
		}
		blocks = of
	}
	return blocks
}

// spare makes the ports of a node on a Network, by steps of so many. Of the slots after those that
// are needed, ports stay that are there.
func (c *compiler) spare(n intent.Network, node string, step int, space string, ranges []ipam.Range) {
	taken := func(a netip.Addr) bool { return c.used[space][a] }
	needed := len(ipam.Slots(ranges, step, step, taken))
	for i, addresses := range ipam.Slots(ranges, step, needed+reserved.NeutronKept, taken) {
		r := c.portAt(n, node, reserved.PodMAC(addresses[0]), addresses)
		r.Ref, r.Object = c.addressRef(n, node, addresses), NodeObject(node)
		r.Spare, r.Optional = true, i >= needed
		r.Kept = resource.Attributes{"security_groups": []any{openRef(intent.Ingress), openRef(intent.Egress)}}
		c.set.Add(r)
	}
}
