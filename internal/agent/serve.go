// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coelan.io/coelan/internal/agent/diagnostics"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/metricsaccess"
)

// serveHealth serves /healthz, /readyz and /metrics until ctx ends: by HTTPS, unless
// the metrics are open.
func (a *Agent) serveHealth(ctx context.Context) error {
	if a.Config.MetricsBindAddress == "0" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", a.Config.MetricsBindAddress)
	if err != nil {
		return fmt.Errorf("metricsBindAddress: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", healthz(a.health.loops.monitor))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.health.conditions.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.health.metrics.Registry, promhttp.HandlerOpts{}))
	if a.Config.MetricsAccess == metricsaccess.Open {
		return localapi.Serve(ctx, l, mux)
	}
	if l, err = metricsaccess.Secure(l); err != nil {
		return err
	}
	tokens, access := a.Cluster.Reviews()
	return localapi.Serve(ctx, l, metricsaccess.NewGuard(a.Log, tokens, access).Protect(mux))
}

// healthz fails if a loop is stuck, so that kubelet restarts the agent. That the API server or Open
// vSwitch is away is no reason for it.
func healthz(m *heartbeat.Monitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Check(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
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
