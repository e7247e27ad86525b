// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/config"
)

// Kernel is what Bridges need of the node's kernel: see hostnet.FindCard and hostnet.Keeper.
type Kernel interface {
	// Run gives the bridges' interfaces back what they had when ovs-vswitchd has made them anew.
	Run(ctx context.Context) error
	// Interrupted are the cards that were being given back when the agent ended, by bridge.
	Interrupted() map[string]string
	Find(card string) (hostnet.Card, error)
	// Index is the kernel's number of an interface; 0: there is none.
	Index(card string) int
	// MTU is that of an interface; 0: there is none.
	MTU(card string) int
	// Under is the card below a hostnet.SharedPort; empty: there is none.
	Under(port string) string
	HasPort(p hostnet.Placement) bool
	Prepare(p hostnet.Placement) error
	Adopt(p hostnet.Placement) error
	Return(card, bridge string, remove func() error) error
}

// Host is the node's kernel. What the bridges' interfaces have is remembered in a file for each.
type Host struct {
	log     *slog.Logger
	config  config.Config
	keepers map[string]*hostnet.Keeper // by bridge

	mu          sync.Mutex
	interrupted map[string]string
}

// cardFiles are named by bridges.
const cardFiles = "card-%s.json"

// NewHost keeps what the interfaces of bridges have, of which there may be some later.
func NewHost(log *slog.Logger, c config.Config, bridges ...string) *Host {
	k := &Host{log: log, config: c, keepers: map[string]*hostnet.Keeper{}, interrupted: map[string]string{}}
	for _, bridge := range bridges {
		k.keepers[bridge] = k.open(bridge)
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

func (k *Host) open(bridge string) *hostnet.Keeper {
	return hostnet.NewKeeper(k.log, k.config.StateFile(fmt.Sprintf(cardFiles, bridge)), k.config.SysctlDir)
}

// keeper is that of a bridge; one that is about to be removed may have none yet.
func (k *Host) keeper(bridge string) *hostnet.Keeper {
	if keeper := k.keepers[bridge]; keeper != nil {
		return keeper
	}
	return k.open(bridge)
}

// Run implements Kernel.
func (k *Host) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, keeper := range k.keepers {
		g.Go(func() error { return keeper.Run(ctx) })
	}
	return g.Wait()
}

// Interrupted implements Kernel.
func (k *Host) Interrupted() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.interrupted)
}

// Find implements Kernel.
func (k *Host) Find(card string) (hostnet.Card, error) {
	return hostnet.FindCard(card, k.config.SysctlDir)
}

// Index implements Kernel.
func (*Host) Index(card string) int { return hostnet.Index(card) }

// MTU implements Kernel.
func (*Host) MTU(card string) int { return hostnet.MTU(card) }

// Under implements Kernel.
func (*Host) Under(port string) string { return hostnet.Under(port) }

// HasPort implements Kernel.
func (*Host) HasPort(p hostnet.Placement) bool { return p.HasPort() }

// Prepare implements Kernel.
func (k *Host) Prepare(p hostnet.Placement) error { return k.keeper(p.Bridge).Prepare(p) }

// Adopt implements Kernel.
func (k *Host) Adopt(p hostnet.Placement) error { return k.keeper(p.Bridge).Adopt(p) }

// Return implements Kernel.
func (k *Host) Return(card, bridge string, remove func() error) error {
	if err := k.keeper(bridge).Return(card, bridge, remove); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.interrupted, bridge)
	return nil
}
