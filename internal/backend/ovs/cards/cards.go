// SPDX-License-Identifier: Apache-2.0

// Package cards has bridges of Open vSwitch for network cards: a bridge takes the card, and what
// the card has moves to the bridge, and back when the bridge is not wanted any more.
package cards

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

// ID is the external_ids key of the bridges that Coelan has made for network cards, with the
// card's name. idPort has the port's name where that is not the card itself.
const (
	ID     = "coelan-card"
	idPort = "coelan-card-port"
)

// Bridges are those of network cards. New makes them, and Connect gives them what they work on.
type Bridges struct {
	uplinks []intent.Uplink   // those with cards, by physical network
	numbers map[string]uint32 // unique on the node, by physical network
	db      Database
	kernel  Kernel
	// failed are the moves of shared cards that were undone, by physical network.
	failed map[string]failedMove
	// opened are the kernel's indexes of the cards that ovs-vswitchd has opened, by physical
	// network. On the userspace datapath it keeps a card open that is gone, also when another one
	// has come under the same name: the index tells the two apart. The indexes are saved, so that a
	// card which is replaced while the agent is away is noticed.
	opened map[string]int
	store  Store
}

// Store keeps small objects on disk. *attachment.Store is one.
type Store interface {
	Objects(kind string) map[string][]byte
	SaveObjects(kind string, objects map[string][]byte) error
}

// absentError says that something is not there or cannot be used.
type absentError struct{ error }

func (e absentError) Unwrap() error { return e.error }

// Absent marks an error as one that stays until what it names is mended: something is not there or
// cannot be used.
func Absent(err error) error { return absentError{err} }

// IsAbsent says whether an error is marked so.
func IsAbsent(err error) bool { return errors.As(err, new(absentError)) }

// storeKind is the kind of the objects in the Store, each a card's: the boot ID and the kernel's
// index of the interface, which holds until the next boot.
const storeKind = "card"

// failedMove is one that is not tried again at once: each costs the node some packets.
type failedMove struct {
	err error
	at  time.Time
}

// moveAgain is how long a move that failed is left.
const moveAgain = 15 * time.Second

// undoTimeout bounds the removal of what a move that failed has made.
const undoTimeout = 5 * time.Second

// New wants no bridges.
func New(store Store) *Bridges {
	c := &Bridges{failed: map[string]failedMove{}, opened: map[string]int{}, store: store}
	for physical, data := range store.Objects(storeKind) {
		boot, number, _ := strings.Cut(string(data), " ")
		if index, err := strconv.Atoi(number); err == nil && boot == hostnet.BootID() {
			c.opened[physical] = index
		}
	}
	return c
}

// Want has bridges for those of the uplinks that have a card. Each has a number.
func (c *Bridges) Want(uplinks iter.Seq[intent.Uplink], numbers map[string]uint32) {
	c.uplinks, c.numbers = nil, numbers
	for u := range uplinks {
		if u.Card != "" {
			c.uplinks = append(c.uplinks, u)
		}
	}
}

// Connect gives them what they work on.
func (c *Bridges) Connect(db Database, kernel Kernel) { c.db, c.kernel = db, kernel }

// Run keeps what the bridges' interfaces have, until ctx ends.
func (c *Bridges) Run(ctx context.Context) error { return c.kernel.Run(ctx) }

// Find reads what the kernel says of an interface.
func (c *Bridges) Find(card string) (hostnet.Card, error) { return c.kernel.Find(card) }

// MTU is that of an interface; 0: there is none.
func (c *Bridges) MTU(card string) int { return c.kernel.MTU(card) }

// Under is the card below the port of a shared one; empty: there is none.
func (c *Bridges) Under(port string) string { return c.kernel.Under(port) }

// Wanted are the bridges' names.
func (c *Bridges) Wanted() []string {
	var list []string
	for _, u := range c.uplinks {
		list = append(list, u.Bridge)
	}
	return list
}

// placement is how the card of an uplink is put into its bridge.
func (c *Bridges) placement(u intent.Uplink) hostnet.Placement {
	p := hostnet.Placement{Card: u.Card, Bridge: u.Bridge, Port: u.Card}
	if u.Shared {
		p.Port = hostnet.SharedPort(c.numbers[u.Physical])
	}
	return p
}

