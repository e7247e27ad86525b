// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/clusterintent"
	"coelan.io/coelan/internal/controller/neutron"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/internal/reserved"
)

// Neutron is a real neutron-server on a lab's OVN, and the controller's half of the backend, which
// has Neutron be as the objects of the lab's API say.
type Neutron struct {
	*neutrontest.Server
	// Octavia says which load balancers a controller that starts makes; without a subnet none.
	Octavia balancers.Settings
	// SubnetPools are those of namespaces' Networks, for a controller that starts.
	SubnetPools []intent.SubnetPool
	// GivenPools are the ids of subnet pools of Neutron that those are a part of.
	GivenPools []string
	// Calls is how many calls of Neutron's API the controller's half has made since its start.
	Calls func() int64
	lab   *Lab
	stop  func()

	mu          sync.Mutex
	unsupported map[intent.PolicyRef]string
}

// startNeutron runs both until the lab ends.
func (l *Lab) startNeutron(ctx context.Context) error {
	dir := filepath.Join(l.dir, "neutron")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	n := &Neutron{lab: l, stop: func() {}}
	l.Neutron = n
	var err error
	n.Server, err = neutrontest.New(ctx, neutrontest.Options{
		Northbound: l.OVN.Remote("nb"), Southbound: l.OVN.Remote("sb"), Dir: dir,
	})
	if err != nil {
		return err
	}
	return n.StartController()
}

// StartController runs the controller's half, also again after StopController.
func (n *Neutron) StartController() error {
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("API server for Neutron: %w", err)
	}
	api := &http.Server{Handler: n.lab.API}
	// Without a limit of calls, as the controller's own.
	where := &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}
	// The static mapper takes each kind that is not Kubernetes' own for one of namespaces.
	cluster := meta.NewDefaultRESTMapper(nil)
	cluster.Add(v1alpha1.GroupVersion.WithKind("Network"), meta.RESTScopeRoot)
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{
		cluster, testrestmapper.TestOnlyStaticRESTMapper(scheme),
	}}
	objects, err := cache.New(where, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		listener.Close()
		return fmt.Errorf("objects for Neutron: %w", err)
	}
	writer, err := client.New(where, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		listener.Close()
		return fmt.Errorf("client for Neutron: %w", err)
	}
	parts, err := n.parts(objects, writer)
	if err != nil {
		listener.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = api.Serve(listener) })
	running.Go(func() { _ = objects.Start(ctx) })
	for _, part := range parts {
		running.Go(func() {
			if err := part(ctx); err != nil {
				n.SetUnsupported(map[intent.PolicyRef]string{{}: err.Error()})
			}
		})
	}
	n.stop = func() {
		cancel()
		_ = api.Close()
		running.Wait()
	}
	return nil
}

// parts are what works until its context ends.
func (n *Neutron) parts(objects cache.Cache, writer client.Client) ([]func(context.Context) error, error) {
	log, monitor := slog.New(slog.DiscardHandler), heartbeat.New(heartbeat.Bound)
	mode, known := n.lab.policyMode()
	source := clusterintent.New(clusterintent.Options{
		Log: log, Informers: objects, Monitor: monitor, Policies: &n.lab.OVN.policies, PoliciesKnown: known,
		Settings: clusterintent.Settings{
			Mapping: config.MapFlat, SNAT: intent.SNAT{Enabled: true}, PolicyMode: mode,
			NodeAddress: names.ManagementAddress, Unbound: true,
		},
	})
	runner, err := neutron.New(neutron.Options{
		Log: log, Intent: source, Informers: objects, Monitor: monitor, Hub: n,
		Spare: reserved.NeutronSpare, Octavia: n.Octavia, SubnetPools: n.SubnetPools,
		GivenPools: n.GivenPools,
		Northbound: []string{n.lab.OVN.Remote("nb")},
		Cloud:      cloud.Access{Endpoint: n.Endpoint, Project: neutrontest.Project},
		Access:     &reconcile.Access{Client: writer, Live: writer, Events: &record.FakeRecorder{}},
	})
	if err != nil {
		return nil, err
	}
	n.Calls = runner.Calls
	return []func(context.Context) error{source.Start, runner.Start}, nil
}

// StopController leaves Neutron as it is: no controller is left.
func (n *Neutron) StopController() {
	n.stop()
	n.stop = func() {}
}

// SetUnsupported takes what Neutron does not do of objects, as the hub of a controller does.
func (n *Neutron) SetUnsupported(objects map[intent.PolicyRef]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsupported = objects
}

// Unsupported is what Neutron does not do of objects. While it cannot be used, the Network default
// says why.
func (n *Neutron) Unsupported() map[intent.PolicyRef]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unsupported
}

// close ends both.
func (n *Neutron) close() {
	n.StopController()
	if n.Server != nil {
		n.Close()
	}
}
