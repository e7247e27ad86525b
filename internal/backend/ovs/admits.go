// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
)

// Admits says why this node cannot have a configuration in place of its own, as far as that shows
// before anything is changed: an MTU that tunnels do not carry, a network card or a bridge that is
// not there. What the node has already is not looked at.
func (b *Backend) Admits(ctx context.Context, c config.Config) error {
	node, err := backend.OwnNode(b.Intent.State(), b.Node)
	if err != nil {
		return err
	}
	errs := []error{uplinksFit(len(c.PhysicalNetworks()))}
	if c.MTU != b.Config.MTU {
		_, _, err := b.reconciler.local(c, node, b.Intent.State().Local().Datapath)
		errs = append(errs, err)
	}
	bridges, err := b.uplinks.db.Bridges(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.PhysicalNetworks())) {
		if err := b.admitsNetwork(name, c, node.Addresses, bridges); err != nil {
			errs = append(errs, physicalError(name, err))
		}
	}
	return errors.Join(errs...)
}

// admitsNetwork is about one physical network.
func (b *Backend) admitsNetwork(name string, c config.Config, node []netip.Addr, bridges []ovsdb.BridgeState) error {
	u, own := c.Uplinks[name]
	if !own {
		bridge := c.BridgeMappings[name]
		if bridge == b.Config.BridgeMappings[name] ||
			slices.ContainsFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == bridge }) {
			return nil
		}
		return fmt.Errorf("bridge %s does not exist: make it, with the network card in it", bridge)
	}
	if before, there := b.Config.Uplinks[name]; there && before == u {
		return nil
	}
	card, err := b.uplinks.cards.Find(u.Interface)
	if err != nil {
		return err
	}
	return card.Usable(node, u.Shared)
}
