// SPDX-License-Identifier: Apache-2.0

package apicache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/internal/wellknown"
)

// Store keeps objects on disk, by kind and name.
type Store interface {
	// ChangeObjects saves objects of a kind, by name, forgets those that are gone, and leaves all
	// others. It writes only what differs.
	ChangeObjects(kind string, objects map[string][]byte, gone []string) error
	// Objects are the saved ones of a kind. Their bytes must not be changed.
	Objects(kind string) map[string][]byte
}

// View is the newest State. Its methods are safe for concurrent use.
type View struct {
	log   *slog.Logger
	store Store
	// saving is held while something is written to the store.
	saving sync.Mutex
	dirty  trigger.Trigger

	mu    sync.Mutex
	state State
	// pods are those of this node by namespace/name; two may have the same UID, see
	// wellknown.PodUID.
	pods    map[string]*corev1.Pod
	unsaved map[string]map[string]encoder // by kind and key; nil: it is gone
	changed broadcast.Broadcast
}

// New reads what was remembered.
func New(log *slog.Logger, store Store) (*View, error) {
	v := &View{
		log: log, store: store, dirty: trigger.New(),
		pods: map[string]*corev1.Pod{}, unsaved: map[string]map[string]encoder{},
	}
	v.state.listed, v.state.versions = map[string]bool{}, map[string]uint64{}
	return v, errors.Join(
		load(v, Pods, &v.state.Pods), load(v, Nodes, &v.state.Nodes), load(v, Namespaces, &v.state.Namespaces),
		load(v, kube.Networks, &v.state.Networks),
		load(v, kube.Routers, &v.state.Routers), load(v, kube.Blocks, &v.state.Blocks),
		load(v, kube.Ports, &v.state.Ports),
		load(v, kube.Pools, &v.state.Pools), load(v, kube.Definitions, &v.state.Definitions),
		load(v, kube.FloatingIPs, &v.state.FloatingIPs), load(v, kube.Egresses, &v.state.Egresses),
	)
}

func load[T any](v *View, kind string, into *Objects[T]) error {
	v.state.versions[kind]++
	for name, data := range v.store.Objects(kind) {
		o := new(T)
		if err := json.Unmarshal(data, o); err != nil {
			return fmt.Errorf("remembered object %s %s: %w", kind, name, err)
		}
		*into = into.Put(name, o)
	}
	return nil
}

// State is the newest State.
func (v *View) State() State {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state
}

// Changes returns a channel that closes with the next change. Take it before looking, so that no
// change is missed.
func (v *View) Changes() <-chan struct{} {
	return v.changed.Changed()
}

// Touch notifies waiters that something derived from the State has changed.
func (v *View) Touch() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed.Send()
}

// Await waits until enough says that what is known is enough, or ctx ends. It returns the newest
// State.
func (v *View) Await(ctx context.Context, enough func(State) bool) (State, bool) {
	for {
		changed := v.Changes()
		state := v.State()
		if enough(state) {
			return state, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state, false
		}
	}
}

// Updates are what keeps the View up to date; after is called after each change.
func (v *View) Updates(after func()) kube.Updates {
	return kube.Updates{
		Nodes: func(d kube.Delta[*corev1.Node]) {
			set(v, Nodes, &v.state.Nodes, d, name)
			after()
		},
		Namespaces: func(d kube.Delta[*corev1.Namespace]) {
			set(v, Namespaces, &v.state.Namespaces, d, name)
			after()
		},
		Networks: func(d kube.Delta[*v1alpha1.Network]) {
			set(v, kube.Networks, &v.state.Networks, d, name)
			after()
		},
		Routers: func(d kube.Delta[*v1alpha1.Router]) {
			set(v, kube.Routers, &v.state.Routers, d, name)
			after()
		},
		Blocks: func(d kube.Delta[*v1alpha1.AddressBlock]) {
			set(v, kube.Blocks, &v.state.Blocks, d, name)
			after()
		},
		Ports: func(d kube.Delta[*v1alpha1.Port]) {
			set(v, kube.Ports, &v.state.Ports, d, namespacedName)
			after()
		},
		Pools: func(d kube.Delta[*v1alpha1.LoadBalancerPool]) {
			set(v, kube.Pools, &v.state.Pools, d, name)
			after()
		},
		FloatingIPs: func(d kube.Delta[*v1alpha1.FloatingIP]) {
			set(v, kube.FloatingIPs, &v.state.FloatingIPs, d, namespacedName)
			after()
		},
		Egresses: func(d kube.Delta[*v1alpha1.Egress]) {
			set(v, kube.Egresses, &v.state.Egresses, d, name)
			after()
		},
		Definitions: func(d kube.Delta[*kube.Definition]) {
			set(v, kube.Definitions, &v.state.Definitions, d, namespacedName)
			after()
		},
		Absent: v.absent,
	}
}

