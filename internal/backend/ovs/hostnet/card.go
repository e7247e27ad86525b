// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Card is a network card of this node, as far as it matters for giving it to a bridge.
type Card struct {
	Name string
	MAC  net.HardwareAddr
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
}

// FindCard reads what the kernel says of an interface.
func FindCard(name string) (Card, error) {
	link, err := nl.LinkByName(name)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		return Card{}, fmt.Errorf("interface %s does not exist on this node", name)
	}
	if err != nil {
		return Card{}, fmt.Errorf("interface %s: %w", name, err)
	}
	a := link.Attrs()
	c := Card{Name: name, MAC: a.HardwareAddr, Loopback: a.Flags&net.FlagLoopback != 0}
	addresses, err := addressesOf(link)
	if err != nil {
		return Card{}, fmt.Errorf("addresses of interface %s: %w", name, err)
	}
	for _, address := range addresses {
		c.Addresses = append(c.Addresses, address.Prefix.Addr())
	}
	if c.Default, err = leadsOut(link); err != nil {
		return Card{}, fmt.Errorf("routes of interface %s: %w", name, err)
	}
	all, err := dump(nl.LinkList)
	if err != nil {
		return Card{}, fmt.Errorf("list interfaces: %w", err)
	}
	for _, other := range all {
		o := other.Attrs()
		if o.Index == a.MasterIndex {
			c.Master = o.Name
		}
		if o.ParentIndex == a.Index && slices.Contains(stacked, other.Type()) {
			c.Uppers = append(c.Uppers, o.Name)
		}
	}
	return c, nil
}

// stacked are the types of interfaces that use another one. The two ends of a veth pair name each
// other in the same way.
var stacked = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"}

// leadsOut says whether a default route leads through an interface.
func leadsOut(link nl.Link) (bool, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := dump(func() ([]nl.Route, error) { return nl.RouteList(link, family) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return false, err
		}
		if slices.ContainsFunc(routes, func(r nl.Route) bool { return r.Dst == nil || prefix(r.Dst).Bits() == 0 }) {
			return true, nil
		}
	}
	return false, nil
}

// Usable says why a bridge must not take the card. What the node needs stays with it: node are the
// node's addresses.
func (c Card) Usable(node []netip.Addr) error {
	const advice = "name a card that serves nothing else"
	for _, a := range c.Addresses {
		if slices.Contains(node, a) {
			return fmt.Errorf("interface %s has the node's address %s, the node would be cut off: %s", c.Name, a, advice)
		}
	}
	switch {
	case c.Loopback:
		return fmt.Errorf("interface %s is the loopback: %s", c.Name, advice)
	case c.Default:
		return fmt.Errorf("a default route of the node leads through interface %s, the node would be cut off: %s", c.Name,
			advice)
	case c.Master != "":
		return fmt.Errorf("interface %s is a part of %s: take it out, or %s", c.Name, c.Master, advice)
	case len(c.Uppers) > 0:
		return fmt.Errorf("interface %s carries %s: remove these, or %s", c.Name, strings.Join(c.Uppers, ", "), advice)
	}
	return nil
}

// Adopt moves the addresses of a card and the routes through it to the bridge's interface that the
// Keeper keeps from now on. Both exist. It can be repeated: what the card gets later moves, too. If
// it is interrupted, the next Run or Adopt completes it.
//
// The card itself has IPv6 turned off meanwhile: router advertisements would give it addresses
// again.
func (k *Keeper) Adopt(card, bridge, sysctlDir string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, err := nl.LinkByName(card)
	if err != nil {
		return fmt.Errorf("interface %s: %w", card, err)
	}
	to, err := nl.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("interface %s: %w", bridge, err)
	}
	saved, err := load(k.path)
	if err == nil && saved != nil && saved.Boot == k.boot && saved.Link == card {
		err = k.restore(from, saved) // a Return was interrupted
	}
	if err != nil {
		return err
	}
	if saved == nil || saved.Boot != k.boot || saved.Link != bridge {
		saved = &memory{Boot: k.boot, Link: bridge}
	}
	addresses, routes, err := configurationOf(from)
	if err != nil {
		return err
	}
	ipv6 := cardIPv6{sysctls{sysctlDir}, card}
	if len(addresses)+len(routes) == 0 && saved.Index == to.Attrs().Index && !ipv6.on() {
		return nl.LinkSetUp(from)
	}
	saved.Index = 0 // not whole until all is there
	saved.Addresses, saved.Routes = append(saved.Addresses, addresses...), append(saved.Routes, routes...)
	saved.TurnedIPv6Off = saved.TurnedIPv6Off || ipv6.on()
	if !saved.Node.IsValid() && len(addresses) > 0 {
		saved.Node = addresses[0].Prefix.Addr()
	}
	if err := saved.save(k.path); err != nil {
		return err
	}
	k.link, k.node = bridge, saved.Node
	if err := take(from, addresses, routes); err != nil {
		return err
	}
	if err := errors.Join(ipv6.turn("1"), nl.LinkSetUp(from), k.restore(to, saved)); err != nil {
		return err
	}
	saved.Index = to.Attrs().Index
	k.log.Info("a network card is in a bridge", "card", card, "bridge", bridge, "addresses", len(saved.Addresses))
	return saved.save(k.path)
}

