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

// Placement says how a card is put into a bridge.
type Placement struct {
	Card, Bridge string
	// Port is the interface that the bridge has as its port: the card itself, or, for a card with
	// the node's own address, a SharedPort.
	//
	// A SharedPort takes all packets of the card (macvlan, passthru), as a port that is the card
	// does. But it ends with the kernel, and Open vSwitch's database outlives that: after a reboot
	// Open vSwitch would have the card before its addresses were on the bridge, and so cut the node
	// off.
	Port string
}

func (p Placement) shared() bool { return p.Port != p.Card }

// move is the way of what an interface has to another one, without a moment in which neither has
// it.
type move struct {
	early []object // added while packets still come in by the first interface
	late  []object // added when they come in by the second one
	gone  []object // removed from the first one then; IPv6 addresses go when its IPv6 is turned off
}

// planMove is the move of what a card has to a bridge. The bridge of a shared card has the card's
// MAC, and so its link-local addresses.
//
// IPv4 prefers the first of several equal routes, so that the second ones can wait. IPv6 uses them
// by turns.
func planMove(have []object, shared bool) move {
	var m move
	for _, o := range have {
		if o.linkLocal() && !shared {
			continue
		}
		add := o
		if o.protocol() == unix.RTPROT_RA && o.passing() {
			// The kernel must find no route equal to the one that it makes of the next
			// advertisement.
			add = o.later()
		}
		if o.family() == unix.AF_INET || o.linkLocal() || o.Kind == unix.RTM_NEWNEIGH {
			m.early = append(m.early, add)
		} else {
			m.late = append(m.late, add)
		}
		if o.Kind == unix.RTM_NEWRULE || o.Kind == unix.RTM_NEWROUTE ||
			o.Kind == unix.RTM_NEWADDR && o.family() == unix.AF_INET {
			m.gone = append(m.gone, o)
		}
	}
	slices.Reverse(m.gone)
	return m
}

// Prepare makes all ready for Open vSwitch to take a card: what can be on the bridge's interface
// beforehand is there, and so is the port. Card and bridge exist. Adopt has to follow when Open
// vSwitch has the port.
func (k *Keeper) Prepare(p Placement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, to, err := p.links()
	if err != nil {
		return err
	}
	saved, err := k.begin(p, from, to)
	if err != nil {
		return err
	}
	have, err := objectsOf(from)
	if err != nil {
		return err
	}
	return k.perform([]step{
		{"save", func() error { return saved.save(k.path) }},
		{"set up the bridge", func() error { return k.prepare(to, saved) }},
		{"add early", func() error { return addAll(to, planMove(have, p.shared()).early) }},
		{"make the port", func() error { return p.makePort(from) }},
	})
}

// Adopt moves what a card has to the bridge's interface, which the Keeper keeps from now on. Card,
// bridge and port exist. It can be repeated: what the card gets later moves, too. If it is
// interrupted, the next Run or Adopt completes it.
//
// The card itself has IPv6 turned off meanwhile: router advertisements would give it addresses
// again.
func (k *Keeper) Adopt(p Placement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, to, err := p.links()
	if err != nil {
		return err
	}
	saved, err := k.begin(p, from, to)
	if err != nil {
		return err
	}
	have, err := objectsOf(from)
	if err != nil {
		return err
	}
	m := planMove(have, p.shared())
	ipv6 := cardIPv6{k.sysctls, p.Card}
	if len(m.gone) == 0 && saved.Index == to.Attrs().Index && !ipv6.on() {
		return errors.Join(nl.LinkSetUp(from), p.closePort(from, k.sysctls))
	}
	saved.Index = 0 // not whole until all is there
	k.link, k.node = p.Bridge, saved.Node
	err = k.perform([]step{
		{"save", func() error { return saved.save(k.path) }},
		{"add", func() error { return k.restore(to, saved) }},
		{"add early", func() error { return addAll(to, m.early) }},
		{"add late", func() error { return addAll(to, m.late) }},
		{"remove", func() error { return removeAll(ifaceOf(from), m.gone) }},
		{"add late-comers", func() error { return moveLateComers(p, from, to, saved) }},
		{"turn IPv6 off", func() error { return ipv6.turn("1") }},
		{"set up", func() error { return errors.Join(nl.LinkSetUp(from), p.closePort(from, k.sysctls)) }},
	})
	if err != nil {
		return err
	}
	saved.Index = to.Attrs().Index
	k.log.Info("a network card is in a bridge", "card", p.Card, "bridge", p.Bridge, "port", p.Port)
	return saved.save(k.path)
}

