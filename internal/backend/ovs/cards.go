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
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// idCard is the external_ids key of the bridges that Coelan has made for network cards, with the
// card's name.
const idCard = "coelan-card"

// cardPort is the OpenFlow number of a card on its bridge.
const cardPort = 1

// cards makes bridges for the network cards that lead to physical networks.
type cards struct {
	uplinks []intent.Uplink // those with cards, by physical network
	db      cardDatabase
	kernel  cardKernel
}

// newCards are those of the uplinks that have a card.
func newCards(uplinks intent.Table[intent.Uplink]) *cards {
	c := &cards{}
	for u := range uplinks.All() {
		if u.Card != "" {
			c.uplinks = append(c.uplinks, u)
		}
	}
	return c
}

// cardDatabase is what cards need of Open vSwitch's database.
type cardDatabase interface {
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
	DelBridge(ctx context.Context, name string) error
}

// cardKernel is what cards need of the node's kernel: see hostnet.FindCard and hostnet.Keeper.
type cardKernel interface {
	// Run gives the bridges' interfaces back what they had when ovs-vswitchd has made them anew.
	Run(ctx context.Context) error
	// Interrupted are the cards that were being given back when the agent ended, by bridge.
	Interrupted() map[string]string
	Find(card string) (hostnet.Card, error)
	Adopt(card, bridge string) error
	Return(card, bridge string, remove func() error) error
}

// ensure has a bridge for each card, and removes those that are not wanted any more: their cards
// get their addresses back. It returns what failed, by physical network, and other errors.
func (c *cards) ensure(ctx context.Context, bridges []ovsdb.BridgeState, datapath intent.Datapath,
	node []netip.Addr,
) (failed map[string]error, err error) {
	wanted := map[string]string{} // cards, by bridge
	for _, u := range c.uplinks {
		wanted[u.Bridge] = u.Card
	}
	var errs []error
	var left []ovsdb.BridgeState
	for _, b := range bridges {
		card := b.ExternalIDs[idCard]
		if !b.Own || card == "" || wanted[b.Name] == card {
			left = append(left, b)
			continue
		}
		errs = append(errs, c.remove(ctx, b.Name, card))
	}
	// Their bridges may be gone already.
	for bridge, card := range c.kernel.Interrupted() {
		if wanted[bridge] != card {
			errs = append(errs, c.remove(ctx, bridge, card))
		}
	}
	failed = map[string]error{}
	for _, u := range c.uplinks {
		if err := c.ensureBridge(ctx, u.Card, u.Bridge, left, datapath, node); err != nil {
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

func (c *cards) ensureBridge(ctx context.Context, card, bridge string, bridges []ovsdb.BridgeState,
	datapath intent.Datapath, node []netip.Addr,
) error {
	var have *ovsdb.BridgeState
	for i, b := range bridges {
		switch {
		case b.Name == bridge && b.ExternalIDs[idCard] == "":
			return absentError{fmt.Errorf(
				"bridge %s is not Coelan's: use it by bridgeMappings, or set another bridge in uplinks", bridge)}
		case b.Name == bridge && b.ExternalIDs[idCard] == card:
			have = &bridges[i]
		case b.Name != bridge && slices.Contains(b.Ports, card):
			return absentError{fmt.Errorf(
				"interface %s is a port of bridge %s: use that by bridgeMappings, or remove the port", card, b.Name)}
		}
	}
	in := have != nil && slices.Contains(have.Ports, card)
	if in && have.Datapath == string(datapath) {
		return c.adopt(ctx, card, bridge)
	}
	found, err := c.kernel.Find(card)
	if err != nil {
		return absentError{err}
	}
	if !in {
		if err := found.Usable(node); err != nil {
			return absentError{err}
		}
	}
	// The question itself changes the database.
	if have == nil || have.Datapath != string(datapath) {
		err := c.db.EnsureBridge(ctx, ovsdb.Bridge{
			Name: bridge, Datapath: string(datapath), MAC: bridgeMAC(found.MAC, datapath), Switch: true,
			ExternalIDs: map[string]string{idCard: card},
		})
		if err != nil {
			return err
		}
	}
	return c.adopt(ctx, card, bridge)
}

// adopt puts a card into its bridge.
func (c *cards) adopt(ctx context.Context, card, bridge string) error {
	if err := c.db.EnsurePorts(ctx, bridge, ovsdb.Port{Name: card, OFPort: cardPort}); err != nil {
		return err
	}
	err := c.kernel.Adopt(card, bridge)
	if err != nil {
		if _, gone := c.kernel.Find(card); gone != nil {
			return absentError{err}
		}
	}
	return err
}

// bridgeMAC is the MAC of a bridge that has a card: the card's. Not so on the userspace datapath,
// which reads the card beside the kernel and not in its place: the kernel would take in again, as
// sent to the card, what it gets by the bridge.
func bridgeMAC(card net.HardwareAddr, datapath intent.Datapath) net.HardwareAddr {
	mac := slices.Clone(card)
	if datapath != intent.DatapathNetdev || len(mac) == 0 {
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
func (c *cards) placed() []placedPort {
	var list []placedPort
	for _, u := range c.uplinks {
		list = append(list, placedPort{u.Bridge, ovsdb.Port{Name: u.Card, OFPort: cardPort}})
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
	return hostnet.NewKeeper(k.log, k.config.StateFile(fmt.Sprintf(cardFiles, bridge)))
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
func (*kernelCards) Find(card string) (hostnet.Card, error) { return hostnet.FindCard(card) }

// Adopt implements cardKernel.
func (k *kernelCards) Adopt(card, bridge string) error {
	return k.keeper(bridge).Adopt(card, bridge, k.config.SysctlDir)
}

// Return implements cardKernel.
func (k *kernelCards) Return(card, bridge string, remove func() error) error {
	if err := k.keeper(bridge).Return(card, bridge, k.config.SysctlDir, remove); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.interrupted, bridge)
	return nil
}
