// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/agent/diagnostics"
	"coelan.io/coelan/internal/agent/probes"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/localapi"
)

// serveHealth answers kubelet's probes until ctx ends. A loop that is stuck has it restart the
// agent; that the API server or Open vSwitch is away does not.
func (a *Agent) serveHealth(ctx context.Context) error {
	return probes.Server{
		Log: a.Log, Address: a.Config.MetricsBindAddress, Access: a.Config.MetricsAccess, Reviews: a.Cluster.Reviews,
		Healthy: a.health.loops.monitor.Check, Ready: a.health.conditions.Ready, Metrics: a.health.metrics.Registry,
	}.Run(ctx)
}

// loops have bounded steps: what they wait for in a step ends by a timeout.
type loops struct {
	monitor                                       *heartbeat.Monitor
	pods, objects, services, policies, membership *heartbeat.Loop
}

func newLoops(bound time.Duration) *loops {
	m := heartbeat.New(bound)
	return &loops{
		monitor: m, pods: m.Loop("pods"),
		objects: m.Loop("objects"), services: m.Loop("services"), policies: m.Loop("policies"),
		membership: m.Loop("membership"),
	}
}

// serveDiagnostics answers the coelan command on the agent's socket until ctx ends.
func (a *Agent) serveDiagnostics(ctx context.Context) error {
	l, err := localapi.Listen(ctx, a.Config.AgentSocket)
	if err != nil {
		return fmt.Errorf("agentSocket: %w", err)
	}
	return localapi.Serve(ctx, l, a.diagnostics().Handler())
}

// diagnostics answer the coelan command.
func (a *Agent) diagnostics() *diagnostics.Diagnostics {
	o := diagnostics.Options{
		Node: a.NodeName, Since: a.health.since, Config: a.Config, Intent: a.intent, Store: a.store, View: a.view,
		Links: a.Links, NodeSource: a.dataplane(), Interfaces: &a.pods.interfaces, Conditions: a.health.conditions,
		Backend: a.backend, Services: a.services, Problems: a.networks.Problems,
		Announced: func() []netip.Addr { return a.announce.Status().Owned },
	}
	if a.Configuration != nil {
		o.Configuration = a.Configuration.Status
	}
	if a.policies != nil {
		o.Policies = a.policies.Status
	}
	return diagnostics.New(o)
}
