// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"coelan.io/coelan/api/v1alpha1"
)

// LeaseName is the Lease that the leader holds.
const LeaseName = "coelan-controller"

// A leader that dies is followed within leaseDuration and two retries, each up to 2.2 times retryPeriod: less than 15 s.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = 1500 * time.Millisecond
)

// Bounds of one reconciliation, and of what is under way when the controller is to end.
const (
	reconcileTimeout = time.Minute
	shutdownTimeout  = 5 * time.Second
)

// Run works until ctx ends, and returns an error if it stops before that, as when leadership is lost.
func Run(ctx context.Context, o Options) error {
	m, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

// LogTo is for the libraries, which have one logger for the whole process.
func LogTo(log *slog.Logger) {
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
}

// newManager is a manager with all reconcilers, not started.
func newManager(ctx context.Context, o Options) (manager.Manager, error) {
	lease, renew, retry, shutdown := leaseDuration, renewDeadline, retryPeriod, shutdownTimeout
	skip := true
	m, err := ctrl.NewManager(clientConfig(o.REST), ctrl.Options{
		Scheme: newScheme(),
		Logger: logr.FromSlogHandler(o.Log.Handler()),
		Cache:  cacheOptions(),
		Controller: config.Controller{
			// Two controllers in one process, as in tests, have metrics of the same names.
			SkipNameValidation:    &skip,
			ReconciliationTimeout: reconcileTimeout,
		},
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		GracefulShutdownTimeout:       &shutdown,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:        "0",
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if err := serveHealth(m, o.MetricsBindAddress); err != nil {
		return nil, fmt.Errorf("controller: health: %w", err)
	}
	if err := addIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("controller: index: %w", err)
	}
	if err := warm(ctx, m.GetCache()); err != nil {
		return nil, fmt.Errorf("controller: cache: %w", err)
	}
	if err := addReconcilers(m, o); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return m, nil
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Both fail only for two types of one name.
	must(clientgoscheme.AddToScheme(s))
	must(v1alpha1.AddToScheme(s))
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// clientConfig has no limit of its own: writes are few at a time, and the API server knows best what it can do.
func clientConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.UserAgent = "coelan-controller"
	c.QPS = -1
	return c
}

// serveHealth adds /healthz and /readyz to what serves the metrics.
func serveHealth(m manager.Manager, address string) error {
	if address == "0" {
		return nil
	}
	if err := m.AddMetricsServerExtraHandler("/healthz", healthz.CheckHandler{Checker: healthz.Ping}); err != nil {
		return err
	}
	ready := func(r *http.Request) error {
		// What has been synced answers at once.
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the Kubernetes API's objects are not known yet")
		}
		return nil
	}
	return m.AddMetricsServerExtraHandler("/readyz", healthz.CheckHandler{Checker: ready})
}