// ids are the external_ids of a placement's bridge.
func ids(p hostnet.Placement) map[string]string {
	ids := map[string]string{ID: p.Card}
	if p.Port != p.Card {
		ids[idPort] = p.Port
	}
	return ids
}

// cardPort is that of a card on its bridge, which forwards by MACs: no flow names the number.
func cardPort(p hostnet.Placement) ovsdb.Port { return ovsdb.Port{Name: p.Port, AnyNumber: true} }

// Database is what Bridges need of Open vSwitch's database.
type Database interface {
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
	ClosePort(ctx context.Context, bridge, name string) error
	DelBridge(ctx context.Context, name string) error
}

// Ensure has a bridge for each card, and removes those that are not wanted any more: their cards
// get their addresses back. It returns what failed, by physical network, and other errors.
func (c *Bridges) Ensure(ctx context.Context, bridges []ovsdb.BridgeState, datapath intent.Datapath,
	node []netip.Addr,
) (failed map[string]error, err error) {
	wanted := map[string]hostnet.Placement{} // by bridge
	for _, u := range c.uplinks {
		wanted[u.Bridge] = c.placement(u)
	}
	var errs []error
	var left []ovsdb.BridgeState
	for _, b := range bridges {
		card, p := b.ExternalIDs[ID], wanted[b.Name]
		if !b.Own || card == "" || p.Card == card && b.ExternalIDs[idPort] == ids(p)[idPort] {
			left = append(left, b)
			continue
		}
		errs = append(errs, c.remove(ctx, b.Name, card))
	}
	// Their bridges may be gone already.
	for bridge, card := range c.kernel.Interrupted() {
		if wanted[bridge].Card != card {
			errs = append(errs, c.remove(ctx, bridge, card))
		}
	}
	failed = map[string]error{}
	for _, u := range c.uplinks {
		if err := c.ensureBridge(ctx, u, left, datapath, node); err != nil {
			failed[u.Physical] = err
		}
	}
	return failed, errors.Join(errs...)
}

// remove gives a card back to the node.
func (c *Bridges) remove(ctx context.Context, bridge, card string) error {
	err := c.kernel.Return(card, bridge, func() error { return c.db.DelBridge(ctx, bridge) })
	if err != nil {
		return fmt.Errorf("give interface %s of bridge %s back: %w", card, bridge, err)
	}
	return nil
}

func (c *Bridges) ensureBridge(ctx context.Context, u intent.Uplink, bridges []ovsdb.BridgeState,
	datapath intent.Datapath, node []netip.Addr,
) error {
	p := c.placement(u)
	var have ovsdb.BridgeState
	for _, b := range bridges {
		switch {
		case b.Name == u.Bridge && b.ExternalIDs[ID] == "" && u.Shared && slices.Contains(b.Ports, u.Card):
			return nil // an administrator's, with the node's address on it
		case b.Name == u.Bridge && b.ExternalIDs[ID] == "":
			return Absent(fmt.Errorf(
				"bridge %s is not Coelan's: use it by bridgeMappings, or set another bridge in uplinks", u.Bridge))
		case b.Name == u.Bridge && b.ExternalIDs[ID] == u.Card:
			have = b
		case b.Name != u.Bridge && slices.Contains(b.Ports, u.Card):
			return Absent(fmt.Errorf(
				"interface %s is a port of bridge %s: use that by bridgeMappings, or remove the port", u.Card, b.Name))
		}
	}
	inDatabase, index := slices.Contains(have.Ports, p.Port), c.kernel.Index(u.Card)
	replaced := c.opened[u.Physical] != 0 && index != 0 && index != c.opened[u.Physical]
	if replaced && datapath == intent.DatapathSystem {
		// ovs-vswitchd may have put it into the kernel's datapath already.
		card, err := c.kernel.Find(u.Card)
		replaced = err == nil && card.Master == ""
	}
	complete := inDatabase && index != 0 && c.kernel.HasPort(p) && !replaced
	if complete && have.Datapath == string(datapath) {
		if err := c.adopt(ctx, p); err != nil {
			return err
		}
		return c.saveIndex(u, index)
	}
	found, err := c.kernel.Find(u.Card)
	if err != nil {
		return Absent(err)
	}
	if !complete {
		if err := found.Usable(node, u.Shared); err != nil {
			return Absent(err)
		}
	}
	if f, ok := c.failed[u.Physical]; ok && time.Since(f.at) < moveAgain {
		return f.err
	}
	// The question itself changes the database.
	err = c.db.EnsureBridge(ctx, ovsdb.Bridge{
		Name: u.Bridge, Datapath: string(datapath), MAC: bridgeMAC(found.MAC, datapath, u.Shared), Switch: true,
		ExternalIDs: ids(p),
	})
	if err != nil {
		return err
	}
	if complete {
		err = c.adopt(ctx, p)
	} else {
		err = c.place(ctx, p, inDatabase)
	}
	if err == nil {
		err = c.saveIndex(u, found.Index)
	}
	if err != nil && u.Shared {
		err = errors.Join(fmt.Errorf("the node's network is left as it was: %w", err), c.undo(ctx, p))
		c.failed[u.Physical] = failedMove{err, time.Now()}
	}
	return err
}

