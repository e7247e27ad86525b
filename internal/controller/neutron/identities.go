// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// identities writes into Ports and Nodes which ports of Neutron they are made into: agents plug
// interfaces by these. Into Ports that ask for a port it writes what that has.
type identities struct {
	Options
	queue workqueue.TypedRateLimitingInterface[target]
	// asked is called when other Ports ask for ports.
	asked func()

	mu    sync.Mutex
	asks  asks
	ports map[string]v1alpha1.NeutronPort // by what resources call the object
	// targets are the objects of ports.
	targets map[string]target
}

// target is a Port, or a Node, which has no namespace.
type target struct{ namespace, name string }

func (t target) object() string {
	if t.namespace == "" {
		return compile.NodeObject(t.name)
	}
	return compile.PortObject(t.namespace + "/" + t.name)
}

// writers is how many objects are written at once.
const writers = 4

func newIdentities(o Options, asked func()) *identities {
	return &identities{
		Options: o, asked: asked, asks: newAsks(), ports: map[string]v1alpha1.NeutronPort{},
		targets: map[string]target{},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[target]()),
	}
}

// found takes the port that Neutron has of an object.
func (i *identities) found(object string, a resource.Actual) {
	mac, _ := a.Attributes["mac_address"].(string)
	now := v1alpha1.NeutronPort{ID: a.ID, MAC: mac}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ports[object] == now {
		return
	}
	i.ports[object] = now
	if t, known := i.targets[object]; known {
		i.queue.Add(t)
	}
}

// run works until ctx ends.
func (i *identities) run(ctx context.Context) error {
	for _, kind := range []client.Object{&v1alpha1.Port{}, &corev1.Node{}} {
		if err := i.watch(ctx, kind); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for i.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	i.queue.ShutDown()
	running.Wait()
	return nil
}

// watch has the objects of a kind looked at when they come or change.
func (i *identities) watch(ctx context.Context, kind client.Object) error {
	informer, err := i.Informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { i.note(o) },
		UpdateFunc: func(_, o any) { i.note(o) },
		DeleteFunc: func(o any) { i.forget(o) },
	})
	if err == nil {
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	}
	return err
}

func (i *identities) note(o any) {
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	t := target{object.GetNamespace(), object.GetName()}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.targets[t.object()] = t
	if _, made := i.ports[t.object()]; made {
		i.queue.Add(t)
	}
	if port, ok := o.(*v1alpha1.Port); ok && i.asks.set(t.object(), port) {
		i.asked()
	}
}

func (i *identities) forget(o any) {
	if last, unknown := o.(toolscache.DeletedFinalStateUnknown); unknown {
		o = last.Obj
	}
	if object, ok := o.(client.Object); ok {
		key := target{object.GetNamespace(), object.GetName()}.object()
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.targets, key)
		delete(i.ports, key)
		if i.asks.set(key, nil) {
			i.asked()
		}
	}
}

func (i *identities) next(ctx context.Context) bool {
	t, stop := i.queue.Get()
	if stop {
		return false
	}
	defer i.queue.Done(t)
	if err := i.write(ctx, t); err != nil && ctx.Err() == nil {
		i.Log.Warn("cannot write which port of Neutron an object has, trying again", "namespace", t.namespace, "name", t.name,
			"err", err)
		i.queue.AddRateLimited(t)
		return true
	}
	i.queue.Forget(t)
	return true
}

// write brings an object to what is known. Of a Port that is about to have another MAC address
// nothing is written: its port is replaced.
func (i *identities) write(ctx context.Context, t target) error {
	i.mu.Lock()
	now, known := i.ports[t.object()]
	offer, answered := i.asks.answers[t.object()]
	i.mu.Unlock()
	if !known && !answered {
		return nil
	}
	key := client.ObjectKey{Namespace: t.namespace, Name: t.name}
	if t.namespace == "" {
		node := &corev1.Node{}
		if err := i.Access.Get(ctx, key, node); err != nil ||
			node.Annotations[v1alpha1.AnnotationNeutronPort] == now.ID {
			return client.IgnoreNotFound(err)
		}
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			v1alpha1.AnnotationNeutronPort: now.ID,
		}}}
		return i.patch(ctx, patch, func(p client.Patch) error { return i.Access.Status().Patch(ctx, node, p) })
	}
	port := &v1alpha1.Port{}
	if err := i.Access.Get(ctx, key, port); err != nil {
		return client.IgnoreNotFound(err)
	}
	status := map[string]any{}
	if known && port.Status.MAC == now.MAC && (port.Status.Neutron == nil || *port.Status.Neutron != now) {
		status["neutron"] = now
	}
	if answered && port.UID == offer.asker && port.Status.Offered == nil {
		status["offered"] = offer.NeutronOffer
	}
	if len(status) == 0 {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": port.UID}, "status": status}
	return i.patch(ctx, patch, func(p client.Patch) error { return i.Access.Status().Patch(ctx, port, p) })
}

// patch makes a change of one entry. That the object is gone, or another one, is no error.
func (*identities) patch(_ context.Context, change any, do func(client.Patch) error) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	err = do(client.RawPatch(types.MergePatchType, data))
	return client.IgnoreNotFound(err)
}
