// SPDX-License-Identifier: Apache-2.0

// Package kubetest is a Kubernetes API for tests, as package kube shows it to the parts of the
// agent: it refuses what the API server would refuse, and can be away.
package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
)

// API holds objects. Its methods are those of kube.Client.
type API struct {
	// Node is the one of which pods and Ports are asked for.
	Node string

	mu          sync.Mutex
	away        bool
	number      int
	blocks      map[string]*v1alpha1.AddressBlock
	ports       map[string]*v1alpha1.Port
	pods        map[string]*corev1.Pod
	nodes       map[string]*corev1.Node
	namespaces  map[string]*corev1.Namespace
	definitions map[string]*kube.Definition
	kuryrPorts  map[string]*unstructured.Unstructured
	networks    map[string]*v1alpha1.Network
	routers     map[string]*v1alpha1.Router
	viewers     map[*viewer]bool
	watchers    map[*watcher]bool
	calls       []string

	// telling is held while viewers are told, one change at a time.
	telling sync.Mutex
}

type viewer struct {
	kube.Updates
	pods func(kube.Delta[*corev1.Pod])
}

// watcher is told of the Ports of the node.
type watcher struct {
	update func(kube.Delta[*v1alpha1.Port])
	begun  bool
	told   []*v1alpha1.Port
}

// tell passes on all Ports, and then which have gone.
func (w *watcher) tell(ports []*v1alpha1.Port) {
	d := kube.Delta[*v1alpha1.Port]{Whole: !w.begun, Set: ports}
	for _, o := range w.told {
		same := func(p *v1alpha1.Port) bool { return p.UID == o.UID }
		if !slices.ContainsFunc(ports, same) {
			d.Gone = append(d.Gone, o)
		}
	}
	w.begun, w.told = true, ports
	w.update(d)
}

// New makes an empty API.
func New(node string) *API {
	return &API{
		Node: node, blocks: map[string]*v1alpha1.AddressBlock{}, ports: map[string]*v1alpha1.Port{},
		pods:  map[string]*corev1.Pod{},
		nodes: map[string]*corev1.Node{}, namespaces: map[string]*corev1.Namespace{},
		definitions: map[string]*kube.Definition{},
		kuryrPorts:  map[string]*unstructured.Unstructured{},
		networks:    map[string]*v1alpha1.Network{}, routers: map[string]*v1alpha1.Router{},
		viewers: map[*viewer]bool{}, watchers: map[*watcher]bool{},
	}
}

// Show has a view see all objects, now and after each change, until the
// returned function is called.
func (a *API) Show(u kube.Updates, pods func(kube.Delta[*corev1.Pod])) (hide func()) {
	v := &viewer{u, pods}
	a.mutate(func() { a.viewers[v] = true })
	return func() { a.mutate(func() { delete(a.viewers, v) }) }
}

// WatchNodePorts is kube.Client's.
func (a *API) WatchNodePorts(ctx context.Context, update func(kube.Delta[*v1alpha1.Port])) error {
	w := &watcher{update: update}
	a.mutate(func() {
		a.calls = append(a.calls, "watch ports")
		a.watchers[w] = true
	})
	<-ctx.Done()
	a.mutate(func() { delete(a.watchers, w) })
	return nil
}

// SetAway makes all calls fail as if the API server were down, or work again. The cache gets
// nothing new meanwhile.
func (a *API) SetAway(away bool) {
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	a.told()
}

// Calls are the calls so far, such as "create block lan-10-0-0-0-28".
func (a *API) Calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// told tells all viewers what there is. The caller does not hold mu.
func (a *API) told() {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.mu.Lock()
	viewers, watchers, away := maps.Clone(a.viewers), maps.Clone(a.watchers), a.away
	nodes, namespaces, networks, routers := list(a.nodes), list(a.namespaces), list(a.networks), list(a.routers)
	blocks, ports, definitions, pods := list(a.blocks), list(a.ports), list(a.definitions), list(a.pods)
	a.mu.Unlock()
	if away {
		return
	}
	others := func(p *v1alpha1.Port) bool { return p.Labels[v1alpha1.LabelNode] != a.Node }
	own := slices.DeleteFunc(slices.Clone(ports), others)
	for w := range watchers {
		w.tell(own)
	}
	ports = slices.DeleteFunc(ports, func(p *v1alpha1.Port) bool { return p.Labels[v1alpha1.LabelPodPort] != "" })
	for v := range viewers {
		v.Nodes(kube.Whole(nodes))
		v.Namespaces(kube.Whole(namespaces))
		v.Networks(kube.Whole(networks))
		v.Routers(kube.Whole(routers))
		v.Blocks(kube.Whole(blocks))
		v.Ports(kube.Whole(ports))
		v.Definitions(kube.Whole(definitions))
		v.Pools(kube.Whole[*v1alpha1.LoadBalancerPool](nil))
		v.FloatingIPs(kube.Whole[*v1alpha1.FloatingIP](nil))
		v.Egresses(kube.Whole[*v1alpha1.Egress](nil))
		if v.pods != nil {
			v.pods(kube.Whole(pods))
		}
	}
}