// undo removes what a move that failed has made. There is time for it also if the move had too
// little.
func (c *Bridges) undo(ctx context.Context, p hostnet.Placement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return c.remove(ctx, p.Bridge, p.Card)
}

// place puts a card into its bridge. inDatabase says that the database has its port already, of
// which there was none when ovs-vswitchd looked: it would not look again by itself.
func (c *Bridges) place(ctx context.Context, p hostnet.Placement, inDatabase bool) error {
	if err := c.kernel.Prepare(p); err != nil {
		return err
	}
	if inDatabase {
		if err := c.db.ClosePort(ctx, p.Bridge, p.Port); err != nil {
			return err
		}
	}
	return c.adopt(ctx, p)
}

// saveIndex notes and saves the index of the card that ovs-vswitchd has opened.
func (c *Bridges) saveIndex(u intent.Uplink, index int) error {
	if c.opened[u.Physical] == index {
		return nil
	}
	c.opened[u.Physical] = index
	saved := map[string][]byte{}
	for _, of := range c.uplinks {
		if index := c.opened[of.Physical]; index != 0 {
			saved[of.Physical] = fmt.Append(nil, hostnet.BootID(), " ", index)
		}
	}
	return c.store.SaveObjects(storeKind, saved)
}

// adopt has a card's port in its bridge, and moves what the card has to the bridge.
func (c *Bridges) adopt(ctx context.Context, p hostnet.Placement) error {
	if err := c.db.EnsurePorts(ctx, p.Bridge, cardPort(p)); err != nil {
		return err
	}
	err := c.kernel.Adopt(p)
	if err != nil {
		if _, gone := c.kernel.Find(p.Card); gone != nil {
			return Absent(err)
		}
	}
	return err
}

// bridgeMAC is the MAC of a bridge that has a card: the card's. Not so on the userspace datapath,
// which reads the card beside the kernel and not in its place: the kernel would take in again, as
// sent to the card, what it gets by the bridge. Of a shared card others know the MAC already, so
// the kernel is kept from the port (SwitchOnly).
func bridgeMAC(card net.HardwareAddr, datapath intent.Datapath, shared bool) net.HardwareAddr {
	mac := slices.Clone(card)
	if datapath != intent.DatapathNetdev || shared || len(mac) == 0 {
		return mac
	}
	// Locally administered (IEEE 802), and other than any card's.
	const first, other = 0x0a, 0x0e
	if mac[0] = first; card[0] == first {
		mac[0] = other
	}
	return mac
}

// Placed are the ports of cards that are in their bridges.
func (c *Bridges) Placed() []ovsdb.PlacedPort {
	var list []ovsdb.PlacedPort
	for _, u := range c.uplinks {
		list = append(list, ovsdb.PlacedPort{Bridge: u.Bridge, Port: cardPort(c.placement(u))})
	}
	return list
}

// SwitchOnly are the ports of shared cards. The userspace datapath reads them beside the kernel,
// which must not take packets in twice.
func (c *Bridges) SwitchOnly(datapath intent.Datapath) []string {
	var list []string
	for _, u := range c.uplinks {
		if u.Shared && datapath == intent.DatapathNetdev {
			list = append(list, c.placement(u).Port)
		}
	}
	return list
}

// Names are the cards.
func (c *Bridges) Names() []string {
	var list []string
	for _, u := range c.uplinks {
		list = append(list, u.Card)
	}
	slices.Sort(list)
	return list
}
