// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Card is a network card of this node, as far as it matters for giving it to a bridge.
type Card struct {
	Name  string
	Index int // the kernel's number of it
	MAC   net.HardwareAddr
	// Loopback says that the interface leads nowhere.
	Loopback bool
	// Master is the interface that it is a part of (a bond, a bridge); empty: none.
	Master string
	// Uppers are the interfaces that use it: VLANs and the like.
	Uppers []string
	// Default says that a default route leads through it.
	Default bool
	// Addresses that it has.
	Addresses []netip.Addr
	// Leased are those that end unless a program on this node renews them.
	Leased []netip.Addr
	// LeasedRoute says that a default route through it ends unless a program renews it.
	LeasedRoute bool
}

// SharedPort is the name of the interface above a card that the node shares with a bridge, by the
// card's OpenFlow port number on the integration bridge, which is unique on the node.
func SharedPort(number uint32) string { return fmt.Sprint(sharedPort, number) }

const sharedPort = "coelan-card"

// FindCard reads what the kernel says of an interface. sysctlDir is usually /proc/sys.
func FindCard(name, sysctlDir string) (Card, error) {
	link, err := nl.LinkByName(name)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		return Card{}, fmt.Errorf("interface %s does not exist on this node", name)
	}
	if err != nil {
		return Card{}, fmt.Errorf("interface %s: %w", name, err)
	}
	a := link.Attrs()
	c := Card{Name: name, Index: a.Index, MAC: a.HardwareAddr, Loopback: a.Flags&net.FlagLoopback != 0}
	list, err := objectsOf(link)
	if err != nil {
		return Card{}, err
	}
	// The kernel renews what routers advertise, unless it is told to leave that to a program.
	advertised, err := sysctls{sysctlDir}.get("net", "ipv6", "conf", name, "accept_ra")
	c.has(list, err == nil && advertised != "0")
	all, err := dump(nl.LinkList)
	if err != nil {
		return Card{}, fmt.Errorf("list interfaces: %w", err)
	}
	for _, other := range all {
		o := other.Attrs()
		if o.Index == a.MasterIndex {
			c.Master = o.Name
		}
		if o.ParentIndex == a.Index && slices.Contains(stacked, other.Type()) &&
			!strings.HasPrefix(o.Name, sharedPort) {
			c.Uppers = append(c.Uppers, o.Name)
		}
	}
	return c, nil
}

// stacked are the types of interfaces that use another one. The two ends of a veth pair name each
// other in the same way.
var stacked = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"}

// has notes the addresses and routes of a card. advertised says that the kernel follows router
// advertisements.
func (c *Card) has(list []object, advertised bool) {
	for _, o := range list {
		switch {
		case o.Kind == unix.RTM_NEWADDR && !o.linkLocal():
			c.Addresses = append(c.Addresses, o.address())
			if o.passing() {
				c.Leased = append(c.Leased, o.address())
			}
		case o.isDefault():
			c.Default = true
			c.LeasedRoute = c.LeasedRoute || o.passing() && !advertised
		}
	}
}

// Usable says why a bridge must not take the card. What the node needs stays with it, unless the
// card is shared with the node: node are the node's addresses.
func (c Card) Usable(node []netip.Addr, shared bool) error {
	advice := "name a card that serves nothing else, or set shared: true if the node's own network is meant"
	needed := c.neededBy
	if shared {
		advice = "make the bridge yourself, with the card in it"
		needed = c.leasedTo
	}
	switch reason := needed(node); {
	case c.Loopback:
		return fmt.Errorf("interface %s is the loopback: name a network card", c.Name)
	case c.Master != "" && shared:
		return fmt.Errorf("interface %s is a part of %s: take it out, or name %s", c.Name, c.Master, c.Master)
	case c.Master != "":
		return fmt.Errorf("interface %s is a part of %s: take it out, or %s", c.Name, c.Master, advice)
	case len(c.Uppers) > 0:
		return fmt.Errorf("interface %s carries %s: remove these, or %s", c.Name, strings.Join(c.Uppers, ", "), advice)
	case shared && len(c.MAC) != 6:
		return fmt.Errorf("interface %s is not an Ethernet card: a bridge cannot have it", c.Name)
	case reason != "":
		return fmt.Errorf("%s%s", reason, advice)
	}
	return nil
}

// neededBy says what of the node would be cut off; empty: nothing.
func (c Card) neededBy(node []netip.Addr) string {
	for _, a := range c.Addresses {
		if slices.Contains(node, a) {
			return fmt.Sprintf("interface %s has the node's address %s, the node would be cut off: ", c.Name, a)
		}
	}
	if c.Default {
		return fmt.Sprintf("a default route of the node leads through interface %s, the node would be cut off: ", c.Name)
	}
	return ""
}

// leasedTo says what of the node would end some time after it has moved to the bridge, as the
// program that renews it goes on looking at the card; empty: nothing.
func (c Card) leasedTo(node []netip.Addr) string {
	for _, a := range c.Leased {
		if slices.Contains(node, a) {
			return fmt.Sprintf("interface %s has the node's address %s for a limited time only, which no program could"+
				" prolong on a bridge: configure it without DHCP, or ", c.Name, a)
		}
	}
	if c.LeasedRoute {
		return fmt.Sprintf("the default route through interface %s is there for a limited time only, which no program"+
			" could prolong on a bridge: configure it, have the kernel follow router advertisements (accept_ra=2), or ", c.Name)
	}
	return ""
}
