// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// ovsTimeout bounds the questions to Open vSwitch that it answers at once if it runs.
const ovsTimeout = 5 * time.Second

// checkOVS asks whether Open vSwitch runs, is new enough and forwards. It asks once for each connection to the switch:
// an answer holds as long as the daemon lives.
func (a *Agent) checkOVS(ctx context.Context) (intent.Datapath, error) {
	if local := a.intent.State().Local(); a.checked.Load() && local.Node != "" {
		return local.Datapath, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	info, err := a.db.Info(ctx)
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	a.info = info
	a.mu.Unlock()
	datapath, err := a.datapath(ctx, info)
	if err != nil {
		return "", err
	}
	if datapath == intent.DatapathSystem {
		if err := a.checkHandlers(ctx); err != nil {
			return "", err
		}
	}
	a.checked.Store(true)
	return datapath, nil
}

// threads finds the numbers of threads in what memory/show prints; ovs-vswitchd leaves out numbers that are zero.
var threads = regexp.MustCompile(`\b(handlers|revalidators):(\d+)`)

// checkHandlers finds an ovs-vswitchd that was started within the first 10 seconds of its machine and counted no
// processors: it then has no thread that answers the kernel, and every first packet of a flow is lost.
func (a *Agent) checkHandlers(ctx context.Context) error {
	text, err := a.vswitchd.Call(ctx, "memory/show")
	if err != nil {
		return err
	}
	if withoutHandlers(text) {
		return errors.New("ovs-vswitchd runs without handler threads and drops every new flow, as it does when it is started" +
			" in the first 10 seconds after boot: restart it (systemctl restart openvswitch-switch)")
	}
	return nil
}

// withoutHandlers says so of memory/show's answer. Before a datapath was opened there are no threads of either kind.
func withoutHandlers(text string) bool {
	found := map[string]bool{}
	for _, m := range threads.FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2] != "0"
	}
	return found["revalidators"] && !found["handlers"]
}

// ensureBridge makes the bridge and the ports that are there without any pod. The bridge is asked for once after each
// connection only: the question itself changes the database.
func (a *Agent) ensureBridge(ctx context.Context, l intent.Local) error {
	if a.bridgeAsked.CompareAndSwap(false, true) {
		err := a.db.EnsureBridge(ctx, ovsdb.Bridge{Name: a.cfg.Bridge, Datapath: string(l.Datapath)})
		if err != nil {
			a.bridgeAsked.Store(false)
			return err
		}
	}
	if err := a.db.EnsurePorts(ctx, a.cfg.Bridge, infrastructure(a.cfg, l)...); err != nil {
		// The bridge itself may be gone.
		a.bridgeAsked.Store(false)
		return err
	}
	return nil
}

// synced follows each Sync on a new connection: a switch that has just started may be holding its flows back, and knows
// no tunnel neighbours.
func (a *Agent) synced(ctx context.Context) error {
	arm, err := a.mayHoldBack(ctx)
	if err != nil {
		return err
	}
	if err := a.db.ReleaseFlowRestore(ctx, arm); err != nil {
		return fmt.Errorf("let Open vSwitch forward: %w", err)
	}
	a.neighbours.Renew()
	if err := a.host.Confirm(a.cfg.GatewayInterface, a.gatewayNeighbour); err != nil {
		// The kernel finds them by itself, only later.
		a.log.Debug("neighbours of the gateway", "err", err)
	}
	a.kick()
	return nil
}

// mayHoldBack says whether the next ovs-vswitchd may forward by the kernel's old flows alone until the agent has given it
// the new ones. That holds back all bridges, at boot until somebody starts the agent: not where others have bridges too,
// one of which may be the node's own way to its API server. The userspace datapath has no old flows to keep.
func (a *Agent) mayHoldBack(ctx context.Context) (bool, error) {
	if a.intent.State().Local().Datapath != intent.DatapathSystem {
		return false, nil
	}
	bridges, err := a.db.Bridges(ctx)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(bridges, func(b ovsdb.BridgeState) bool { return !b.Own }), nil
}

// gatewayNeighbour is what the bridge answers the host's kernel that asks for an address: a pod of this node, or the
// router for what is behind another node.
func (a *Agent) gatewayNeighbour(address netip.Addr) (net.HardwareAddr, bool) {
	s := a.intent.State()
	for p := range s.PortsWith(address) {
		// Others are behind the router, or mean nothing to the host.
		if p.Network == intent.DefaultNetworkName {
			return p.MAC.HardwareAddr(), true
		}
	}
	for p := range s.Ports().All() {
		n, _ := s.Networks().Get(p.Network)
		if slices.Contains(p.NodeAddresses, address) || n.FromNodes() && slices.Contains(p.Addresses, address) {
			return intent.RouterMAC.HardwareAddr(), true
		}
	}
	for n := range s.Nodes().All() {
		for _, sn := range n.Subnets {
			if n.Name != a.opts.NodeName && sn.Gateway == address {
				return intent.RouterMAC.HardwareAddr(), true
			}
		}
	}
	for n := range s.Networks().All() {
		for _, sn := range sharedSubnets(s, n) {
			if sn.Gateway == address {
				return intent.RouterMAC.HardwareAddr(), true
			}
		}
	}
	return nil, false
}
