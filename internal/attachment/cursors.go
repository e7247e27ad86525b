// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"maps"
	"net/netip"
)

// cursors are what was handed out last: the next search begins after it, so that
// what was released is handed out as late as can be.
type cursors struct {
	Addresses map[netip.Prefix]netip.Addr `json:"addresses"` // by podCIDR
	// Networks has those of the Networks with blocks, by name and subnet.
	Networks map[string]map[netip.Prefix]netip.Addr `json:"networks,omitempty"`
	Port     uint32                                 `json:"port"`
}

func (c cursors) clone() cursors {
	c.Addresses = maps.Clone(c.Addresses)
	networks := make(map[string]map[netip.Prefix]netip.Addr, len(c.Networks))
	for name, subnets := range c.Networks {
		networks[name] = maps.Clone(subnets)
	}
	c.Networks = networks
	return c
}

// after is what was handed out last of a subnet.
func (c cursors) after(space string, subnet netip.Prefix) netip.Addr {
	if space == "" {
		return c.Addresses[subnet]
	}
	return c.Networks[space][subnet]
}

// moveCursors lets the next search begin after what the attachment has. The cursors of
// other podCIDRs of the same family are forgotten: the node lost them. So are those of
// a Network's other subnets.
func (s *Store) moveCursors(a Attachment) {
	s.cursors.Port = a.OFPort
	if !a.FixedAddresses && len(a.Addresses) > 0 {
		s.cursors.set(a.space(), a.Addresses)
	}
	if len(a.NodeAddresses) > 0 {
		s.cursors.set("", a.NodeAddresses)
	}
}

func (c *cursors) set(space string, addresses []netip.Prefix) {
	if c.Addresses == nil {
		c.Addresses = map[netip.Prefix]netip.Addr{}
	}
	at := c.Addresses
	if space != "" {
		if c.Networks == nil {
			c.Networks = map[string]map[netip.Prefix]netip.Addr{}
		}
		if c.Networks[space] == nil {
			c.Networks[space] = map[netip.Prefix]netip.Addr{}
		}
		at = c.Networks[space]
	}
	for _, p := range addresses {
		maps.DeleteFunc(at, func(old netip.Prefix, _ netip.Addr) bool { return old.Addr().Is4() == p.Addr().Is4() })
		at[p.Masked()] = p.Addr()
	}
}

// pruned leaves out Networks that no attachment is on.
func (c cursors) pruned(used map[string]bool) cursors {
	c = c.clone()
	maps.DeleteFunc(c.Networks, func(name string, _ map[netip.Prefix]netip.Addr) bool { return !used[name] })
	return c
}