// Return is the reverse of Adopt: the card gets what the bridge's interface has now. remove removes
// the bridge. If it is interrupted, the next call completes it.
func (k *Keeper) Return(card, bridge, sysctlDir string, remove func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	saved, err := load(k.path)
	if err != nil {
		return err
	}
	if saved == nil {
		saved = &memory{}
	}
	if link, err := nl.LinkByName(bridge); err == nil && saved.Link != card {
		if saved.Addresses, saved.Routes, err = configurationOf(link); err != nil {
			return err
		}
	}
	saved.Boot, saved.Link, saved.Index = k.boot, card, 0
	if err := saved.save(k.path); err != nil {
		return err
	}
	k.link, k.node = "", netip.Addr{}
	if err := remove(); err != nil {
		return err
	}
	link, err := nl.LinkByName(card)
	switch {
	case errors.As(err, new(nl.LinkNotFoundError)):
		k.log.Warn("a network card is gone, and so are its addresses", "card", card)
	case err != nil:
		return fmt.Errorf("interface %s: %w", card, err)
	default:
		if saved.TurnedIPv6Off {
			err = cardIPv6{sysctls{sysctlDir}, card}.turn("0")
		}
		if err := errors.Join(err, k.restore(link, saved)); err != nil {
			return err
		}
	}
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Link is the interface that the Keeper keeps; empty: none.
func (k *Keeper) Link() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.link
}

// configurationOf are the addresses of an interface and the routes through it.
func configurationOf(link nl.Link) ([]savedAddress, []savedRoute, error) {
	addresses, err := addressesOf(link)
	if err != nil {
		return nil, nil, fmt.Errorf("addresses of interface %s: %w", link.Attrs().Name, err)
	}
	routes, err := routesOf(link)
	if err != nil {
		return nil, nil, fmt.Errorf("routes of interface %s: %w", link.Attrs().Name, err)
	}
	return addresses, routes, nil
}

// take removes what an interface has. What is gone already is no error: a route goes with the
// address that it names as its source.
func take(link nl.Link, addresses []savedAddress, routes []savedRoute) error {
	var errs []error
	for _, r := range slices.Backward(routes) {
		if err := nl.RouteDel(r.netlink(link.Attrs().Index)); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("interface %s: remove route %s: %w", link.Attrs().Name, r.Destination, err))
		}
	}
	for _, a := range addresses {
		err := nl.AddrDel(link, &nl.Addr{IPNet: ipNet(a.Prefix), Label: a.Label})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("interface %s: remove address %s: %w", link.Attrs().Name, a.Prefix, err))
		}
	}
	return errors.Join(errs...)
}

// cardIPv6 is a card's setting disable_ipv6. A kernel without IPv6 has none.
type cardIPv6 struct {
	sysctls sysctls
	card    string
}

func (c cardIPv6) path() []string { return []string{"net", "ipv6", "conf", c.card, "disable_ipv6"} }

func (c cardIPv6) on() bool {
	v, err := c.sysctls.get(c.path()...)
	return err == nil && v == "0"
}

func (c cardIPv6) turn(value string) error {
	if _, err := c.sysctls.get(c.path()...); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := c.sysctls.ensure(value, c.path()...)
	return err
}
