// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"
	"strings"

	"coelan.io/coelan/internal/agent/bind"
	"coelan.io/coelan/internal/agent/blocks"
	"coelan.io/coelan/internal/agent/plan"
	"coelan.io/coelan/internal/agent/publish"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// makeParts makes what works on the API's objects: blocks, Ports, bindings. Store and view are there.
func (a *Agent) makeParts() {
	a.services = a.newServices()
	a.tellServices()
	a.blocks = blocks.New(a.log, a.opts.NodeName, a.opts.Cluster, a.view, a.store)
	a.publisher = publish.New(publish.Options{
		Log: a.log, Node: a.opts.NodeName, API: a.opts.Cluster, View: a.view, Store: a.store, Singles: a.blocks,
		Annotations: plan.Annotations(a.serves),
	})
	a.binder = bind.New(bind.Options{
		Log: a.log, Node: a.opts.NodeName, Bridge: a.cfg.Bridge, OVS: database{a}, API: a.opts.Cluster, View: a.view,
		Store: a.store, Flows: dataplane{a}, Events: a.opts.Events, MTU: func() int { return a.intent.State().Local().MTU },
	})
}

func (a *Agent) newPlanner() cni.Planner {
	return plan.New(plan.Options{
		Log: a.log, Node: a.opts.NodeName, Mapping: a.cfg.Mapping, Serves: a.serves, Connected: a.connected,
		Effective: func(network string) bool { _, ok := dataplane{a}.Network(network); return ok },
		View:      a.view, API: a.opts.Cluster, Blocks: a.blocks, Store: a.store, Ports: a.publisher, Events: a.opts.Events,
	})
}

// attachmentsChanged passes on that attachments have come or gone.
func (a *Agent) attachmentsChanged(list []attachment.Attachment) {
	a.publisher.Changed(list...)
	a.blocks.Kick()
	a.tellAttached(list)
}

// serves says whether the interfaces that pods ask for by annotation are this agent's to make: not if Multus is installed.
// It is looked up for each pod, because Multus may come later.
func (a *Agent) serves() bool {
	if a.cfg.ServesNetworks != config.ServesAuto {
		return a.cfg.ServesNetworks == config.ServesAlways
	}
	for _, pattern := range []string{"*.conf", "*.conflist"} {
		files, err := filepath.Glob(filepath.Join(a.cfg.CNI.ConfDir, pattern))
		if err != nil {
			a.log.Error("look for Multus", "err", err)
		}
		for _, f := range files {
			if strings.Contains(strings.ToLower(filepath.Base(f)), "multus") {
				return false
			}
		}
	}
	return true
}

// Connect implements bind.Flows.
func (d dataplane) Connect(ctx context.Context, at attachment.Attachment) error {
	return d.attachFlows(ctx, at)
}

// Disconnect implements bind.Flows. Flows that cannot be removed now are removed by a later sync.
func (d dataplane) Disconnect(ctx context.Context, at attachment.Attachment) error {
	state, err := d.intent.Update(func(tx *intent.Tx) error { tx.DeletePort(at.Key.String()); return nil })
	if err != nil {
		return err
	}
	// If another node has bound the Port meanwhile, it is that one's from now on.
	d.refreshNetworks()
	if d.flows.connected() {
		bounded, cancel := context.WithTimeout(ctx, detachTimeout)
		defer cancel()
		_ = d.flows.wait(bounded, state.Revision())
	}
	return nil
}

// Network implements bind.Flows.
func (d dataplane) Network(name string) (intent.Network, bool) {
	return d.intent.State().Networks().Get(name)
}

// NodeExists implements bind.Flows.
func (d dataplane) NodeExists(name string) bool {
	_, ok := d.intent.State().Nodes().Get(name)
	return ok
}

var _ bind.Flows = dataplane{}

// database is the agent's connection to Open vSwitch, which is made after the parts that use it.
type database struct{ *Agent }

// Interfaces implements bind.OVS.
func (d database) Interfaces(ctx context.Context, bridge, key string) ([]ovsdb.PortState, error) {
	return d.db.Interfaces(ctx, bridge, key)
}

// RequestNumber implements bind.OVS.
func (d database) RequestNumber(ctx context.Context, name string, ofport int) error {
	return d.db.RequestNumber(ctx, name, ofport)
}
