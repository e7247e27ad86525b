// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// idCard is the external_ids key of the bridges that Coelan has made for network cards, with the
// card's name. idCardPort has the port's name where that is not the card itself.
const (
	idCard     = "coelan-card"
	idCardPort = "coelan-card-port"
)

// cardPort is the OpenFlow number of a card on its bridge.
const cardPort = 1

// cards makes bridges for the network cards that lead to physical networks.
type cards struct {
	uplinks []intent.Uplink   // those with cards, by physical network
	numbers map[string]uint32 // the OpenFlow ports of all uplinks on the integration bridge
	db      cardDatabase
	kernel  cardKernel
	// failed are the moves of shared cards that were undone, by physical network.
	failed map[string]failedMove
	// read are the numbers of the interfaces that ovs-vswitchd reads, by physical network. On the
	// userspace datapath it would go on with one that is gone, though there is another of the name.
	// They are saved for the case that this happens while the agent is away.
	read  map[string]int
	store objectStore
}

// kindCard is the kind of what is saved of cards: the run of the kernel and the interface's number
// in that.
const kindCard = "card"

// failedMove is one that is not tried again at once: each costs the node some packets.
type failedMove struct {
	err error
	at  time.Time
}

// moveAgain is how long a move that failed is left.
const moveAgain = 15 * time.Second

// newCards are those of the uplinks that have a card.
func newCards(uplinks intent.Table[intent.Uplink], numbers map[string]uint32, store objectStore) *cards {
	c := &cards{numbers: numbers, failed: map[string]failedMove{}, read: map[string]int{}, store: store}
	for physical, data := range store.Objects(kindCard) {
		boot, number, _ := strings.Cut(string(data), " ")
		if index, err := strconv.Atoi(number); err == nil && boot == hostnet.BootID() {
			c.read[physical] = index
		}
	}
	for u := range uplinks.All() {
		if u.Card != "" {
			c.uplinks = append(c.uplinks, u)
		}
	}
	return c
}

// placement is how the card of an uplink is put into its bridge.
func (c *cards) placement(u intent.Uplink) hostnet.Placement {
	p := hostnet.Placement{Card: u.Card, Bridge: u.Bridge, Port: u.Card}
	if u.Shared {
		p.Port = hostnet.SharedPort(c.numbers[u.Physical])
	}
	return p
}

// cardIDs are the external_ids of a placement's bridge.
func cardIDs(p hostnet.Placement) map[string]string {
	ids := map[string]string{idCard: p.Card}
	if p.Port != p.Card {
		ids[idCardPort] = p.Port
	}
	return ids
}

// cardDatabase is what cards need of Open vSwitch's database.
type cardDatabase interface {
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
	ClosePort(ctx context.Context, bridge, name string) error
	DelBridge(ctx context.Context, name string) error
}

// cardKernel is what cards need of the node's kernel: see hostnet.FindCard and hostnet.Keeper.
type cardKernel interface {
	// Run gives the bridges' interfaces back what they had when ovs-vswitchd has made them anew.
	Run(ctx context.Context) error
	// Interrupted are the cards that were being given back when the agent ended, by bridge.
	Interrupted() map[string]string
	Find(card string) (hostnet.Card, error)
	// Index is the kernel's number of an interface; 0: there is none.
	Index(card string) int
	HasPort(p hostnet.Placement) bool
	Prepare(p hostnet.Placement) error
	Adopt(p hostnet.Placement) error
	Return(card, bridge string, remove func() error) error
}

