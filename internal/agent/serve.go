// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coelan.io/coelan/internal/localapi"
)

// serveHealth serves /healthz, /readyz and /metrics until ctx ends.
func (a *Agent) serveHealth(ctx context.Context) error {
	if a.cfg.MetricsBindAddress == "0" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", a.cfg.MetricsBindAddress)
	if err != nil {
		return fmt.Errorf("metricsBindAddress: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.conditions.notReady(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	return localapi.Serve(ctx, l, mux)
}

// serveDiagnostics answers the coelan command on the agent's socket until ctx ends.
func (a *Agent) serveDiagnostics(ctx context.Context) error {
	l, err := localapi.Listen(ctx, a.cfg.AgentSocket)
	if err != nil {
		return fmt.Errorf("agentSocket: %w", err)
	}
	return localapi.Serve(ctx, l, a.diagnostics())
}
