// SPDX-License-Identifier: Apache-2.0

// Package cardsfake is the kernel of a node, as package cards needs it, in memory.
package cardsfake

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// Cards are a node's network cards: eth0 to eth9, of which some cannot be used.
type Cards struct {
	sync.Mutex
	Unlike    map[string]hostnet.Card
	Gone      map[string]bool
	Coming    map[string]bool   // those that come when they have been looked for once
	Replaced  map[string]int    // how often there was another interface of the name
	Ports     map[string]string // cards, by port
	Prepared  int
	Adopted   map[string]string // bridges, by card
	Refuse    error             // of Adopt
	Returning map[string]string // by bridge, as Interrupted has them
}

// New are cards that can all be used and are in no bridge.
func New() *Cards {
	return &Cards{
		Unlike: map[string]hostnet.Card{}, Gone: map[string]bool{}, Coming: map[string]bool{},
		Replaced: map[string]int{}, Ports: map[string]string{}, Adopted: map[string]string{},
		Returning: map[string]string{},
	}
}

// Run implements cards.Kernel.
func (*Cards) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Interrupted implements cards.Kernel.
func (k *Cards) Interrupted() map[string]string {
	k.Lock()
	defer k.Unlock()
	return maps.Clone(k.Returning)
}

// Find implements cards.Kernel.
func (k *Cards) Find(card string) (hostnet.Card, error) {
	k.Lock()
	defer k.Unlock()
	if k.Gone[card] {
		return hostnet.Card{}, errors.New("interface " + card + " does not exist on this node")
	}
	c := k.Unlike[card]
	c.Index = 7 + k.Replaced[card]
	c.Name, c.MAC = card, net.HardwareAddr{0x52, 0x54, 0, 0, 0, card[len(card)-1]}
	return c, nil
}

// Index implements cards.Kernel.
func (k *Cards) Index(card string) int {
	k.Lock()
	defer k.Unlock()
	if k.Gone[card] || k.Coming[card] {
		delete(k.Coming, card)
		return 0
	}
	return 7 + k.Replaced[card]
}

// MTU implements cards.Kernel.
func (*Cards) MTU(string) int { return 1400 }

// Under implements cards.Kernel.
func (k *Cards) Under(port string) string {
	k.Lock()
	defer k.Unlock()
	return k.Ports[port]
}

// HasPort implements cards.Kernel.
func (k *Cards) HasPort(p hostnet.Placement) bool {
	k.Lock()
	defer k.Unlock()
	return p.Port == p.Card || k.Ports[p.Port] == p.Card
}

// Prepare implements cards.Kernel.
func (k *Cards) Prepare(p hostnet.Placement) error {
	k.Lock()
	defer k.Unlock()
	if k.Gone[p.Card] {
		return errors.New("interface " + p.Card + ": Link not found")
	}
	k.Prepared++
	k.Ports[p.Port] = p.Card
	return nil
}

// Adopt implements cards.Kernel.
func (k *Cards) Adopt(p hostnet.Placement) error {
	k.Lock()
	defer k.Unlock()
	if k.Gone[p.Card] {
		return errors.New("interface " + p.Card + ": Link not found")
	}
	if k.Refuse != nil {
		return k.Refuse
	}
	k.Adopted[p.Card] = p.Bridge
	return nil
}

// Return implements cards.Kernel.
func (k *Cards) Return(card, bridge string, remove func() error) error {
	if err := remove(); err != nil {
		return err
	}
	k.Lock()
	defer k.Unlock()
	delete(k.Adopted, card)
	delete(k.Returning, bridge)
	maps.DeleteFunc(k.Ports, func(_, of string) bool { return of == card })
	return nil
}

// In is the bridge that a card is in.
func (k *Cards) In(card string) string {
	k.Lock()
	defer k.Unlock()
	return k.Adopted[card]
}