// ensure has a bridge for each card, and removes those that are not wanted any more: their cards
// get their addresses back. It returns what failed, by physical network, and other errors.
func (c *cards) ensure(ctx context.Context, bridges []ovsdb.BridgeState, datapath intent.Datapath,
	node []netip.Addr,
) (failed map[string]error, err error) {
	wanted := map[string]hostnet.Placement{} // by bridge
	for _, u := range c.uplinks {
		wanted[u.Bridge] = c.placement(u)
	}
	var errs []error
	var left []ovsdb.BridgeState
	for _, b := range bridges {
		card, p := b.ExternalIDs[idCard], wanted[b.Name]
		if !b.Own || card == "" || p.Card == card && b.ExternalIDs[idCardPort] == cardIDs(p)[idCardPort] {
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
func (c *cards) remove(ctx context.Context, bridge, card string) error {
	err := c.kernel.Return(card, bridge, func() error { return c.db.DelBridge(ctx, bridge) })
	if err != nil {
		return fmt.Errorf("give interface %s of bridge %s back: %w", card, bridge, err)
	}
	return nil
}

func (c *cards) ensureBridge(ctx context.Context, u intent.Uplink, bridges []ovsdb.BridgeState,
	datapath intent.Datapath, node []netip.Addr,
) error {
	p := c.placement(u)
	var have ovsdb.BridgeState
	for _, b := range bridges {
		switch {
		case b.Name == u.Bridge && b.ExternalIDs[idCard] == "" && u.Shared && slices.Contains(b.Ports, u.Card):
			return nil // an administrator's, with the node's address on it
		case b.Name == u.Bridge && b.ExternalIDs[idCard] == "":
			return absentError{fmt.Errorf(
				"bridge %s is not Coelan's: use it by bridgeMappings, or set another bridge in uplinks", u.Bridge)}
		case b.Name == u.Bridge && b.ExternalIDs[idCard] == u.Card:
			have = b
		case b.Name != u.Bridge && slices.Contains(b.Ports, u.Card):
			return absentError{fmt.Errorf(
				"interface %s is a port of bridge %s: use that by bridgeMappings, or remove the port", u.Card, b.Name)}
		}
	}
	in, index := slices.Contains(have.Ports, p.Port), c.kernel.Index(u.Card)
	another := c.read[u.Physical] != 0 && index != 0 && index != c.read[u.Physical]
	if another && datapath == intent.DatapathSystem {
		// ovs-vswitchd may have put it into the kernel's datapath already.
		card, err := c.kernel.Find(u.Card)
		another = err == nil && card.Master == ""
	}
	there := in && index != 0 && c.kernel.HasPort(p) && !another
	if there && have.Datapath == string(datapath) {
		return c.remember(u, index, c.adopt(ctx, p))
	}
	found, err := c.kernel.Find(u.Card)
	if err != nil {
		return absentError{err}
	}
	if !there {
		if err := found.Usable(node, u.Shared); err != nil {
			return absentError{err}
		}
	}
	if f, ok := c.failed[u.Physical]; ok && time.Since(f.at) < moveAgain {
		return f.err
	}
	// The question itself changes the database.
	err = c.db.EnsureBridge(ctx, ovsdb.Bridge{
		Name: u.Bridge, Datapath: string(datapath), MAC: bridgeMAC(found.MAC, datapath, u.Shared), Switch: true,
		ExternalIDs: cardIDs(p),
	})
	if err != nil {
		return err
	}
	if !there {
		err = c.place(ctx, p, in)
	} else {
		err = c.adopt(ctx, p)
	}
	if err = c.remember(u, found.Index, err); err != nil && u.Shared {
		err = errors.Join(fmt.Errorf("the node's network is left as it was: %w", err), c.undo(ctx, p))
		c.failed[u.Physical] = failedMove{err, time.Now()}
	}
	return err
}

// undo removes what a move that failed has made. There is time for it also if the move had too
// little.
func (c *cards) undo(ctx context.Context, p hostnet.Placement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ovsTimeout)
	defer cancel()
	return c.remove(ctx, p.Bridge, p.Card)
}

// place puts a card into its bridge. again says that the database has its port already, of which
// there was none when ovs-vswitchd looked: it would not look again by itself.
func (c *cards) place(ctx context.Context, p hostnet.Placement, again bool) error {
	if err := c.kernel.Prepare(p); err != nil {
		return err
	}
	if again {
		if err := c.db.ClosePort(ctx, p.Bridge, p.Port); err != nil {
			return err
		}
	}
	return c.adopt(ctx, p)
}

// remember notes which interface ovs-vswitchd reads, if there was no error, which it returns.
func (c *cards) remember(u intent.Uplink, index int, err error) error {
	if err != nil || c.read[u.Physical] == index {
		return err
	}
	c.read[u.Physical] = index
	saved := map[string][]byte{}
	for _, of := range c.uplinks {
		if index := c.read[of.Physical]; index != 0 {
			saved[of.Physical] = fmt.Append(nil, hostnet.BootID(), " ", index)
		}
	}
	return c.store.SaveObjects(kindCard, saved)
}

// adopt has a card's port in its bridge, and moves what the card has to the bridge.
func (c *cards) adopt(ctx context.Context, p hostnet.Placement) error {
	if err := c.db.EnsurePorts(ctx, p.Bridge, ovsdb.Port{Name: p.Port, OFPort: cardPort}); err != nil {
		return err
	}
	err := c.kernel.Adopt(p)
	if err != nil {
		if _, gone := c.kernel.Find(p.Card); gone != nil {
			return absentError{err}
		}
	}
	return err
}

// bridgeMAC is the MAC of a bridge that has a card: the card's. Not so on the userspace datapath,
// which reads the card beside the kernel and not in its place: the kernel would take in again, as
// sent to the card, what it gets by the bridge. Of a shared card others know the MAC already, so
// the kernel is kept from the port (switchOnly).
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

// placed are the ports of cards that are in their bridges.
func (c *cards) placed() []ovsdb.PlacedPort {
	var list []ovsdb.PlacedPort
	for _, u := range c.uplinks {
		port := ovsdb.Port{Name: c.placement(u).Port, OFPort: cardPort}
		list = append(list, ovsdb.PlacedPort{Bridge: u.Bridge, Port: port})
	}
	return list
}

// switchOnly are the ports of shared cards. The userspace datapath reads them beside the kernel,
// which must not take packets in twice.
func (c *cards) switchOnly(datapath intent.Datapath) []string {
	var list []string
	for _, u := range c.uplinks {
		if u.Shared && datapath == intent.DatapathNetdev {
			list = append(list, c.placement(u).Port)
		}
	}
	return list
}

// names are the cards.
func (c *cards) names() []string {
	var list []string
	for _, u := range c.uplinks {
		list = append(list, u.Card)
	}
	slices.Sort(list)
	return list
}

// kernelCards are those of the kernel. What the bridges' interfaces have is remembered in a file
// for each.
type kernelCards struct {
	log     *slog.Logger
	config  config.Config
	keepers map[string]*hostnet.Keeper // by bridge

	mu          sync.Mutex
	interrupted map[string]string
}

// cardFiles are named by bridges.
const cardFiles = "card-%s.json"

func newKernelCards(log *slog.Logger, c config.Config, uplinks []intent.Uplink) *kernelCards {
	k := &kernelCards{log: log, config: c, keepers: map[string]*hostnet.Keeper{}, interrupted: map[string]string{}}
	for _, u := range uplinks {
		k.keepers[u.Bridge] = k.open(u.Bridge)
	}
	files, _ := filepath.Glob(c.StateFile(fmt.Sprintf(cardFiles, "*"))) // the pattern is a good one
	for _, path := range files {
		bridge := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "card-"), ".json")
		if card := k.keeper(bridge).Link(); card != "" && card != bridge {
			k.interrupted[bridge] = card
		}
	}
	return k
}

