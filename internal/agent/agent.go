// SPDX-License-Identifier: Apache-2.0

// Package agent is one node's part of Coelan: it turns Kubernetes objects and the node's own
// attachments into intent, which its backend brings about, and answers the container runtime and
// the coelan command.
//
// Everything is level-triggered. Whatever restarts, the agent compares what is with what should be
// and writes the difference: after its own restart with nothing changed, it writes nothing.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/agent/lbaddresses"
	"coelan.io/coelan/internal/agent/metrics"
	"coelan.io/coelan/internal/agent/networks"
	"coelan.io/coelan/internal/agent/nodestatus"
	"coelan.io/coelan/internal/agent/policies"
	"coelan.io/coelan/internal/agent/services"
	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/reserved"
)

// The names of the agent's own conditions; its backend has others.
const (
	condNode = "node" // the API's Node object says what the agent must know
	condCNI  = "cni"  // the container runtime knows the network; needs all others
)

// Agent is the whole of a node's agent. New makes it, Run lets it work.
type Agent struct {
	Options

	// What the agent knows: attachments, objects of the API, and what follows from both.
	store  *attachment.Store
	view   *apicache.View
	intent *intent.Store

	// What brings it about, and what makes intent.
	backend  Backend
	networks *networks.Source
	services *services.Services
	policies *policies.Policies // nil: they are not enforced
	pods     *pods
	wire     wireLeases
	announce *lbaddresses.Addresses

	writers // to the API

	warner *nodestatus.Warner
	health *health
	// looked wakes what waits for a reconciliation.
	looked broadcast.Broadcast
}

// health is what tells how the agent does.
type health struct {
	since      time.Time
	conditions *conditions.Set
	metrics    *metrics.Metrics
	loops      *loops
}

// New checks the options. It opens nothing.
func New(opts Options) (*Agent, error) {
	if opts.NodeName == "" {
		return nil, fmt.Errorf("the node's name is not set")
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	a := &Agent{
		Options: opts, intent: intent.NewStore(nodeview.Services(opts.NodeName)), pods: newPods(),
		warner: nodestatus.NewWarner(opts.NodeName, opts.Events),
	}
	order := append([]conditions.Condition{{Name: condNode}}, opts.Backend.Conditions...)
	a.health = &health{
		since:      time.Now(),
		conditions: conditions.New(opts.Log, append(order, conditions.Condition{Name: condCNI, Last: true})...),
		loops:      newLoops(heartbeat.Bound),
	}
	a.health.metrics = a.newMetrics()
	return a, nil
}

func (a *Agent) newMetrics() *metrics.Metrics {
	o := metrics.Options{
		Node: a.NodeName, Intent: a.intent, Conditions: a.health.conditions,
		Announced: func() announce.Status { return a.announce.Status() },
	}
	if a.policed() {
		o.Controlled = func() bool { return a.policies.Status().Connected }
	}
	return metrics.New(o)
}

// Run works until ctx ends, or until something fails that a restart may mend. It leaves ports,
// flows and the host's state as they are.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.store, err = attachment.Open(a.Config.StateFile(installation.State)); err != nil {
		return err
	}
	defer func() { _ = a.store.Close() }()
	if a.Config.Backend.Type == config.NeutronBackend {
		a.store.InSlots(reserved.NeutronSpare, reserved.NeutronSpareOfNetwork, reserved.NeutronKept)
	}
	if err := a.makeParts(ctx); err != nil {
		return err
	}
	if err := a.load(); err != nil {
		return err
	}
	a.makeWriters()
	a.pods.serve(a)
	if err := a.backend.Open(); err != nil {
		return err
	}
	defer a.backend.Close()
	return a.work(ctx)
}

