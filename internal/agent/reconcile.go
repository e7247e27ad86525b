// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"time"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// Bounds of one reconciliation, and the pause after failed ones.
const (
	reconcileTimeout    = 15 * time.Second
	minReconcileBackoff = 100 * time.Millisecond
	maxReconcileBackoff = 5 * time.Second
)

// reconcileLoop brings everything but the flows to what it should be, whenever something may have changed it: nodes,
// the database, the connection to the switch, the host's interfaces.
func (a *Agent) reconcileLoop(ctx context.Context) error {
	changes, stop := a.db.Watch()
	defer stop()
	backoff := minReconcileBackoff
	for {
		err := a.reconcile(ctx)
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(backoff)
			backoff = min(2*backoff, maxReconcileBackoff)
		} else {
			backoff = minReconcileBackoff
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-changes:
			// Each pod that starts makes a handful of changes.
			wait(ctx, settle)
		case <-retry:
		}
	}
}

// settle is how long changes of the database are gathered.
const settle = 100 * time.Millisecond

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (a *Agent) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// reconcile goes through the conditions in order and stops at the first that cannot be met.
func (a *Agent) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	node, err := ownNode(a.intent.State(), a.opts.NodeName)
	if problem := a.ownProblem(); problem != nil {
		a.nodeEvent("NodeNotUsable", problem)
		a.conditions.set(condNode, problem)
	} else {
		a.conditions.set(condNode, err)
	}
	if err != nil {
		// Nothing to try again: the next change of the nodes comes by itself.
		return nil
	}
	datapath, err := a.checkOVS(ctx)
	a.conditions.set(condOVS, err)
	if err != nil {
		a.nodeEvent("NetworkNotReady", err)
		return err
	}
	state, host, err := a.setLocal(ctx, node, datapath)
	if err == nil {
		err = a.ensureBridge(ctx, state.Local())
	}
	a.conditions.set(condBridge, err)
	if err != nil {
		a.nodeEvent("NetworkNotReady", err)
		return err
	}
	a.host.Set(host)
	err = errors.Join(a.ensurePodPorts(ctx), a.sweep(ctx))
	a.setLeft(err)
	return err
}

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

// setLeft notes and logs what of the pods' ports could not be put right; it is tried again.
func (a *Agent) setLeft(err error) {
	var text string
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	news := text != a.left
	a.left = text
	if err == nil {
		a.warned = ""
	}
	a.mu.Unlock()
	if err != nil && news {
		a.log.Error("ports are not as they should be", "err", err)
	}
}

// ovsTimeout bounds the questions to Open vSwitch that it answers at once if it runs.
const ovsTimeout = 5 * time.Second

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

// setLocal works out this node's part and makes it intent. It returns what the host's kernel must hold for it.
func (a *Agent) setLocal(ctx context.Context, node intent.Node, datapath intent.Datapath) (*intent.State, hostnet.Desired, error) {
	none := hostnet.Desired{}
	local, uplink, err := a.local(node, datapath)
	if err != nil {
		return nil, none, err
	}
	bridge, err := a.uplinkBridge(ctx, local, uplink)
	if err != nil {
		return nil, none, err
	}
	cards, err := a.setUplink(bridge, local, uplink)
	if err != nil {
		return nil, none, err
	}
	state, err := a.intent.Update(func(tx *intent.Tx) error { tx.SetLocal(local); return nil })
	if err != nil {
		return nil, none, err
	}
	if bridge != nil && datapath == intent.DatapathNetdev {
		a.neighbours.Set(uplink.Name, tunnelPeers(state))
	}
	return state, hostState(a.cfg, state, uplink.Name, cards), nil
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
	local := a.intent.State().Local()
	a.mu.Lock()
	onBridge := a.uplinkOnOVS
	a.mu.Unlock()
	// With the node's own address on this Open vSwitch, holding back would cut the node off from its API server at boot,
	// where nobody lets go. The userspace datapath has no old flows to keep.
	arm := local.Datapath == intent.DatapathSystem && !onBridge
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

// gatewayNeighbour is what the bridge answers the host's kernel that asks for an address: a pod of this node, or the
// router for what is behind another node.
func (a *Agent) gatewayNeighbour(address netip.Addr) (net.HardwareAddr, bool) {
	s := a.intent.State()
	for p := range s.PortsWith(address) {
		return p.MAC.HardwareAddr(), true
	}
	for n := range s.Nodes().All() {
		for _, sn := range n.Subnets {
			if n.Name != a.opts.NodeName && sn.Gateway == address {
				return intent.RouterMAC.HardwareAddr(), true
			}
		}
	}
	return nil, false
}
