// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Bounds of one reconciliation, and the pause after failed ones.
const (
	reconcileTimeout    = 15 * time.Second
	minReconcileBackoff = 100 * time.Millisecond
	maxReconcileBackoff = 5 * time.Second
)

// reconciler makes ports, wires and the host's kernel what intent says.
type reconciler struct {
	node        string
	log         *slog.Logger
	config      config.Config
	intent      *intent.Store
	attachments *attachment.Store
	conditions  *conditions.Set
	hooks       backend.Hooks
	loop        *heartbeat.Loop
	wake        trigger.Trigger

	vswitch *vswitch
	ports   *ports
	uplinks *uplinks
	// sessions has the sessions with other nodes.
	sessions sessionDatabase
	host     *host
	// changes fire after changes of the database.
	changes func() (changes <-chan struct{}, stop func())
	// findUplink finds the interface that has the node's address.
	findUplink func(node netip.Addr) (hostnet.Uplink, error)

	mu sync.Mutex
	// left is what of the ports is not right.
	left string
}

// run brings everything but the flows to what it should be, whenever something may have changed it:
// nodes, the database, the connection to the switch, the host's interfaces.
func (r *reconciler) run(ctx context.Context) error {
	changes, stop := r.changes()
	defer stop()
	backoff := retry.New(minReconcileBackoff, maxReconcileBackoff)
	for {
		done := r.loop.Step()
		err := r.reconcile(ctx)
		done()
		again := backoff.After(err)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-changes:
			// Each pod that starts makes a handful of changes.
			wait(ctx, settle, r.wake)
		case <-again:
		}
	}
}

// settle is how long changes of the database are gathered.
const settle = 100 * time.Millisecond

// wait lasts until d is over, ctx ends or early is there; early may be nil.
func wait(ctx context.Context, d time.Duration, early <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-t.C:
	}
}

// reconcile goes through the conditions in order and stops at the first that cannot be met.
func (r *reconciler) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	node, err := backend.OwnNode(r.intent.State(), r.node)
	if err != nil {
		// Nothing to try again: the next change of the nodes comes by itself.
		return nil //nolint:nilerr // the agent has a condition of its own for it
	}
	datapath, err := r.vswitch.check(ctx)
	r.conditions.Set(condOVS, err)
	if err != nil {
		r.hooks.Warn("NetworkNotReady", err)
		return err
	}
	r.uplinks.ensureCards(ctx, datapath, node.Addresses)
	setHost, err := r.setLocal(ctx, node, datapath)
	if err == nil {
		err = r.vswitch.ensureBridge(ctx, r.intent.State().Local())
	}
	if err != nil {
		// A card may be the cause.
		err = errors.Join(err, r.uplinks.cardErrors())
	}
	r.conditions.Set(condBridge, err)
	if err != nil {
		r.hooks.Warn("NetworkNotReady", err)
		return err
	}
	setHost()
	err = errors.Join(r.uplinks.ensure(ctx), r.ports.ensure(ctx),
		ensureSessions(ctx, r.sessions, r.intent.State()), r.ports.sweep(ctx, r.others()))
	r.setLeft(err)
	r.hooks.Reconciled(err)
	return err
}

// setLeft notes and logs what of the pods' ports could not be restored; it is tried again.
func (r *reconciler) setLeft(err error) {
	var text string
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	news := text != r.left
	r.left = text
	r.mu.Unlock()
	if err != nil && news {
		r.log.Error("cannot reconcile the ports of the bridge with the node's pods, retrying", "err", err)
	}
}

// unmet is what of the pods' ports could not be restored.
func (r *reconciler) unmet() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// others are the ports that are not those of attachments.
func (r *reconciler) others() []ovsdb.PlacedPort {
	var list []ovsdb.PlacedPort
	for _, p := range infrastructure(r.config, r.intent.State().Local()) {
		list = append(list, ovsdb.PlacedPort{Bridge: r.config.Bridge, Port: p})
	}
	for _, p := range sessionPorts(r.intent.State()) {
		list = append(list, ovsdb.PlacedPort{Bridge: sessionBridge, Port: p})
	}
	list = append(list, r.uplinks.cards.Placed()...)
	for _, u := range r.uplinks.ports() {
		list = append(list, u.placed(r.config.Bridge)...)
	}
	return list
}

// setLocal computes this node's part and makes it intent. It returns what has the host's kernel
// follow, once there is a bridge.
func (r *reconciler) setLocal(ctx context.Context, node intent.Node,
	datapath intent.Datapath,
) (setHost func(), err error) {
	local, uplink, err := r.local(r.config, node, datapath)
	if err != nil {
		return nil, err
	}
	bridge, err := r.vswitch.uplinkBridge(ctx, local, uplink)
	if err != nil {
		return nil, err
	}
	cards, err := r.host.setUplink(bridge, local, uplink)
	if err != nil {
		return nil, err
	}
	before := r.intent.State()
	state, err := r.intent.Update(func(tx *intent.Tx) error { tx.SetLocal(local); return nil })
	if err != nil {
		return nil, err
	}
	if old := before.Local(); old.Node != "" && old.MTU != local.MTU && hasPorts(before, r.node) {
		r.log.Warn("the node's MTU has changed; running pods keep theirs: recreate them", "old", old.MTU, "new",
			local.MTU)
	}
	if bridge != nil && datapath == intent.DatapathNetdev {
		r.host.neighbours.Set(uplink.Name, tunnelPeers(state))
	}
	if datapath == intent.DatapathNetdev {
		cards = append(cards, r.uplinks.cards.Names()...)
	}
	return func() { r.host.set(state, uplink.Name, cards, r.uplinks.cards.SwitchOnly(datapath)) }, nil
}

func hasPorts(s *intent.State, node string) bool {
	for range s.PortsAt(node) {
		return true
	}
	return false
}
