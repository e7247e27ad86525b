// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/clusterintent"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// Resume has the northbound database be as the objects of the API say, as the controller does, also
// again after Stop.
func (o *OVN) Resume() error {
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("API server for OVN's rows: %w", err)
	}
	api := &http.Server{Handler: o.lab.API}
	objects, err := cache.New(&rest.Config{Host: "http://" + listener.Addr().String()}, cache.Options{
		Scheme: scheme, Mapper: testrestmapper.TestOnlyStaticRESTMapper(scheme),
	})
	if err != nil {
		listener.Close()
		return fmt.Errorf("objects for OVN's rows: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	mode, known := o.lab.policyMode()
	source := clusterintent.New(clusterintent.Options{
		Log: log, Informers: objects, Monitor: heartbeat.New(heartbeat.Bound),
		Policies: &o.policies, PoliciesKnown: known,
		Settings: clusterintent.Settings{
			Mapping: config.MapFlat, SNAT: intent.SNAT{Enabled: true}, PolicyMode: mode,
			NodeAddress: names.ManagementAddress,
		},
	})
	compiler := compile.New(compile.Options{})
	client := northbound.New(northbound.Options{
		Remotes: []string{o.Remote("nb")}, Log: log,
		Rows: func() *nb.Rows {
			compiler.Update(source.Intent().State())
			return compiler.Rows()
		},
		Report: func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.failure = err
		},
	})
	o.client = client
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = api.Serve(listener) })
	running.Go(func() { _ = objects.Start(ctx) })
	running.Go(func() { _ = source.Start(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-source.Ready():
		}
		running.Go(func() {
			for ctx.Err() == nil {
				state := source.Intent().State()
				client.Changed()
				select {
				case <-ctx.Done():
				case <-state.Replaced():
				}
			}
		})
		client.Run(ctx)
	})
	o.stop = func() {
		cancel()
		_ = api.Close()
		running.Wait()
	}
	return nil
}

// Stop leaves the northbound database as it is: no controller is left.
func (o *OVN) Stop() {
	o.stop()
	o.stop = func() {}
}

// Failure is why the northbound database is not as wanted; nil if it is.
func (o *OVN) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failure
}

// Check is how the northbound database differs from what the objects of the API want, as `coelan
// check` says. It needs what Resume has started.
func (o *OVN) Check(ctx context.Context) (agentapi.OVNCheck, error) { return o.client.Check(ctx) }
