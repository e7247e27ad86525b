// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// identities writes into Ports and Nodes which ports of Neutron they are made into: agents plug
// interfaces by these. Into Ports that ask for a port it writes what that has. Into Networks it
// writes which network and subnets they are, and the project that these are in, if that is not the
// cluster's: so they stay there, whatever becomes of the Namespaces that it follows from. Routers
// and FloatingIPs say what they are, too, and the Network default which quotas are nearly exceeded.
type identities struct {
	Options
	queue workqueue.TypedRateLimitingInterface[target]
	// asked is called when other Ports ask for ports.
	asked func()

	mu   sync.Mutex
	asks asks
	// ports are by what resources call the object; lookedPorts are the objects of those that were
	// found since the last comparison.
	ports       map[string]held
	lookedPorts map[string]bool
	// networks are what Neutron has of Networks; looked are those of this comparison so far.
	networks, looked map[string]network
	// others are the ids of routers and floating IPs, and lookedOthers those of this comparison so
	// far.
	others, lookedOthers map[string]string
	// nodePorts are the Nodes that had a port when all were compared last.
	nodePorts map[string]bool
	// compared reports whether all was looked at: before, what is not known may be there.
	compared bool
	// pressure is which quotas are nearly exceeded; empty: none is, if quotas are known.
	pressure    string
	quotasKnown bool
	// objects are those that there are of these.
	objects map[string]watched
}

// watched is an object, and the port that it says to have.
type watched struct {
	target
	shown held
}

// held is a port, and the UID of the Port that has it; a Node needs none.
type held struct {
	v1alpha1.NeutronPort
	holder string
}

// target is a Port, a Node, a Network, a Router or a FloatingIP.
type target struct {
	kind            intent.Kind
	namespace, name string
}

// targetOf is an object of one of these kinds.
func targetOf(o client.Object) target {
	t := target{intent.KindPort, o.GetNamespace(), o.GetName()}
	switch o.(type) {
	case *corev1.Node:
		t.kind = intent.KindNode
	case *v1alpha1.Network:
		t.kind = intent.KindNetwork
	case *v1alpha1.Router:
		t.kind = intent.KindRouter
	case *v1alpha1.FloatingIP:
		t.kind = intent.KindFloatingIP
	}
	return t
}

// object is what resources call it.
func (t target) object() string {
	switch t.kind {
	case intent.KindNode:
		return compile.NodeObject(t.name)
	case intent.KindNetwork:
		return compile.NetworkObject(t.name)
	case intent.KindRouter:
		return compile.RouterObject(t.name)
	case intent.KindFloatingIP:
		return compile.FloatingIPObject(t.namespace + "/" + t.name)
	}
	return compile.PortObject(t.namespace + "/" + t.name)
}

func (t target) key() client.ObjectKey { return client.ObjectKey{Namespace: t.namespace, Name: t.name} }

// writers is how many objects are written at once.
const writers = 4

func newIdentities(o Options, asked func()) *identities {
	return &identities{
		Options: o, asked: asked, asks: newAsks(), ports: map[string]held{}, lookedPorts: map[string]bool{},
		networks: map[string]network{}, looked: map[string]network{}, objects: map[string]watched{},
		others: map[string]string{}, lookedOthers: map[string]string{}, nodePorts: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[target]()),
	}
}

// found takes the port that Neutron has of an object.
func (i *identities) found(of resource.Resource, a resource.Actual) {
	mac, _ := a.Attributes["mac_address"].(string)
	now := held{v1alpha1.NeutronPort{ID: a.ID, MAC: mac, VLAN: int32(a.VLAN)}, of.Holder}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lookedPorts[of.Object] = true
	if i.ports[of.Object] == now {
		return
	}
	i.ports[of.Object] = now
	i.changed(of.Object)
}

// changed has an object written, if it is known already. The caller holds mu.
func (i *identities) changed(object string) {
	if o, known := i.objects[object]; known {
		i.queue.Add(o.target)
	}
}

// forgetPorts forgets the ports of objects that are gone, of which the last comparison did not find
// any: one that did may know of an object before it is known here. The caller holds mu.
func (i *identities) forgetPorts() {
	maps.DeleteFunc(i.ports, func(object string, _ held) bool {
		_, known := i.objects[object]
		return !known && !i.lookedPorts[object]
	})
	clear(i.lookedPorts)
}

// holds says whether an object has been told of a port: its node may have plugged it.
func (i *identities) holds(of resource.Resource, a resource.Actual) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, known := range []held{i.ports[of.Object], i.objects[of.Object].shown} {
		if known.ID == a.ID && known.holder == of.Holder {
			return true
		}
	}
	return false
}