// makeParts makes what intent is made by, and what brings it about.
func (a *Agent) makeParts(ctx context.Context) (err error) {
	// The backend is made for the node's uplinks.
	_, err = a.intent.Update(func(tx *intent.Tx) error { networks.Settings(a.Config, tx); return nil })
	if err != nil {
		return err
	}
	if a.view, err = apicache.New(a.Log, a.store); err != nil {
		return err
	}
	if a.backend, err = a.Backend.New(a.backendOptions()); err != nil {
		return err
	}
	if err := a.makeLeases(); err != nil {
		return err
	}
	a.networks = networks.New(networks.Options{
		Withheld: a.wire.pods.Withholds,
		Log:      a.Log, Node: a.NodeName, Config: a.Config, Intent: a.intent, View: a.view, Store: a.store,
		Warn:   a.warner.Warn,
		Judged: func(err error) { a.health.conditions.Set(condNode, err) },
		NodesChanged: func() {
			a.nodesChanged()
			a.networks.Judge()
		},
		// A request may wait for the Network to be in effect.
		Changed: a.view.Touch,
	})
	a.policies = a.newPolicies(ctx)
	a.services = a.newServices()
	a.announce = lbaddresses.New(lbaddresses.Options{
		Node: a.NodeName, Config: a.Config, Log: a.Log, Intent: a.intent, View: a.view, Events: a.Events,
		ServicesReady: a.services.Ready(), NodesListed: a.networks.NodesListed, Keys: a.MembershipKeys,
		Step: a.health.loops.membership.Step,
	})
	return nil
}

// backendOptions are what the backend gets of this agent.
func (a *Agent) backendOptions() backend.Options {
	return backend.Options{
		Config: a.Config, Node: a.NodeName, Log: a.Log, Intent: a.intent, Attachments: a.store,
		Interfaces: &a.pods.interfaces, Conditions: a.health.conditions, Monitor: a.health.loops.monitor,
		Metrics: a.health.metrics.Registry, Events: a.Events,
		Hooks: backend.Hooks{
			Begin: a.catchUp, Warn: a.warner.Warn, Reconciled: a.reconciled,
			InterfaceGone: a.pods.collect.Fire, UplinksChanged: func() { a.view.Touch() },
			EgressClaims: func(list []backend.ExternalAddress) { a.claims.Set(list) },
			Leased:       func(l backend.Lease) { a.leases.Set(l) },
			Asked:        func(p intent.Port, frame []byte) { a.wire.machines.Asked(p, frame) },
			Replied:      a.wire.received,
			Repaired:     a.health.metrics.Repaired, Swept: a.health.metrics.Swept,
			Refused: func(list []policy.Refusal) {
				if a.policies != nil {
					a.policies.Refused(list)
				}
			},
		},
	}
}

// reconciled follows each comparison of what is with intent.
func (a *Agent) reconciled(err error) {
	if err == nil && a.networks.OwnProblem() == nil {
		a.warner.Healthy()
	}
	a.node.Reconciled()
	a.guests.Kick()
	a.looked.Send()
}

// work runs all parts; the first that fails ends the others.
func (a *Agent) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		a.backend.Run, a.watchPods, a.watchObjects, a.services.Run, a.services.ServeHealthz,
		a.announce.Run, a.followPolicies, a.view.Run, a.blocks.Run, a.ports.Run, a.claims.Run, a.guests.Run,
		a.leases.Run, a.wire.pods.Run, a.wire.machines.Run, a.wire.relay.Run, a.followConfiguration, a.serveCNI,
		a.collect, a.serveHealth, a.serveDiagnostics, a.keepCNI,
	} {
		g.Go(func() error { return part(ctx) })
	}
	g.Go(func() error { return a.Cluster.WatchServices(ctx, a.services.Updates()) })
	return g.Wait()
}

// load makes intent of what the agent knew when it ran last. Only together is it enough for
// a first comparison with the switch: nodes, networks or ports that came later would lose
// their flows in between.
func (a *Agent) load() error {
	_, err := a.intent.Update(func(tx *intent.Tx) error {
		a.networks.Load(tx)
		a.loadServices(tx)
		a.announce.Load(tx)
		a.loadPolicies(tx)
		for _, at := range a.store.List() {
			tx.SetPort(a.networks.Port(at))
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.nodesChanged()
	a.networks.Judge()
	return nil
}
