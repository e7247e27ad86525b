// SPDX-License-Identifier: Apache-2.0

package apicache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// SaveObjects makes the saved objects of a kind equal to those given; it writes only what
	// differs.
	SaveObjects(kind string, objects map[string][]byte) error
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

	mu      sync.Mutex
	state   State
	unsaved map[string]bool // kinds
	changed broadcast.Broadcast
}

// New reads what was remembered.
func New(log *slog.Logger, store Store) (*View, error) {
	v := &View{
		log: log, store: store, dirty: trigger.New(),
		unsaved: map[string]bool{},
	}
	v.state.listed, v.state.versions = map[string]bool{}, map[string]uint64{}
	v.state.encoded = map[string]map[string][]byte{}
	for _, kind := range kinds {
		v.state.encoded[kind] = store.Objects(kind)
	}
	return v, errors.Join(
		load(v, Pods, &v.state.Pods), load(v, Nodes, &v.state.Nodes), load(v, Namespaces, &v.state.Namespaces),
		load(v, kube.Networks, &v.state.Networks),
		load(v, kube.Routers, &v.state.Routers), load(v, kube.Blocks, &v.state.Blocks),
		load(v, kube.Ports, &v.state.Ports),
		load(v, kube.Pools, &v.state.Pools), load(v, kube.Definitions, &v.state.Definitions),
		load(v, kube.FloatingIPs, &v.state.FloatingIPs), load(v, kube.Egresses, &v.state.Egresses),
	)
}

func load[T any](v *View, kind string, into *map[string]*T) error {
	*into = map[string]*T{}
	v.state.versions[kind]++
	for name, data := range v.state.encoded[kind] {
		o := new(T)
		if err := json.Unmarshal(data, o); err != nil {
			return fmt.Errorf("remembered object %s %s: %w", kind, name, err)
		}
		(*into)[name] = o
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
		Nodes: func(l []*corev1.Node) {
			set(v, Nodes, &v.state.Nodes, l, func(o *corev1.Node) string { return o.Name })
			after()
		},
		Namespaces: func(l []*corev1.Namespace) {
			set(v, Namespaces, &v.state.Namespaces, l, func(o *corev1.Namespace) string { return o.Name })
			after()
		},
		Networks: func(l []*v1alpha1.Network) {
			set(v, kube.Networks, &v.state.Networks, l, func(o *v1alpha1.Network) string { return o.Name })
			after()
		},
		Routers: func(l []*v1alpha1.Router) {
			set(v, kube.Routers, &v.state.Routers, l, func(o *v1alpha1.Router) string { return o.Name })
			after()
		},
		Blocks: func(l []*v1alpha1.AddressBlock) {
			set(v, kube.Blocks, &v.state.Blocks, l, func(o *v1alpha1.AddressBlock) string { return o.Name })
			after()
		},
		Ports: func(l []*v1alpha1.Port) {
			set(v, kube.Ports, &v.state.Ports, l, func(o *v1alpha1.Port) string { return o.Namespace + "/" + o.Name })
			after()
		},
		Pools: func(l []*v1alpha1.LoadBalancerPool) {
			set(v, kube.Pools, &v.state.Pools, l, func(o *v1alpha1.LoadBalancerPool) string { return o.Name })
			after()
		},
		FloatingIPs: func(l []*v1alpha1.FloatingIP) {
			set(v, kube.FloatingIPs, &v.state.FloatingIPs, l, func(o *v1alpha1.FloatingIP) string {
				return o.Namespace + "/" + o.Name
			})
			after()
		},
		Egresses: func(l []*v1alpha1.Egress) {
			set(v, kube.Egresses, &v.state.Egresses, l, func(o *v1alpha1.Egress) string { return o.Name })
			after()
		},
		Definitions: func(l []*kube.Definition) {
			set(v, kube.Definitions, &v.state.Definitions, l, func(o *kube.Definition) string {
				return o.Namespace + "/" + o.Name
			})
			after()
		},
		Absent: v.absent,
	}
}

// SetPods replaces the pods of this node.
func (v *View) SetPods(l []*corev1.Pod) { set(v, Pods, &v.state.Pods, l, wellknown.PodUID) }

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

// set replaces the objects of a kind. Only those that are other objects than before are encoded
// anew.
func set[T any](v *View, kind string, target *map[string]*T, list []*T, key func(*T) string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	objects, encoded := make(map[string]*T, len(list)), make(map[string][]byte, len(list))
	for _, o := range list {
		k := key(o)
		objects[k] = o
		if data, ok := v.state.encoded[kind][k]; ok && (*target)[k] == o {
			encoded[k] = data
			continue
		}
		data, err := encode(o)
		if err != nil {
			v.log.Error("cannot encode an object for the cache on disk; a start without the API server would lack it",
				"kind", kind, "name", k, "err", err)
			continue
		}
		encoded[k] = data
	}
	*target = objects
	v.state.encoded = maps.Clone(v.state.encoded)
	v.state.encoded[kind] = encoded
	v.unsaved[kind] = true
	v.note(kind)
	v.dirty.Fire()
}

// encode leaves out the version of an object, which changes with each heartbeat of a node and each
// count of addresses: an object that is the same but for its version is not written again.
func encode[T any](o *T) ([]byte, error) {
	c := *o
	if m, ok := any(&c).(metav1.Object); ok {
		m.SetResourceVersion("")
	}
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
	unsaved, encoded := v.unsaved, v.state.encoded
	v.unsaved = map[string]bool{}
	v.mu.Unlock()
	var errs []error
	for kind := range unsaved {
		if err := v.store.SaveObjects(kind, encoded[kind]); err != nil {
			errs = append(errs, err)
			v.mu.Lock()
			v.unsaved[kind] = true
			v.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
