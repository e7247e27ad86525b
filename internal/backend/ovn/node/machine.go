// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// machineBridge says what the bridge of a machine of OpenStack is to be.
const machineBridge = "on a machine of OpenStack the bridge of the agent has the machine's network card as a port, and the " +
	"node's address is on the bridge's own interface; set backend.machineBridge, or configure that where the machine's " +
	"network is configured"

// machineCard is the name of the card of a machine among cards, and machineNumber its number. The
// backend ovs gives physical networks higher ones.
const (
	machineCard   = "machine of OpenStack"
	machineNumber = 1
)

// machinePort is the port of the bridge that leads to the machine's card.
var machinePort = hostnet.SharedPort(machineNumber)

// ensureMachine has the bridge of a machine of OpenStack, with the interface in it that has the
// node's address, if the agent is to make it. Where it is not, a bridge that it has made goes, and
// the interface gets back what it had. A bridge of the administrator's is left alone.
func (b *Backend) ensureMachine(ctx context.Context, node intent.Node) error {
	bridges, err := b.db.Bridges(ctx)
	if err != nil {
		return err
	}
	// Those that the backend ovs has made are not its affair.
	bridges = slices.DeleteFunc(bridges, func(s ovsdb.BridgeState) bool {
		return s.Name != b.Config.Bridge && s.Own && s.ExternalIDs[cards.ID] != ""
	})
	uplinks, datapath, err := b.machineUplink(node, bridges)
	if err != nil {
		return err
	}
	b.cards.Want(slices.Values(uplinks), map[string]uint32{machineCard: machineNumber})
	failed, err := b.cards.Ensure(ctx, bridges, datapath, node.Addresses)
	if failed := failed[machineCard]; failed != nil {
		return fmt.Errorf("bridge %s on a machine of OpenStack: %w", b.Config.Bridge, failed)
	}
	if err != nil {
		return err
	}
	if len(uplinks) == 0 {
		return nil
	}
	card := uplinks[0].Card
	b.host.follow(card)
	// Pods' interfaces may have less, and Open vSwitch would have the bridge follow.
	return b.db.RequestMTU(ctx, b.Config.Bridge, b.cards.MTU(card))
}

// machineUplink is the card of a machine of OpenStack that the agent is to put into its bridge, and
// the bridge's datapath; none: there is nothing to do.
func (b *Backend) machineUplink(node intent.Node, bridges []ovsdb.BridgeState) (
	[]intent.Uplink, intent.Datapath, error,
) {
	if !b.logical.Trunk() || !b.Config.Backend.MachineBridge {
		return nil, "", nil
	}
	var have ovsdb.BridgeState
	if i := slices.IndexFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == b.Config.Bridge }); i >= 0 {
		have = bridges[i]
	}
	uplink, err := b.host.find(node.Addresses[0])
	card := uplink.Name
	if card == "" || card == b.Config.Bridge {
		card = cmp.Or(have.ExternalIDs[cards.ID], b.cards.Under(machinePort))
	}
	switch {
	case card == "" && have.Name != "":
		return nil, "", nil // an administrator's
	case card == "":
		return nil, "", fmt.Errorf("node %s: %w; does the Node object name another host?", node.Name, err)
	case slices.ContainsFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == card }):
		return nil, "", fmt.Errorf("the node's address %s is on bridge %s: have it on the network card, which the agent then "+
			"puts into bridge %s, or on that", node.Addresses[0], card, b.Config.Bridge)
	case have.Name != "" && have.ExternalIDs[cards.ID] == "":
		return nil, "", fmt.Errorf("bridge %s is not Coelan's, and the node's address %s is on interface %s: remove the bridge, "+
			"which the agent then makes, or put the interface and the address there", have.Name, node.Addresses[0], card)
	}
	want := have.Datapath
	if b.Config.Datapath != config.DatapathAuto {
		want = string(b.Config.Datapath)
	}
	b.status.mu.Lock()
	info := b.status.info
	b.status.mu.Unlock()
	datapath, err := info.Datapath(want)
	u := intent.Uplink{Physical: machineCard, Bridge: b.Config.Bridge, Card: card, Shared: true}
	return []intent.Uplink{u}, intent.Datapath(datapath), err
}