func list[T any](m map[string]*T) []*T {
	var all []*T
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// errAway is a client's error when the API server is down.
var errAway = errors.New("dial tcp 127.0.0.1:6443: connect: connection refused")

func (a *API) call(format string, args ...any) error {
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
	if a.away {
		return errAway
	}
	return nil
}

func notFound(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: "coelan.io", Resource: resource}, name)
}

func exists(resource, name string) error {
	return apierrors.NewAlreadyExists(schema.GroupResource{Group: "coelan.io", Resource: resource}, name)
}

// Add stores objects as they are, with their status.
func (a *API) Add(objects ...metav1.Object) {
	a.mu.Lock()
	for _, o := range objects {
		a.born(o)
		key := o.GetNamespace() + "/" + o.GetName()
		switch o := o.(type) {
		case *v1alpha1.AddressBlock:
			a.blocks[o.Name] = o
		case *v1alpha1.Network:
			a.networks[o.Name] = o
		case *v1alpha1.Router:
			a.routers[o.Name] = o
		case *v1alpha1.Port:
			a.ports[key] = o
		case *corev1.Pod:
			a.pods[key] = o
		case *corev1.Node:
			a.nodes[o.Name] = o
		case *corev1.Namespace:
			a.namespaces[o.Name] = o
		case *kube.Definition:
			a.definitions[key] = o
		case *unstructured.Unstructured:
			a.kuryrPorts[key] = o
		default:
			panic(fmt.Sprintf("no such kind here: %T", o))
		}
	}
	a.mu.Unlock()
	a.told()
}

// RemoveBlock and RemovePort delete an object as a user would.
func (a *API) RemoveBlock(name string) { a.mutate(func() { delete(a.blocks, name) }) }

// RemovePort deletes a Port by namespace/name.
func (a *API) RemovePort(key string) { a.mutate(func() { delete(a.ports, key) }) }

// RemovePod deletes a pod by namespace/name.
func (a *API) RemovePod(key string) { a.mutate(func() { delete(a.pods, key) }) }

func (a *API) mutate(change func()) {
	a.mu.Lock()
	change()
	a.mu.Unlock()
	a.told()
}

// AllBlocks and AllPorts are the objects, sorted by name.
func (a *API) AllBlocks() []*v1alpha1.AddressBlock {
	a.mu.Lock()
	defer a.mu.Unlock()
	return list(a.blocks)
}

// AllPorts are the Ports, sorted by namespace and name.
func (a *API) AllPorts() []*v1alpha1.Port {
	a.mu.Lock()
	defer a.mu.Unlock()
	return list(a.ports)
}

func (a *API) born(o metav1.Object) {
	a.number++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprint("uid-", a.number)))
	}
	o.SetResourceVersion(fmt.Sprint(a.number))
}

// Pod is kube.Client's.
func (a *API) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return get(a, "pod", a.pods, namespace+"/"+name)
}

// Namespace is kube.Client's.
func (a *API) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return get(a, "namespace", a.namespaces, name)
}

// Definition is kube.Client's.
func (a *API) Definition(_ context.Context, namespace, name string) (*kube.Definition, error) {
	return get(a, "definition", a.definitions, namespace+"/"+name)
}

// KuryrPort is kube.Client's.
func (a *API) KuryrPort(_ context.Context, namespace, name string) ([]byte, error) {
	o, err := get(a, "kuryr port", a.kuryrPorts, namespace+"/"+name)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o.Object)
}

// Block is kube.Client's.
func (a *API) Block(_ context.Context, name string) (*v1alpha1.AddressBlock, error) {
	return get(a, "block", a.blocks, name)
}

// Port is kube.Client's.
func (a *API) Port(_ context.Context, namespace, name string) (*v1alpha1.Port, error) {
	return get(a, "port", a.ports, namespace+"/"+name)
}

func get[T any](a *API, kind string, from map[string]*T, key string) (*T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.call("get %s %s", kind, key); err != nil {
		return nil, err
	}
	o, ok := from[key]
	if !ok {
		return nil, notFound(kind, key)
	}
	c := *o
	return &c, nil
}

// Blocks is kube.Client's.
func (a *API) Blocks(_ context.Context, network string) ([]*v1alpha1.AddressBlock, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.call("list blocks of %s", network); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list(a.blocks), func(b *v1alpha1.AddressBlock) bool {
		return b.Spec.Network != network
	}), nil
}

// NodePorts is kube.Client's.
func (a *API) NodePorts(context.Context) ([]*v1alpha1.Port, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.call("list ports"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list(a.ports), func(p *v1alpha1.Port) bool {
		return p.Labels[v1alpha1.LabelNode] != a.Node
	}), nil
}

