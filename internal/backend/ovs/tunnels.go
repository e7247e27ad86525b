// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// neighbourSetter writes ovs-vswitchd's tunnel neighbors and routes. While it does not run there is
// nothing to write: everything is written again when it is back.
type neighbourSetter struct{ vswitchd *appctl.Client }

// SetNeighbour implements hostnet.TunnelTables.
func (s neighbourSetter) SetNeighbour(ctx context.Context, bridge string, ip netip.Addr, mac net.HardwareAddr) error {
	_, err := s.vswitchd.Call(ctx, "tnl/neigh/set", bridge, ip.String(), mac.String())
	return ifRunning(err)
}

// HostRoutes implements hostnet.TunnelTables. Between two calls ovs-vswitchd's main loop goes
// round, in which it takes notice of the kernel's changes.
func (s neighbourSetter) HostRoutes(ctx context.Context) ([]hostnet.TunnelRoute, error) {
	found, err := s.vswitchd.HostRoutes(ctx)
	routes := make([]hostnet.TunnelRoute, 0, len(found))
	for _, r := range found {
		routes = append(routes, hostnet.TunnelRoute(r))
	}
	return routes, ifRunning(err)
}

// SetRoute implements hostnet.TunnelTables.
func (s neighbourSetter) SetRoute(ctx context.Context, r hostnet.TunnelRoute) error {
	return ifRunning(s.vswitchd.SetRoute(ctx, appctl.Route(r)))
}

// DeleteRoute implements hostnet.TunnelTables.
func (s neighbourSetter) DeleteRoute(ctx context.Context, dst netip.Addr) error {
	return ifRunning(s.vswitchd.DeleteRoute(ctx, dst))
}

func ifRunning(err error) error {
	if errors.Is(err, appctl.ErrNotRunning) {
		return nil
	}
	return err
}
