// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
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
			wait(ctx, settle, a.wake)
		case <-retry:
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
	a.binder.Kick()
	err = errors.Join(a.ensureUplinks(ctx), a.ensurePodPorts(ctx), a.sweep(ctx))
	a.setLeft(err)
	return err
}

// setLeft notes and logs what of the pods' ports could not be put right; it is tried again.
func (a *Agent) setLeft(err error) {
	var text string
	if err != nil {
		text = err.Error()
	}
	healthy := err == nil && a.ownProblem() == nil
	a.mu.Lock()
	news := text != a.left
	a.left = text
	if healthy {
		a.warned = ""
	}
	a.mu.Unlock()
	if err != nil && news {
		a.log.Error("ports are not as they should be", "err", err)
	}
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
	before := a.intent.State()
	state, err := a.intent.Update(func(tx *intent.Tx) error { tx.SetLocal(local); return nil })
	if err != nil {
		return nil, none, err
	}
	if old := before.Local(); old.Node != "" && old.MTU != local.MTU && localPorts(before) > 0 {
		a.log.Warn("the MTU has changed; pods that run keep theirs until they are made anew", "old", old.MTU, "new", local.MTU)
	}
	if bridge != nil && datapath == intent.DatapathNetdev {
		a.neighbours.Set(uplink.Name, tunnelPeers(state))
	}
	host := hostState(a.cfg, state, uplink.Name, cards)
	host.Services = a.hostServices.of(state, a.view.State().PoolList())
	return state, host, nil
}