// follow has objects looked at until ctx ends, and returns when all that there are were.
func (i *identities) follow(ctx context.Context) error {
	var synced []toolscache.InformerSynced
	for _, kind := range []client.Object{
		&v1alpha1.Port{}, &corev1.Node{}, &v1alpha1.Network{}, &v1alpha1.Router{}, &v1alpha1.FloatingIP{},
	} {
		all, err := i.watch(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		synced = append(synced, all)
	}
	toolscache.WaitForCacheSync(ctx.Done(), synced...)
	return nil
}

// run writes until ctx ends.
func (i *identities) run(ctx context.Context) {
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
}

// watch has the objects of a kind looked at when they come or change, and returns what says that
// all were.
func (i *identities) watch(ctx context.Context, kind client.Object) (toolscache.InformerSynced, error) {
	informer, err := i.Informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { i.note(o) },
		UpdateFunc: func(_, o any) { i.note(o) },
		DeleteFunc: func(o any) { i.forget(o) },
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	return registration.HasSynced, nil
}

func (i *identities) note(o any) {
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	t := targetOf(object)
	i.mu.Lock()
	defer i.mu.Unlock()
	now := watched{target: t}
	port, isPort := o.(*v1alpha1.Port)
	if isPort && port.Status.Neutron != nil {
		now.shown = held{*port.Status.Neutron, string(port.UID)}
	}
	i.objects[t.object()] = now
	if isPort && i.asks.set(t.object(), port) {
		i.asked()
	}
	_, made := i.ports[t.object()]
	if _, answered := i.asks.answers[t.object()]; made || answered ||
		t.kind != intent.KindPort && t.kind != intent.KindNode {
		i.queue.Add(t)
	}
}

func (i *identities) forget(o any) {
	if last, unknown := o.(toolscache.DeletedFinalStateUnknown); unknown {
		o = last.Obj
	}
	if object, ok := o.(client.Object); ok {
		key := targetOf(object).object()
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.objects, key)
		if holder := i.networks[key].holder; holder == string(object.GetUID()) {
			delete(i.networks, key)
		}
		delete(i.others, key)
		if holder := i.ports[key].holder; holder == "" || holder == string(object.GetUID()) {
			delete(i.ports, key) // and not that of the next object of the name
		}
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
		if !apierrors.IsConflict(err) { // another writer was faster
			i.Log.Warn("cannot write which resources of Neutron an object has, trying again", "kind", t.kind,
				"namespace", t.namespace, "name", t.name, "err", err)
		}
		i.queue.AddRateLimited(t)
		return true
	}
	i.queue.Forget(t)
	return true
}

// write brings an object to what is known.
func (i *identities) write(ctx context.Context, t target) error {
	switch t.kind {
	case intent.KindNetwork:
		err := i.writeNetwork(ctx, t)
		if t.name == intent.DefaultNetworkName {
			err = errors.Join(err, i.writePressure(ctx, t))
		}
		return err
	case intent.KindNode:
		return i.writeNode(ctx, t)
	case intent.KindRouter, intent.KindFloatingIP:
		return i.writeOther(ctx, t)
	}
	return i.writePort(ctx, t)
}

// writeNode writes which port a Node has, or that it has none any more: then Neutron refuses it
// one.
func (i *identities) writeNode(ctx context.Context, t target) error {
	i.mu.Lock()
	now, known := i.ports[t.object()]
	lost := i.compared && !i.nodePorts[t.object()]
	i.mu.Unlock()
	node := &corev1.Node{}
	if !known && !lost {
		return nil
	}
	if err := i.Access.Get(ctx, t.key(), node); err != nil {
		return client.IgnoreNotFound(err)
	}
	vlan := ""
	if now.VLAN != 0 {
		vlan = strconv.Itoa(int(now.VLAN))
	}
	if node.Annotations[v1alpha1.AnnotationNeutronPort] == now.ID &&
		node.Annotations[v1alpha1.AnnotationNeutronVLAN] == vlan {
		return nil
	}
	change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		v1alpha1.AnnotationNeutronPort: present(now.ID), v1alpha1.AnnotationNeutronVLAN: present(vlan),
	}}}
	return patch(change, func(p client.Patch) error { return i.Access.Status().Patch(ctx, node, p) })
}

// writePort writes nothing of a Port that is about to have another MAC address, or is another one
// of the same name: its port is replaced.
func (i *identities) writePort(ctx context.Context, t target) error {
	i.mu.Lock()
	now, known := i.ports[t.object()]
	offer, answered := i.asks.answers[t.object()]
	i.mu.Unlock()
	if !known && !answered {
		return nil
	}
	port := &v1alpha1.Port{}
	if err := i.Access.Get(ctx, t.key(), port); err != nil {
		return client.IgnoreNotFound(err)
	}
	status := map[string]any{}
	if known && string(port.UID) == now.holder && port.Status.MAC == now.MAC &&
		(port.Status.Neutron == nil || *port.Status.Neutron != now.NeutronPort) {
		status["neutron"] = map[string]any{"id": now.ID, "mac": now.MAC, "vlan": present(now.VLAN)}
	}
	if answered && port.UID == offer.asker && port.Status.Offered == nil {
		status["offered"] = offer.NeutronOffer
	}
	if len(status) == 0 {
		return nil
	}
	change := map[string]any{"metadata": map[string]any{"uid": port.UID}, "status": status}
	return patch(change, func(p client.Patch) error { return i.Access.Status().Patch(ctx, port, p) })
}

// patch makes a change of one entry. That the object is gone, or another one, is no error.
func patch(change any, do func(client.Patch) error) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(do(client.RawPatch(types.MergePatchType, data)))
}

// present is a value of a merge patch; the zero value removes the entry.
func present[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}
