// SPDX-License-Identifier: Apache-2.0

// Package probes answers kubelet's probes of an agent, and serves its metrics.
package probes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/metricsaccess"
)

// Server serves /healthz, /readyz and /metrics. All fields are needed.
type Server struct {
	Log *slog.Logger
	// Address is where to listen, such as :9477; "0": nowhere.
	Address string
	// Access says whether reading the metrics takes authorization, and Reviews what decides on it.
	Access  metricsaccess.Access
	Reviews func() (authentication.TokenReviewInterface, authorization.SubjectAccessReviewInterface)
	// Healthy says why kubelet is to restart the agent, Ready why it cannot attach pods.
	Healthy, Ready func() error
	Metrics        prometheus.Gatherer
}

// Run answers until ctx ends: by HTTPS, unless the metrics are open.
func (s Server) Run(ctx context.Context) error {
	if s.Address == "0" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("metricsBindAddress: %w", err)
	}
	if s.Access == metricsaccess.Open {
		return localapi.Serve(ctx, l, s.handler())
	}
	if l, err = metricsaccess.Secure(l); err != nil {
		return err
	}
	tokens, access := s.Reviews()
	return localapi.Serve(ctx, l, metricsaccess.NewGuard(s.Log, tokens, access).Protect(s.handler()))
}

func (s Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", probe(s.Healthy, http.StatusInternalServerError))
	mux.Handle("GET /readyz", probe(s.Ready, http.StatusServiceUnavailable))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
	return mux
}

// probe answers ok, or with a status code and what is wrong.
func probe(wrong func() error, code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := wrong(); err != nil {
			http.Error(w, err.Error(), code)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}
