// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/server"
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

// Run works until ctx ends, and returns an error if it stops before that, as when leadership is lost. It waits for the API
// server, and for Coelan's definitions.
func Run(ctx context.Context, o Options) error {
	if err := await(ctx, o); err != nil {
		return ignoreEnd(ctx, err)
	}
	m, err := newManager(ctx, o)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	return m.Start(ctx)
}

// ignoreEnd is no error if ctx has ended: then it is for that reason.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// The pauses between two tries to reach the API server, and the bound of one.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	tryTimeout = 10 * time.Second
)

// await returns when the API server knows Coelan's definitions.
func await(ctx context.Context, o Options) error {
	config := rest.CopyConfig(clientConfig(o.REST))
	config.Timeout = tryTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		list, err := client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		if err == nil {
			err = complete(list)
		}
		if err == nil {
			return nil
		}
		o.Log.Warn("the Kubernetes API cannot be reached or lacks Coelan's definitions, trying again", "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// complete says which of Coelan's kinds the API server does not know: it has the definitions of an older Coelan.
func complete(served *metav1.APIResourceList) error {
	kinds := newScheme().KnownTypes(v1alpha1.GroupVersion)
	for kind := range kinds {
		if _, listed := kinds[kind+"List"]; !listed {
			continue // a list, or of the machinery
		}
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			return fmt.Errorf("%s: there is no kind %s", served.GroupVersion, kind)
		}
	}
	return nil
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
	if err := addIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("controller: index: %w", err)
	}
	if err := warm(ctx, m.GetCache()); err != nil {
		return nil, fmt.Errorf("controller: cache: %w", err)
	}
	if err := addReconcilers(m, o); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	p, err := addPolicies(m, o)
	if err != nil {
		return nil, fmt.Errorf("controller: policies: %w", err)
	}
	if err := serveHealth(m, o.MetricsBindAddress, p.complete); err != nil {
		return nil, fmt.Errorf("controller: health: %w", err)
	}
	register(m.GetCache(), o)
	return m, nil
}

// addPolicies has policies worked out, and served, by every replica, and their status written by the leader.
func addPolicies(m manager.Manager, o Options) (*policies, error) {
	hub := o.Policies
	if hub == nil {
		hub = server.NewHub(policy.NewEngine())
	}
	p := newPolicies(o.Log, m.GetCache(), hub)
	a := &access{Client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorderFor(eventSource)}
	status := &policyStatus{access: a, log: o.Log, policies: p, told: told{kinds: policyKindNames}, interval: o.PolicyInterval}
	runnables := []manager.Runnable{p, status}
	if o.Socket != "" {
		runnables = append(runnables, &diagnostics{o.Socket, p})
	}
	if o.PolicyBindAddress != "0" {
		api, err := kubernetes.NewForConfig(m.GetConfig())
		if err != nil {
			return nil, err
		}
		runnables = append(runnables, server.New(server.Options{
			Hub: hub, Kubernetes: api, Namespace: o.LeaderElectionNamespace, BindAddress: o.PolicyBindAddress,
			TokenFile: o.PolicyTokenFile, Log: o.Log, Metrics: metrics.Registry,
		}))
	}
	for _, r := range runnables {
		if err := m.Add(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// They fail only for two types of one name.
	must(clientgoscheme.AddToScheme(s))
	must(v1alpha1.AddToScheme(s))
	must(apiextensionsv1.AddToScheme(s))
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
	c.Wrap(func(t http.RoundTripper) http.RoundTripper { return reconnecting{t} })
	return c
}

// synced is how long memory that is filled takes at most to say so.
const synced = 100 * time.Millisecond

// serveHealth adds /healthz and /readyz to what serves the metrics. A replica is not ready before it can tell agents of policies: else the
// next one would be replaced while this one cannot.
func serveHealth(m manager.Manager, address string, policies <-chan struct{}) error {
	if address == "0" {
		return nil
	}
	if err := m.AddMetricsServerExtraHandler("/healthz", healthz.CheckHandler{Checker: healthz.Ping}); err != nil {
		return err
	}
	ready := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), synced)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the Kubernetes API's objects are not known yet")
		}
		select {
		case <-policies:
			return nil
		default:
			return errors.New("not all policies are known yet")
		}
	}
	return m.AddMetricsServerExtraHandler("/readyz", healthz.CheckHandler{Checker: ready})
}
