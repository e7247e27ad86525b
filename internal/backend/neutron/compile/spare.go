// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// uses notes which of a node's addresses a Port has.
func (c *compiler) uses(p intent.Port) {
	if c.used[p.Node] == nil {
		c.used[p.Node] = map[netip.Addr]bool{}
	}
	for _, a := range slices.Concat(p.Addresses, p.NodeAddresses) {
		c.used[p.Node][a] = true
	}
}

// spare makes ports of the addresses that a node hands out next: its agent finds them by
// ipam.Slots, too. Of the slots after these, ports stay that are there.
func (c *compiler) spare(node intent.Node) {
	n, ok := c.state.Networks().Get(intent.DefaultNetworkName)
	if !ok || c.Spare == 0 {
		return
	}
	ranges, err := ipam.Parse(node.Prefixes())
	if err != nil {
		return // the node's agent says so
	}
	own := names.ManagementAddresses(node)
	taken := func(a netip.Addr) bool { return c.used[node.Name][a] || slices.Contains(own, a) }
	needed := len(ipam.Slots(ranges, c.Spare, c.Spare, taken))
	for i, addresses := range ipam.Slots(ranges, c.Spare, needed+reserved.NeutronKept, taken) {
		r := c.portAt(n, node.Name, reserved.PodMAC(addresses[0]), addresses)
		r.Ref, r.Object = addressRef(node.Name, addresses), NodeObject(node.Name)
		r.Spare, r.Optional = true, i >= needed
		r.Kept = resource.Attributes{"security_groups": []any{openRef(intent.Ingress), openRef(intent.Egress)}}
		c.set.Add(r)
	}
}
