// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/metricsaccess/managermetrics"
	"coelan.io/coelan/internal/watcher/coe"
	"coelan.io/coelan/internal/watcher/mirror"
	"coelan.io/coelan/internal/watcher/target"
)

// name is that of the Lease and of the source of Events.
const name = "coelan-watcher"

// StatusPath answers a Report on the socket.
const StatusPath = "/v1/status"

// Report is the state of a watcher.
type Report struct {
	// Leading says that this replica writes.
	Leading bool   `json:"leading"`
	Target  string `json:"target"`
	mirror.Status
}

// RunODL keeps the controller of the configuration as the cluster is, until ctx ends.
func RunODL(ctx context.Context, log *slog.Logger, api *rest.Config, c Config) error {
	password, err := c.ODL.password()
	if err != nil {
		return err
	}
	to, err := target.NewRESTCONF(target.Access{
		URL: c.ODL.Host, Root: c.ODL.Root, Username: c.ODL.User, Password: password, CAFile: c.ODL.CAFile,
	}, c.Workers)
	if err != nil {
		return fmt.Errorf("odl: %w", err)
	}
	if to.PlainText() {
		log.Warn("the password goes to the controller without encryption: use https", "host", c.ODL.Host)
	}
	return run(ctx, log, api, c, to, c.ODL.Host+c.ODL.Root)
}

// RunStd prints what RunODL would write.
func RunStd(ctx context.Context, log *slog.Logger, api *rest.Config, c Config, out io.Writer) error {
	return run(ctx, log, api, c, target.NewPrinter(out), "standard output")
}

func run(ctx context.Context, log *slog.Logger, api *rest.Config, c Config, to mirror.Target, name string) error {
	m, err := newManager(log, api, c)
	if err != nil {
		return fmt.Errorf("watcher: %w", err)
	}
	if c.ClusterID == "" {
		if c.ClusterID, err = clusterID(ctx, api); err != nil {
			if ctx.Err() != nil {
				return nil // it is to end before it has begun
			}
			return err
		}
	}
	w := newWorld(log, m, c, to)
	if err := w.watch(ctx, m.GetCache()); err != nil {
		return fmt.Errorf("watcher: %w", err)
	}
	report := func() Report {
		return Report{Leading: w.leading.Load(), Target: name, Status: w.mirror.Status()}
	}
	register(w.mirror)
	if err := m.Add(w); err != nil {
		return err
	}
	if c.Socket != "" {
		answer := func(ctx context.Context) error { return serve(ctx, c.Socket, report) }
		if err := m.Add(everywhere(answer)); err != nil {
			return err
		}
	}
	log.Info("coelan-watcher starting", "cluster", c.ClusterID, "target", name)
	return m.Start(ctx)
}

// everywhere runs on replicas that do not lead as well.
type everywhere func(ctx context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

func newManager(log *slog.Logger, api *rest.Config, c Config) (manager.Manager, error) {
	m, err := ctrl.NewManager(api, ctrl.Options{
		Scheme: clientgoscheme.Scheme, Logger: logr.FromSlogHandler(log.Handler()),
		Cache:          cache.Options{DefaultTransform: trim},
		LeaderElection: c.LeaderElectionNamespace != "", LeaderElectionNamespace: c.LeaderElectionNamespace,
		LeaderElectionID: name, LeaderElectionReleaseOnCancel: true,
		Metrics:                managermetrics.Options(log, c.MetricsBindAddress, c.MetricsAccess),
		HealthProbeBindAddress: c.HealthBindAddress,
	})
	if err != nil {
		return nil, err
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	synced := func(r *http.Request) error {
		if !m.GetCache().WaitForCacheSync(r.Context()) {
			return fmt.Errorf("the cluster's objects are not known yet")
		}
		return nil
	}
	return m, m.AddReadyzCheck("synced", synced)
}

// clusterID is the uid of the namespace kube-system, which a cluster has all its life.
func clusterID(ctx context.Context, config *rest.Config) (string, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	ns, err := api.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("clusterID is not set, and the uid of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}

func serve(ctx context.Context, socket string, report func() Report) error {
	l, err := localapi.Listen(ctx, socket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatusPath, func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, report()) })
	return localapi.Serve(ctx, l, mux)
}

// trim leaves of objects what entries are made of.
func trim(obj any) (any, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	meta := metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if status := o.Annotations[coe.AnnotationNetworkStatus]; status != "" {
			meta.Annotations = map[string]string{coe.AnnotationNetworkStatus: status}
		}
		return &corev1.Pod{
			ObjectMeta: meta, Spec: corev1.PodSpec{HostNetwork: o.Spec.HostNetwork},
			Status: corev1.PodStatus{Phase: o.Status.Phase, HostIP: o.Status.HostIP, PodIPs: o.Status.PodIPs},
		}, nil
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR},
			Status: corev1.NodeStatus{Addresses: o.Status.Addresses},
		}, nil
	case *corev1.Service:
		s := &corev1.Service{ObjectMeta: meta, Spec: o.Spec}
		s.Spec.Selector, s.Status.LoadBalancer = nil, o.Status.LoadBalancer
		return s, nil
	case *discoveryv1.EndpointSlice:
		s := o.DeepCopy()
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		s.ObjectMeta = meta
		return s, nil
	}
	return obj, nil
}

// involved is the object that an entry is of; nil if it is of none.
func involved(ref mirror.Ref, e coe.Entry) *corev1.ObjectReference {
	kind := map[*coe.List]string{coe.Pods: "Pod", coe.Services: "Service", coe.Endpoints: "Service"}[ref.List]
	if kind == "" || e == nil {
		return nil
	}
	namespace, _ := e["network-NS"].(string)
	name, _ := e["name"].(string)
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: objectUID(ref),
	}
}