// moveLateComers moves what the card got since the move began: an IPv6 address would end with the
// card's IPv6.
func moveLateComers(p Placement, from, to nl.Link, saved *memory) error {
	have, err := objectsOf(from)
	if err != nil {
		return err
	}
	m := planMove(have, p.shared())
	if err := addAll(to, slices.Concat(m.early, m.late)); err != nil {
		return err
	}
	saved.Objects = and(saved.Objects, configured(have))
	return removeAll(ifaceOf(from), m.gone)
}

// links are the card and the bridge's interface.
func (p Placement) links() (from, to nl.Link, err error) {
	if from, err = nl.LinkByName(p.Card); err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", p.Card, err)
	}
	if to, err = nl.LinkByName(p.Bridge); err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", p.Bridge, err)
	}
	return from, to, nil
}

// begin reads what is known of the bridge's interface, and adds what the card has. After a Return
// that was interrupted the bridge gets what the card was to have.
func (k *Keeper) begin(p Placement, from, to nl.Link) (*memory, error) {
	saved, err := k.present()
	if err != nil {
		return nil, err
	}
	switch saved.Link {
	case p.Bridge:
	case p.Card:
		saved.Link = p.Bridge
	default:
		saved = &memory{Boot: k.boot, Link: p.Bridge}
	}
	if saved.Settings == nil {
		if saved.Settings, err = k.sysctls.ofInterface(p.Card); err != nil {
			return nil, fmt.Errorf("settings of interface %s: %w", p.Card, err)
		}
	}
	have, err := objectsOf(from)
	if err != nil {
		return nil, err
	}
	if saved.Index != to.Attrs().Index || len(planMove(have, p.shared()).gone) > 0 {
		saved.Objects = and(saved.Objects, configured(have))
	}
	saved.MTU = from.Attrs().MTU
	saved.TurnedIPv6Off = saved.TurnedIPv6Off || cardIPv6{k.sysctls, p.Card}.on()
	if i := slices.IndexFunc(saved.Objects, func(o object) bool { return o.Kind == unix.RTM_NEWADDR }); i >= 0 &&
		!saved.Node.IsValid() {
		saved.Node = saved.Objects[i].address()
	}
	return saved, nil
}

// present is what the file says of this run of the kernel.
func (k *Keeper) present() (*memory, error) {
	saved, err := load(k.path)
	if err != nil {
		return nil, err
	}
	if saved == nil || saved.Boot != k.boot {
		saved = &memory{}
	}
	return saved, nil
}

// step is a part of a move. Those before it are done.
type step struct {
	name string
	do   func() error
}