// CreateBlock is kube.Client's.
func (a *API) CreateBlock(_ context.Context, b *v1alpha1.AddressBlock) (*v1alpha1.AddressBlock, error) {
	c := b.DeepCopy()
	if _, err := netip.ParsePrefix(c.Spec.CIDR); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	c.Status = v1alpha1.AddressBlockStatus{}
	return create(a, "block", a.blocks, c.Name, c)
}

// CreatePort is kube.Client's.
func (a *API) CreatePort(_ context.Context, p *v1alpha1.Port) (*v1alpha1.Port, error) {
	c := p.DeepCopy()
	c.Status = v1alpha1.PortStatus{}
	return create(a, "port", a.ports, c.Namespace+"/"+c.Name, c)
}

func create[T any](a *API, kind string, in map[string]*T, key string, o *T) (*T, error) {
	a.mu.Lock()
	err := a.call("create %s %s", kind, key)
	if _, taken := in[key]; err == nil && taken {
		err = exists(kind, key)
	}
	if err == nil {
		a.born(any(o).(metav1.Object))
		in[key] = o
	}
	a.mu.Unlock()
	a.told()
	if err != nil {
		return nil, err
	}
	c := *o
	return &c, nil
}

// DeleteBlock is kube.Client's.
func (a *API) DeleteBlock(_ context.Context, name string, uid types.UID) error {
	return remove(a, "block", a.blocks, name, uid)
}

// DeletePort is kube.Client's.
func (a *API) DeletePort(_ context.Context, namespace, name string, uid types.UID) error {
	return remove(a, "port", a.ports, namespace+"/"+name, uid)
}

func remove[T any](a *API, kind string, from map[string]*T, key string, uid types.UID) error {
	a.mu.Lock()
	err := a.call("delete %s %s", kind, key)
	if o, ok := from[key]; err == nil && ok && any(o).(metav1.Object).GetUID() == uid {
		delete(from, key)
	}
	a.mu.Unlock()
	a.told()
	return err
}

// PatchBlockStatus is kube.Client's.
func (a *API) PatchBlockStatus(_ context.Context, name string, status any) error {
	return patch(a, "block", a.blocks, name, map[string]any{"status": status})
}

// ClaimBlock is kube.Client's.
func (a *API) ClaimBlock(_ context.Context, name, resourceVersion, node string) error {
	a.mu.Lock()
	b, ok := a.blocks[name]
	a.mu.Unlock()
	if ok && b.ResourceVersion != resourceVersion {
		resource := schema.GroupResource{Resource: "addressblocks"}
		return apierrors.NewConflict(resource, name, errors.New("it has changed"))
	}
	return patch(a, "block", a.blocks, name, map[string]any{"status": map[string]any{"activeNode": node}})
}

// PatchPortStatus is kube.Client's.
func (a *API) PatchPortStatus(_ context.Context, namespace, name string, status any) error {
	return patch(a, "port", a.ports, namespace+"/"+name, map[string]any{"status": status})
}

// AnnotatePod is kube.Client's.
func (a *API) AnnotatePod(_ context.Context, namespace, name string, _ types.UID, annotations map[string]string) error {
	return patch(a, "pod", a.pods, namespace+"/"+name,
		map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// AnnotateNode is kube.Client's. The call alone is noted.
func (a *API) AnnotateNode(_ context.Context, name string, annotations map[string]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.call("annotate node %s %v", name, annotations)
}

// patch merges as a merge patch does, but for lists and maps of unknown depth: values are replaced.
func patch[T any](a *API, kind string, in map[string]*T, key string, change map[string]any) error {
	a.mu.Lock()
	err := a.call("patch %s %s", kind, key)
	o, ok := in[key]
	if err == nil && !ok {
		err = notFound(kind, key)
	}
	if err == nil {
		a.number++
		in[key], err = merged(o, change)
		if err == nil {
			any(in[key]).(metav1.Object).SetResourceVersion(fmt.Sprint(a.number))
		}
	}
	a.mu.Unlock()
	a.told()
	return err
}

func merged[T any](o *T, change map[string]any) (*T, error) {
	var was, with map[string]any
	for into, v := range map[*map[string]any]any{&was: o, &with: change} {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, into); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(overlay(was, with))
	if err != nil {
		return nil, err
	}
	c := new(T)
	return c, json.Unmarshal(data, c)
}

func overlay(was, with map[string]any) map[string]any {
	out := maps.Clone(was)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range with {
		inner, nested := v.(map[string]any)
		switch old, _ := out[k].(map[string]any); {
		case v == nil:
			delete(out, k)
		case nested:
			out[k] = overlay(old, inner)
		default:
			out[k] = v
		}
	}
	return out
}