func (k *kernelCards) open(bridge string) *hostnet.Keeper {
	return hostnet.NewKeeper(k.log, k.config.StateFile(fmt.Sprintf(cardFiles, bridge)), k.config.SysctlDir)
}

// keeper is that of a bridge; one that is about to be removed may have none yet.
func (k *kernelCards) keeper(bridge string) *hostnet.Keeper {
	if keeper := k.keepers[bridge]; keeper != nil {
		return keeper
	}
	return k.open(bridge)
}

// Run implements cardKernel.
func (k *kernelCards) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, keeper := range k.keepers {
		g.Go(func() error { return keeper.Run(ctx) })
	}
	return g.Wait()
}

// Interrupted implements cardKernel.
func (k *kernelCards) Interrupted() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.interrupted)
}

// Find implements cardKernel.
func (k *kernelCards) Find(card string) (hostnet.Card, error) {
	return hostnet.FindCard(card, k.config.SysctlDir)
}

// Index implements cardKernel.
func (*kernelCards) Index(card string) int { return hostnet.Index(card) }

// HasPort implements cardKernel.
func (*kernelCards) HasPort(p hostnet.Placement) bool { return p.HasPort() }

// Prepare implements cardKernel.
func (k *kernelCards) Prepare(p hostnet.Placement) error { return k.keeper(p.Bridge).Prepare(p) }

// Adopt implements cardKernel.
func (k *kernelCards) Adopt(p hostnet.Placement) error { return k.keeper(p.Bridge).Adopt(p) }

// Return implements cardKernel.
func (k *kernelCards) Return(card, bridge string, remove func() error) error {
	if err := k.keeper(bridge).Return(card, bridge, remove); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.interrupted, bridge)
	return nil
}
