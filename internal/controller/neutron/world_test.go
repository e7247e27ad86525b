// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/controller/clusterintent"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// world is a controller with all that makes intent of objects, each by its own way, between an API
// in memory and a Neutron in memory.
type world struct {
	*testing.T

	neutron  *neutronfake.Neutron
	progress *policies.Progress
	source   *clusterintent.Source
	runner   *Runner

	changes broadcast.Broadcast
	mu      sync.Mutex
	sources map[reflect.Type]*cachetest.FakeControllerSource
	// informers are by kind, and run from when they are asked for.
	informers map[reflect.Type]toolscache.SharedIndexInformer
	objects   map[objectKey]client.Object
	made      map[string]int // calls, by method and kind
	// brought is the newest State that Neutron is as.
	brought *intent.State
	pools   []intent.SubnetPool // of a controller that starts
}

type objectKey struct {
	kind reflect.Type
	name client.ObjectKey
}

func keyOf(o client.Object) objectKey {
	return objectKey{reflect.TypeOf(o), client.ObjectKeyFromObject(o)}
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, neutron: neutronfake.Start(t), progress: policies.NewProgress(reconcile.NewScheme()),
		sources:   map[reflect.Type]*cachetest.FakeControllerSource{},
		informers: map[reflect.Type]toolscache.SharedIndexInformer{}, objects: map[objectKey]client.Object{},
		made: map[string]int{},
	}
	w.neutron.Arrive(func(method, path string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if method != "GET" {
			kind, _, _ := strings.Cut(path, "/")
			w.made[method+" "+kind]++
		}
	})
	return w
}

// nothing takes what is not in effect.
type nothing struct{}

func (nothing) SetUnsupported(map[intent.PolicyRef]string) {}

