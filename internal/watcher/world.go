// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/watcher/coe"
	"coelan.io/coelan/internal/watcher/mirror"
)

// byService is the index of EndpointSlices by their Service's name.
const byService = "service"

// world turns the cluster's objects into entries.
type world struct {
	log     *slog.Logger
	api     client.Reader // a cache
	render  coe.Renderer
	mirror  *mirror.Mirror
	events  record.EventRecorder
	leading atomic.Bool

	informers map[client.Object]cache.Informer
	// mu has entries computed and set one after the other: the last one is of the newest objects.
	mu sync.Mutex
}

func newWorld(log *slog.Logger, m manager.Manager, c Config, to mirror.Target) *world {
	w := &world{
		log: log, api: m.GetCache(), events: m.GetEventRecorderFor(name),
		render: coe.Renderer{
			ClusterID: c.ClusterID, NetworkID: c.NetworkID, Networks: c.Networks, HostNetwork: c.HostNetwork,
		},
	}
	w.mirror = mirror.New(mirror.Options{
		Log: log, Target: to, ClusterID: c.ClusterID, Reread: c.Reread.Duration, Workers: c.Workers,
		Refused: w.refused, Written: func(ref mirror.Ref, after time.Duration) {
			lag.WithLabelValues(ref.List.Name).Observe(after.Seconds())
		},
	})
	return w
}

// refused reports an entry that the controller does not take on its object.
func (w *world) refused(ref mirror.Ref, e coe.Entry, err error) {
	w.log.Warn("the controller refuses an entry, retrying", "entry", ref.String(), "err", err)
	if object := involved(ref, e); object != nil {
		w.events.Eventf(object, corev1.EventTypeWarning, "RefusedByController", "%v", err)
	}
}

// objectUID is the uid of the object that an entry is of.
func objectUID(ref mirror.Ref) types.UID { return types.UID(ref.Key) }

// watch has the cache follow what is needed, also while this replica does not lead.
func (w *world) watch(ctx context.Context, c cache.Cache) error {
	w.informers = map[client.Object]cache.Informer{}
	for _, o := range []client.Object{&corev1.Node{}, &corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}} {
		i, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		w.informers[o] = i
	}
	return c.IndexField(ctx, &discoveryv1.EndpointSlice{}, byService, func(o client.Object) []string {
		return []string{o.GetLabels()[discoveryv1.LabelServiceName]}
	})
}

// Start implements manager.Runnable, for the leader: it writes until ctx ends.
func (w *world) Start(ctx context.Context) error {
	w.leading.Store(true)
	defer w.leading.Store(false)
	w.set(mirror.Ref{List: coe.Clusters, Key: w.render.ClusterID}, w.render.Cluster())
	var synced []toolscache.InformerSynced
	for _, i := range w.informers {
		registration, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { w.changed(ctx, o, nil) },
			UpdateFunc: func(old, o any) {
				w.changed(ctx, o, old)
			},
			DeleteFunc: func(o any) {
				if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				w.changed(ctx, nil, o)
			},
		})
		if err != nil {
			return fmt.Errorf("watcher: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	return w.mirror.Run(ctx)
}

// changed takes an object as it is now and as it was before; nil: it was not.
func (w *world) changed(ctx context.Context, now, before any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Another object may have come in place of one that was deleted, with another uid.
	w.unset(before, now)
	switch o := now.(type) {
	case *corev1.Node:
		w.set(mirror.Ref{List: coe.Nodes, Key: string(o.UID)}, w.render.Node(o))
	case *corev1.Pod:
		w.set(mirror.Ref{List: coe.Pods, Key: string(o.UID)}, w.render.Pod(o))
	case *corev1.Service:
		w.set(mirror.Ref{List: coe.Services, Key: string(o.UID)}, w.render.Service(o))
		w.endpoints(ctx, o)
	}
	for _, o := range []any{now, before} {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			w.slice(ctx, slice)
		}
	}
}

// unset removes the entries of an object that is not there any more.
func (w *world) unset(before, now any) {
	old, ok := before.(client.Object)
	if !ok {
		return
	}
	if o, ok := now.(client.Object); ok && o.GetUID() == old.GetUID() {
		return
	}
	key := string(old.GetUID())
	switch before.(type) {
	case *corev1.Node:
		w.set(mirror.Ref{List: coe.Nodes, Key: key}, nil)
	case *corev1.Pod:
		w.set(mirror.Ref{List: coe.Pods, Key: key}, nil)
	case *corev1.Service:
		w.set(mirror.Ref{List: coe.Endpoints, Key: key}, nil)
		w.set(mirror.Ref{List: coe.Services, Key: key}, nil)
	}
}

// slice computes the endpoints of a slice's Service, if there is one.
func (w *world) slice(ctx context.Context, s *discoveryv1.EndpointSlice) {
	svc := &corev1.Service{}
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	if key.Name == "" {
		return
	}
	switch err := w.api.Get(ctx, key, svc); {
	case err == nil:
		w.endpoints(ctx, svc)
	case client.IgnoreNotFound(err) != nil && ctx.Err() == nil:
		w.log.Error("cannot read a Service from memory", "service", key.String(), "err", err)
	}
}

func (w *world) endpoints(ctx context.Context, s *corev1.Service) {
	list := &discoveryv1.EndpointSliceList{}
	err := w.api.List(ctx, list, client.InNamespace(s.Namespace), client.MatchingFields{byService: s.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Error("cannot read EndpointSlices from memory", "service", s.Namespace+"/"+s.Name, "err", err)
		}
		return
	}
	var slices []*discoveryv1.EndpointSlice
	for i := range list.Items {
		slices = append(slices, &list.Items[i])
	}
	w.set(mirror.Ref{List: coe.Endpoints, Key: string(s.UID)}, w.render.Endpoints(s, slices))
}

func (w *world) set(ref mirror.Ref, e coe.Entry) {
	if err := w.mirror.Set(ref, e); err != nil {
		w.log.Error("an entry cannot be made", "entry", ref.String(), "err", err)
	}
}
