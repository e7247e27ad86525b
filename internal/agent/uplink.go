// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// setUplink notes which interface has the node's address. If it is an Open vSwitch bridge's, on the userspace datapath it
// vanishes with ovs-vswitchd, so what it has is remembered. It returns the network cards of such a bridge.
func (a *Agent) setUplink(bridge *ovsdb.BridgeState, l intent.Local, uplink hostnet.Uplink) ([]string, error) {
	a.mu.Lock()
	a.uplink = uplink.Name
	a.mu.Unlock()
	if bridge == nil || l.Datapath != intent.DatapathNetdev {
		return nil, a.keeper.Set("", netip.Addr{})
	}
	cards := slices.DeleteFunc(slices.Clone(bridge.Ports), func(p string) bool { return p == bridge.Name })
	return cards, a.keeper.Set(uplink.Name, uplink.Address.Addr())
}

// watchUplink reconciles when the node's address or the MTU of its interface changes.
func (a *Agent) watchUplink(ctx context.Context) error {
	name := func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.uplink
	}
	return hostnet.WatchUplink(ctx, name, a.kick)
}