// start runs all until the test ends.
func (w *world) start() {
	w.Helper()
	log, monitor := slog.New(slog.DiscardHandler), heartbeat.New(heartbeat.Bound)
	to := policies.NewDistribution()
	access := &reconcile.Access{Client: api{world: w}, Live: api{world: w}, Events: &record.FakeRecorder{}}
	feed, err := policies.Setup(managed{world: w}, access, monitor, policies.Options{
		Log: log, Distribution: to, Progress: w.progress, BindAddress: "0", NodeAddress: names.ManagementAddress,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.source = clusterintent.New(clusterintent.Options{
		Log: log, Informers: informers{world: w}, Monitor: monitor, Policies: to.Engine, PoliciesKnown: feed.Known(),
		PoliciesProgressed: feed.Progressed,
		Settings:           clusterintent.Settings{PolicyMode: intent.EnforcedPolicies, NodeAddress: names.ManagementAddress},
	})
	w.runner, err = New(Options{
		Log: log, Cloud: cloud.Access{Endpoint: w.neutron.URL, Project: "p"}, Spare: reserved.NeutronSpare, Intent: w.source,
		Informers: informers{world: w}, Access: access, Hub: nothing{}, Monitor: monitor, SubnetPools: w.pools,
	})
	if err != nil {
		w.Fatal(err)
	}
	r := w.runner
	r.client = cloud.New(cloud.Options{
		Access: r.Cloud, Want: r.want, Claims: r.claims, Found: r.found, Parents: r.parents, Asks: r.asks, Answered: r.identities.answered, Log: log,
		Report: func(refused []resource.Problem, err error) {
			r.report(refused, err)
			for _, p := range refused {
				w.Errorf("%+v", p)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.brought = r.compiled
			w.changes.Send()
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range []manager.Runnable{feed, w.source, w.runner} {
		running.Go(func() {
			if err := r.Start(ctx); err != nil {
				w.Error(err)
			}
		})
	}
	w.Cleanup(func() {
		cancel()
		running.Wait()
	})
	w.settle()
}

// These are the parts of a manager that are used.
type (
	managed struct {
		manager.Manager
		*world
	}
	informers struct {
		cache.Cache
		*world
	}
	api struct {
		client.Client
		*world
	}
)

func (m managed) GetCache() cache.Cache       { return informers{world: m.world} }
func (m managed) GetAPIReader() client.Reader { return api{world: m.world} }
func (managed) Add(manager.Runnable) error    { return nil } // the test runs what it needs

// GetInformer implements cache.Cache.
func (i informers) GetInformer(
	_ context.Context, o client.Object, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := reflect.TypeOf(o)
	if i.informers[kind] == nil {
		informer := i.progress.NewInformer(i.of(kind), o, 0, toolscache.Indexers{})
		i.informers[kind] = informer
		stop := make(chan struct{})
		go informer.Run(stop)
		i.Cleanup(func() { close(stop) })
	}
	return i.informers[kind], nil
}

// of is the source of a kind; w.mu is held.
func (w *world) of(kind reflect.Type) *cachetest.FakeControllerSource {
	if w.sources[kind] == nil {
		w.sources[kind] = cachetest.NewFakeControllerSource()
	}
	return w.sources[kind]
}

// set creates or changes an object.
func (w *world) set(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(o)
}

func (w *world) put(o client.Object) {
	key, o := keyOf(o), o.DeepCopyObject().(client.Object)
	if port, is := o.(*v1alpha1.Port); is && w.objects[key] != nil {
		if before := w.objects[key].(*v1alpha1.Port).Status.Neutron; port.Status.Neutron == nil {
			port.Status.Neutron = before
		}
	}
	_, there := w.objects[key]
	w.objects[key] = o
	if there {
		w.of(key.kind).Modify(o.DeepCopyObject())
	} else {
		w.of(key.kind).Add(o.DeepCopyObject())
	}
	w.changes.Send()
}

func (w *world) delete(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(o)
	w.of(key.kind).Delete(w.objects[key].DeepCopyObject())
	delete(w.objects, key)
	w.changes.Send()
}

// get reads an object.
func (w *world) get(name client.ObjectKey, o client.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.objects[objectKey{reflect.TypeOf(o), name}]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, name.String())
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// Get implements client.Reader.
func (a api) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return a.get(name, o)
}

// List implements client.Reader: there is nothing of what is listed.
func (api) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Status implements client.Client.
func (a api) Status() client.SubResourceWriter { return statuses{world: a.world} }

type statuses struct {
	client.SubResourceWriter
	world *world
}

// Patch implements client.SubResourceWriter.
func (s statuses) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	found := s.world.objects[keyOf(o)]
	if found == nil || found.GetUID() != o.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another one"))
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	found = found.DeepCopyObject().(client.Object)
	if err := json.Unmarshal(data, found); err != nil {
		return err
	}
	s.world.put(found)
	return nil
}

// calls are how many calls that change something were made, by method and kind.
func (w *world) calls() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.made)
}

// await waits until something is so, and looks after each change.
func (w *world) await(what string, changed func() <-chan struct{}, is func() bool) {
	for end := time.After(time.Minute); ; {
		next := changed()
		if is() {
			return
		}
		select {
		case <-next:
		case <-end:
			w.Errorf("after a minute: %s", what)
			return
		}
	}
}

// told waits until a Port says which port of Neutron it has.
func (w *world) told(p *v1alpha1.Port) {
	w.await("port "+p.Name+" has none in Neutron", w.changes.Changed, func() bool {
		now := &v1alpha1.Port{}
		err := w.get(client.ObjectKeyFromObject(p), now)
		return err == nil && now.UID == p.UID && now.Status.Neutron != nil && now.Status.Neutron.MAC == p.Status.MAC
	})
}

func (w *world) stateReplaced() <-chan struct{} { return w.source.Intent().State().Replaced() }

// known waits until intent has a Subject.
func (w *world) known(subject string) {
	w.await("no subject "+subject, w.stateReplaced, func() bool {
		_, is := w.source.Intent().State().Subjects().Get(subject)
		return is
	})
}

func (w *world) unknown(subject string) {
	w.await("still a subject "+subject, w.stateReplaced, func() bool {
		_, is := w.source.Intent().State().Subjects().Get(subject)
		return !is
	})
}

func (w *world) absent(p *v1alpha1.Port) {
	w.await("still port "+p.Name, w.stateReplaced, func() bool {
		for q := range w.source.Intent().State().Ports().All() {
			if q.ObjectUID == string(p.UID) {
				return false
			}
		}
		return true
	})
}

// settle waits until Neutron is as the newest intent says.
func (w *world) settle() {
	w.await("Neutron is not as is wanted", w.changes.Changed, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.brought != nil && w.brought == w.source.Intent().State()
	})
}
