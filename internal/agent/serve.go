// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	return serve(ctx, l, mux)
}

// serveDiagnostics answers the coelan command on the agent's socket until ctx ends.
func (a *Agent) serveDiagnostics(ctx context.Context) error {
	l, err := listenUnix(ctx, a.cfg.AgentSocket)
	if err != nil {
		return fmt.Errorf("agentSocket: %w", err)
	}
	return serve(ctx, l, a.diagnostics())
}

// listenUnix makes the socket anew, for root alone.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Bounds of the HTTP servers.
const (
	headerTimeout   = 10 * time.Second
	shutdownTimeout = 2 * time.Second
)

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(bounded) != nil {
			_ = srv.Close()
		}
	})
	err := srv.Serve(l)
	if stop() {
		return err
	}
	<-stopped
	return nil
}