func (k *Keeper) perform(steps []step) error {
	for _, s := range steps {
		if err := k.before(s.name); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

// Return is the reverse of Adopt: the card gets what the bridge's interface has now. remove removes
// the bridge. If it is interrupted, the next call completes it. Where the card was shared, the node
// is in reach by it again before the bridge is removed, and if that fails.
func (k *Keeper) Return(card, bridge string, remove func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	saved, err := k.present()
	if err != nil {
		return err
	}
	var have []object
	from := iface{name: bridge}
	if link, err := nl.LinkByName(bridge); err == nil {
		if have, err = objectsOf(link); err != nil {
			return err
		}
		from = ifaceOf(link)
	}
	if from.index != 0 && saved.Link != card {
		saved.Objects = configured(have)
	}
	saved.Boot, saved.Link, saved.Index, saved.Settings = k.boot, card, 0, nil
	k.link, k.node = "", netip.Addr{}
	to, err := nl.LinkByName(card)
	switch {
	case errors.As(err, new(nl.LinkNotFoundError)):
		k.log.Warn("a network card is gone, and so are its addresses", "card", card)
		if err := remove(); err != nil {
			return err
		}
		return k.forget()
	case err != nil:
		return fmt.Errorf("interface %s: %w", card, err)
	}
	back := planMove(have, false)
	return k.perform([]step{
		{"save", func() error { return saved.save(k.path) }},
		{"turn IPv6 on", func() error { return cardIPv6{k.sysctls, card}.back(saved.TurnedIPv6Off) }},
		{"add", func() error { return k.restore(to, saved) }},
		{"add all", func() error { return addAll(to, slices.Concat(back.early, back.late)) }},
		{"remove", func() error { return removeAll(from, back.gone) }},
		{"remove the port", func() error { return removePort(to, bridge) }},
		{"remove the bridge", remove},
		{"remove rules", func() error { return removeRules(bridge) }},
		{"forget", k.forget},
	})
}

// forget removes the file.
func (k *Keeper) forget() error {
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

// HasPort says that the port is there, as Prepare has made it.
func (p Placement) HasPort() bool {
	card, err := nl.LinkByName(p.Card)
	if err != nil {
		return false
	}
	port, err := nl.LinkByName(p.Port)
	return err == nil && (!p.shared() || port.Attrs().ParentIndex == card.Attrs().Index)
}

// makePort makes a SharedPort. Until Open vSwitch reads from it, the kernel takes in what it gets.
func (p Placement) makePort(card nl.Link) error {
	if !p.shared() {
		return nil
	}
	port, err := nl.LinkByName(p.Port)
	if err == nil && port.Attrs().ParentIndex != card.Attrs().Index {
		if err := nl.LinkDel(port); err != nil {
			return fmt.Errorf("interface %s: remove: %w", p.Port, err)
		}
		err = nl.LinkNotFoundError{}
	}
	if !errors.As(err, new(nl.LinkNotFoundError)) {
		return err
	}
	// It is up from the first moment on: it takes the packets of the card also while it is down.
	err = nl.LinkAdd(&nl.Macvlan{
		LinkAttrs: nl.LinkAttrs{Name: p.Port, ParentIndex: card.Attrs().Index, Flags: net.FlagUp},
		Mode:      nl.MACVLAN_MODE_PASSTHRU,
	})
	if err != nil {
		return fmt.Errorf("interface %s above %s: %w; has the kernel the module macvlan?", p.Port, p.Card, err)
	}
	return nil
}

// closePort has the kernel itself take no part in a SharedPort, which carries packets of the card's
// size.
func (p Placement) closePort(card nl.Link, s sysctls) error {
	if !p.shared() {
		return nil
	}
	port, err := nl.LinkByName(p.Port)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.Port, err)
	}
	errs := []error{cardIPv6{s, p.Port}.turn("1")}
	if port.Attrs().MTU != card.Attrs().MTU {
		errs = append(errs, nl.LinkSetMTU(port, card.Attrs().MTU))
	}
	return errors.Join(append(errs, nl.LinkSetUp(port))...)
}

// removePort removes the SharedPort above a card. The bridge, which the card's packets no longer
// come by, goes down before: with it go its routes.
func removePort(card nl.Link, bridge string) error {
	all, err := dump(nl.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	i := slices.IndexFunc(all, func(l nl.Link) bool {
		return l.Type() == "macvlan" && l.Attrs().ParentIndex == card.Attrs().Index &&
			strings.HasPrefix(l.Attrs().Name, sharedPort)
	})
	if i < 0 {
		return nil
	}
	if link, err := nl.LinkByName(bridge); err == nil {
		if err := nl.LinkSetDown(link); err != nil {
			return fmt.Errorf("interface %s: set down: %w", bridge, err)
		}
	}
	if err := nl.LinkDel(all[i]); err != nil {
		return fmt.Errorf("interface %s: remove: %w", all[i].Attrs().Name, err)
	}
	return nil
}

// removeRules removes the rules that name an interface, which may be gone.
func removeRules(name string) error {
	s, err := openObjects()
	if err != nil {
		return err
	}
	defer s.close()
	list, err := s.rules(name)
	if err != nil {
		return err
	}
	return removeAll(iface{name: name}, list)
}

// removeAll takes objects from an interface, and tries each.
func removeAll(from iface, list []object) error {
	s, err := openObjects()
	if err != nil {
		return err
	}
	defer s.close()
	var errs []error
	for _, o := range list {
		errs = append(errs, s.remove(o, from))
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

// back turns it on again if it was on.
func (c cardIPv6) back(wasOn bool) error {
	if !wasOn {
		return nil
	}
	return c.turn("0")
}

// Index is the kernel's number of an interface; 0: there is none of that name.
func Index(name string) int {
	link, err := nl.LinkByName(name)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}

// MTU is that of an interface; 0: there is none of that name.
func MTU(name string) int {
	link, err := nl.LinkByName(name)
	if err != nil {
		return 0
	}
	return link.Attrs().MTU
}

// Under is the name of the card below a SharedPort; empty: there is none.
func Under(port string) string {
	link, err := nl.LinkByName(port)
	if err != nil || link.Attrs().ParentIndex == 0 {
		return ""
	}
	card, err := nl.LinkByIndex(link.Attrs().ParentIndex)
	if err != nil {
		return ""
	}
	return card.Attrs().Name
}
