// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/apiaccess"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/metricsaccess/managermetrics"
	"coelan.io/coelan/internal/restconf"
	"coelan.io/coelan/internal/retry"
)

// LeaseName is the Lease that the leader holds.
const LeaseName = "coelan-controller"

// A leader that dies is followed within leaseDuration and two retries, each up to 2.2 times
// retryPeriod: less than 15 s.
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

// Run works until ctx ends, and returns an error if it stops before that, as when leadership is
// lost. It waits for the API server, and for Coelan's definitions.
func Run(ctx context.Context, o Options) error {
	if o.Access == nil {
		o.Access = apiaccess.New(apiaccess.Options{Log: o.Log, Explicit: true, WaitForReads: true})
	}
	o.REST = rest.CopyConfig(o.REST)
	if err := o.Access.Configure(o.REST); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	api, err := kubernetes.NewForConfig(clientConfig(o.REST))
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.Access.Follow(ctx, api) })
	g.Go(func() error {
		if err := run(ctx, o); err != nil {
			return err
		}
		return errEnded
	})
	if err := g.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded ends what runs beside the manager.
var errEnded = errors.New("the controller has ended")

func run(ctx context.Context, o Options) error {
	if err := awaitAlive(ctx, o); err != nil {
		return ignoreEnd(ctx, err)
	}
	m, err := newManager(ctx, o)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	return m.Start(ctx)
}

// awaitAlive is await with /healthz served: a controller that waits for the API server would not be
// better after kubelet has started it anew, and would be started ever later.
func awaitAlive(ctx context.Context, o Options) error {
	if o.MetricsBindAddress == "0" {
		return await(ctx, o)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.MetricsBindAddress)
	if err != nil {
		return fmt.Errorf("controller: health: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the Kubernetes API cannot be reached yet", http.StatusServiceUnavailable)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: tryTimeout}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	err = await(ctx, o)
	_ = s.Close()
	<-served
	return err
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
	for backoff := retry.New(firstPause, lastPause); ; {
		list, err := client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		if err == nil {
			err = complete(list)
		}
		if err == nil {
			return nil
		}
		o.Log.Warn("the Kubernetes API is unreachable or lacks Coelan's CustomResourceDefinitions, retrying",
			"err", err)
		if !backoff.Wait(ctx) {
			return ctx.Err()
		}
	}
}

// complete says which of Coelan's kinds the API server does not know: it has the definitions
// of an older Coelan.
func complete(served *metav1.APIResourceList) error {
	kinds := reconcile.NewScheme().KnownTypes(v1alpha1.GroupVersion)
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
	scheme := reconcile.NewScheme()
	progress := policies.NewProgress(scheme)
	m, err := ctrl.NewManager(clientConfig(o.REST), ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromSlogHandler(o.Log.Handler()),
		Cache:  cacheOptions(progress, o.OVN != nil || o.Neutron != nil),
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
		Metrics:                       managermetrics.Options(o.Log, o.MetricsBindAddress, o.MetricsAccess),
		HealthProbeBindAddress:        "0",
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if err := reconcile.AddIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("controller: index: %w", err)
	}
	if err := warm(ctx, m.GetCache()); err != nil {
		return nil, fmt.Errorf("controller: cache: %w", err)
	}
	distribution := o.Policies
	if distribution == nil {
		distribution = policies.NewDistribution()
	}
	monitor := heartbeat.New(heartbeat.Bound)
	p, err := setup(m, o, distribution, progress, monitor)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if err := addMembershipKeys(m, o, monitor); err != nil {
		return nil, fmt.Errorf("controller: keys of the membership: %w", err)
	}
	if err := addRESTCONF(ctx, m, o, monitor); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if err := serveHealth(m, o.MetricsBindAddress, p, monitor); err != nil {
		return nil, fmt.Errorf("controller: health: %w", err)
	}
	register(m.GetCache(), o)
	return m, nil
}

// addMembershipKeys has the leader keep the keys of the agents' membership, in the namespace that
// Coelan is installed in.
func addMembershipKeys(m manager.Manager, o Options, monitor *heartbeat.Monitor) error {
	if o.LeaderElectionNamespace == "" {
		return nil
	}
	api, err := kubernetes.NewForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	return m.Add(keyring.NewKeeper(api, o.LeaderElectionNamespace, o.Log, monitor.Loop("membership-keys")))
}

// addRESTCONF has every replica serve RESTCONF, if that is asked for.
func addRESTCONF(ctx context.Context, m manager.Manager, o Options, monitor *heartbeat.Monitor) error {
	if o.RESTCONFBindAddress == "0" {
		return nil
	}
	if o.LeaderElectionNamespace == "" {
		return errors.New("RESTCONF needs the namespace of its Secrets: set --leader-election-namespace")
	}
	api, err := kubernetes.NewForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	if err := restconf.AddIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	s, err := restconf.New(restconf.Options{
		Log: o.Log, Kubernetes: api, Namespace: o.LeaderElectionNamespace, BindAddress: o.RESTCONFBindAddress,
		API: &restconf.Store{
			Live: m.GetAPIReader(), Cached: m.GetClient(), Client: m.GetClient(), Informers: m.GetCache(),
		},
		Clients: restconf.ClusterAuthorities(api), Loop: monitor.Loop("restconf-certificate"),
	})
	if err != nil {
		return err
	}
	return m.Add(s)
}

// clientConfig has no limit of its own: writes are few at a time, and the API server knows best
// what it can do.
func clientConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.UserAgent = "coelan-controller"
	c.QPS = -1
	return c
}

// synced is how long memory that is filled takes at most to say so.
const synced = 100 * time.Millisecond

// serveHealth adds /healthz and /readyz to what serves the metrics. A replica is not ready before
// it can serve agents: else the next one would be replaced while this one cannot. It is restarted
// if a loop is stuck.
func serveHealth(m manager.Manager, address string, p *policies.Feed, monitor *heartbeat.Monitor) error {
	if address == "0" {
		return nil
	}
	alive := func(*http.Request) error { return monitor.Check() }
	if err := m.AddMetricsServerExtraHandler("/healthz", healthz.CheckHandler{Checker: alive}); err != nil {
		return err
	}
	ready := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), synced)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the Kubernetes API's objects are not known yet")
		}
		return p.Ready()
	}
	return m.AddMetricsServerExtraHandler("/readyz", healthz.CheckHandler{Checker: ready})
}