// SetPods brings the pods of this node to a Delta.
func (v *View) SetPods(d kube.Delta[*corev1.Pod]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.Apply(v.pods, namespacedName)
	all := make([]*corev1.Pod, 0, len(v.pods))
	for _, n := range slices.Sorted(maps.Keys(v.pods)) {
		all = append(all, v.pods[n])
	}
	apply(v, Pods, &v.state.Pods, kube.Whole(all), wellknown.PodUID)
}

// absent notes that the API does not have a kind. What is remembered of it stays.
func (v *View) absent(kind string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(kind)
}

// note records that the API has told of a kind. The caller holds mu.
func (v *View) note(kind string) {
	if !v.state.listed[kind] {
		v.state.listed = maps.Clone(v.state.listed)
		v.state.listed[kind] = true
	}
	v.state.versions = maps.Clone(v.state.versions)
	v.state.versions[kind]++
	v.changed.Send()
}

// object is a pointer to one of type T.
type object[T any] interface {
	*T
	metav1.Object
}

func name[O metav1.Object](o O) string { return o.GetName() }

func namespacedName[O metav1.Object](o O) string { return o.GetNamespace() + "/" + o.GetName() }

// set brings the objects of a kind to a Delta.
func set[T any, P object[T]](v *View, kind string, objects *Objects[T], d kube.Delta[P], key func(P) string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	apply(v, kind, objects, d, key)
}

// apply does what set does. The caller holds mu.
func apply[T any, P object[T]](v *View, kind string, objects *Objects[T], d kube.Delta[P], key func(P) string) {
	if v.unsaved[kind] == nil {
		v.unsaved[kind] = map[string]encoder{}
	}
	unsaved, now := v.unsaved[kind], *objects
	remove := func(k string) {
		now, unsaved[k] = now.Remove(k), nil
	}
	for _, o := range d.Gone {
		remove(key(o))
	}
	stays := make(map[string]struct{}, len(d.Set))
	for _, o := range d.Set {
		k := key(o)
		stays[k] = struct{}{}
		if now.Get(k) != (*T)(o) {
			now, unsaved[k] = now.Put(k, o), func() ([]byte, error) { return encode[T, P](o) }
		}
	}
	if d.Whole {
		for k := range objects.All() {
			if _, ok := stays[k]; !ok {
				remove(k)
			}
		}
	}
	*objects = now
	v.note(kind)
	v.dirty.Fire()
}

// encoder returns an object as it is saved.
type encoder func() ([]byte, error)

// encode leaves out the version of an object, which changes with each heartbeat of a node and each
// count of addresses: an object that is the same but for its version is not written again.
func encode[T any, P object[T]](o P) ([]byte, error) {
	c := *o
	P(&c).SetResourceVersion("")
	return json.Marshal(&c)
}

// settle is how long changes are gathered before they are written.
const settle = 50 * time.Millisecond

// Run writes what is new to the store until ctx ends.
func (v *View) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return v.Save()
		case <-v.dirty:
		}
		retry.Sleep(ctx, settle)
		if err := v.Save(); err != nil {
			// The agent works on; only a start without the API server would miss this change.
			v.log.Error("cannot write the cache of API objects to disk; retried at the next change", "err", err)
		}
	}
}

// Save writes what is new to the store now.
func (v *View) Save() error {
	v.saving.Lock()
	defer v.saving.Unlock()
	v.mu.Lock()
	unsaved := v.unsaved
	v.unsaved = map[string]map[string]encoder{}
	v.mu.Unlock()
	var errs []error
	for kind, objects := range unsaved {
		if err := v.write(kind, objects); err != nil {
			errs = append(errs, err)
			v.mu.Lock()
			maps.Copy(objects, v.unsaved[kind]) // what is newer counts
			v.unsaved[kind] = objects
			v.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (v *View) write(kind string, objects map[string]encoder) error {
	var gone []string
	encoded := make(map[string][]byte, len(objects))
	for key, encode := range objects {
		if encode == nil {
			gone = append(gone, key)
			continue
		}
		data, err := encode()
		if err != nil {
			v.log.Error("cannot encode an object for the cache on disk; a start without the API server would lack it",
				"kind", kind, "name", key, "err", err)
			gone = append(gone, key)
			continue
		}
		encoded[key] = data
	}
	return v.store.ChangeObjects(kind, encoded, gone)
}
