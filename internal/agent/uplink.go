// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
)

// setUplink notes which interface has the node's address, and whether it is an Open vSwitch bridge's. On the userspace
// datapath such an interface vanishes with ovs-vswitchd, so what it has is remembered.
func (a *Agent) setUplink(onBridge bool, l intent.Local, uplink hostnet.Uplink) error {
	a.mu.Lock()
	a.uplink, a.uplinkOnOVS = uplink.Name, onBridge
	a.mu.Unlock()
	if onBridge && l.Datapath == intent.DatapathNetdev {
		return a.keeper.Set(uplink.Name, uplink.Address.Addr())
	}
	return a.keeper.Set("", netip.Addr{})
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
