// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/eventhandler"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
)

// Store is the Kubernetes API. What clients write is read live, so that every replica answers with
// what was written last; pods, nodes and namespaces are read from the cache.
type Store struct {
	Live client.Reader
	// Cached has the indexes of AddIndexes.
	Cached client.Reader
	Client client.Client
	// Informers say when objects change.
	Informers cache.Informers
}

var _ API = (*Store)(nil)

// kinds are what informers know resources by. Of EndpointSlices they only have the metadata: a
// controller that does not lead keeps no others.
var kinds = map[mapping.Resource]client.Object{
	mapping.Networks: &v1alpha1.Network{}, mapping.Routers: &v1alpha1.Router{}, mapping.Ports: &v1alpha1.Port{},
	mapping.Pods: &corev1.Pod{}, mapping.Nodes: &corev1.Node{}, mapping.Namespaces: &corev1.Namespace{},
	mapping.Services: &corev1.Service{}, mapping.Policies: &networkingv1.NetworkPolicy{},
	mapping.Slices: &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice",
	}},
	mapping.Blocks: &v1alpha1.AddressBlock{}, mapping.FloatingIPs: &v1alpha1.FloatingIP{},
	mapping.Egresses: &v1alpha1.Egress{}, mapping.Pools: &v1alpha1.LoadBalancerPool{},
	mapping.Groups: &v1alpha1.SecurityGroup{}, mapping.NodeConfigs: &v1alpha1.NodeNetworkConfig{},
}

// Watch implements API.
func (s *Store) Watch(ctx context.Context, r mapping.Resource, changed func()) error {
	informer, err := s.Informers.GetInformer(ctx, kinds[r], cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(eventhandler.OnChange(changed, nil))
	if err != nil {
		return err
	}
	// It fails if the informer has ended before.
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	return nil
}

// Read implements API.
func (s *Store) Read(ctx context.Context, resources []mapping.Resource, only mapping.Entry) (*mapping.World, error) {
	w := &mapping.World{
		Networks: map[string]*v1alpha1.Network{}, Routers: map[string]*v1alpha1.Router{},
		Ports: map[types.NamespacedName]*v1alpha1.Port{}, Namespaces: map[string]*corev1.Namespace{},
		Nodes: map[string]*corev1.Node{}, Pods: map[types.UID]*corev1.Pod{},
		Services: map[types.NamespacedName]*corev1.Service{},
		Slices:   map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		Policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
		Objects:  map[mapping.Resource]map[types.NamespacedName]client.Object{},
	}
	if only.Object != (mapping.Resource{}) {
		if err := s.readObject(ctx, w, only); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", only.Key, only.Object.Name, err)
		}
		return w, nil
	}
	pod := ""
	switch only.Container {
	case "coe":
		pod = only.Key
	case "service-information", "endpoints-info":
		if err := s.readService(ctx, w, only); err != nil {
			return nil, fmt.Errorf("read the Service %s: %w", only.Key, err)
		}
		return w, nil
	}
	for _, r := range resources {
		var err error
		switch r {
		case mapping.Networks:
			err = s.readNetworks(ctx, w)
		case mapping.Routers:
			var list v1alpha1.RouterList
			err = s.Live.List(ctx, &list)
			for i := range list.Items {
				w.Routers[list.Items[i].Name] = &list.Items[i]
			}
		case mapping.Ports:
			err = s.readPorts(ctx, w, pod)
		case mapping.Nodes:
			var list corev1.NodeList
			err = s.Cached.List(ctx, &list)
			for i := range list.Items {
				w.Nodes[list.Items[i].Name] = &list.Items[i]
			}
		case mapping.Pods:
			err = s.readPods(ctx, w, pod)
		case mapping.Services:
			var list corev1.ServiceList
			err = s.Live.List(ctx, &list)
			for i := range list.Items {
				w.Services[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
			}
		case mapping.Slices:
			var list discoveryv1.EndpointSliceList
			err = s.Live.List(ctx, &list)
			for i := range list.Items {
				w.Slices[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
			}
		case mapping.Policies:
			var list networkingv1.NetworkPolicyList
			err = s.Live.List(ctx, &list)
			for i := range list.Items {
				w.Policies[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
			}
		case mapping.Namespaces:
			err = s.readNamespaces(ctx, w)
		default:
			err = s.readObjects(ctx, w, r)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.Name, err)
		}
	}
	return w, nil
}

// readObject reads one object of coelan.io.
func (s *Store) readObject(ctx context.Context, w *mapping.World, of mapping.Entry) error {
	o := mapping.NewObject(of.Object)
	if err := s.Live.Get(ctx, mapping.ObjectKey(of.Object, of.Key), o); err != nil {
		// No object has a name that the API does not take for one.
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	w.Put(of.Object, o)
	return nil
}

// readObjects reads all objects of a kind of coelan.io.
func (s *Store) readObjects(ctx context.Context, w *mapping.World, r mapping.Resource) error {
	list := mapping.NewObjectList(r)
	if err := s.Live.List(ctx, list); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		w.Put(r, o.(client.Object))
		return nil
	})
}

// readNetworks reads the Networks, and the namespaces, which they may be called after.
func (s *Store) readNetworks(ctx context.Context, w *mapping.World) error {
	var list v1alpha1.NetworkList
	if err := s.Live.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		w.Networks[list.Items[i].Name] = &list.Items[i]
	}
	return s.readNamespaces(ctx, w)
}

func (s *Store) readNamespaces(ctx context.Context, w *mapping.World) error {
	var namespaces corev1.NamespaceList
	if err := s.Cached.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range namespaces.Items {
		w.Namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	return nil
}

// readPorts reads all Ports, or those of one entry of pod:coe: by its label, or, if a client of
// Kubernetes has made the Port, by its own UID.
func (s *Store) readPorts(ctx context.Context, w *mapping.World, pod string) error {
	var list v1alpha1.PortList
	if pod == "" {
		if err := s.Live.List(ctx, &list); err != nil {
			return err
		}
		addPorts(w, list.Items)
		return nil
	}
	if err := s.Live.List(ctx, &list, client.MatchingLabels{mapping.LabelPod: pod}); err != nil {
		return err
	}
	if len(list.Items) > 0 {
		addPorts(w, list.Items)
		return nil
	}
	var cached v1alpha1.PortList
	err := s.Cached.List(ctx, &cached, client.MatchingFields{IndexUID: pod}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	for i := range cached.Items {
		live := &v1alpha1.Port{}
		err := s.Live.Get(ctx, client.ObjectKeyFromObject(&cached.Items[i]), live)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && string(live.UID) == pod {
			addPorts(w, []v1alpha1.Port{*live})
		}
	}
	return nil
}

// readPods reads all pods, or that of one UID.
func (s *Store) readPods(ctx context.Context, w *mapping.World, uid string) error {
	if uid != "" {
		return s.readPod(ctx, w, types.UID(uid))
	}
	var list corev1.PodList
	if err := s.Cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range list.Items {
		w.Pods[list.Items[i].UID] = &list.Items[i]
	}
	return nil
}

// addPorts puts Ports into a World.
func addPorts(w *mapping.World, list []v1alpha1.Port) {
	for i := range list {
		w.Ports[client.ObjectKeyFromObject(&list[i])] = &list[i]
	}
}

// undoTimeout bounds how long it takes to take back a part of the changes.
const undoTimeout = 10 * time.Second

// Commit implements API. All changes are tried first without effect. If one fails nevertheless,
// those before it are taken back. Afterwards they have the objects as the API stored them.
func (s *Store) Commit(ctx context.Context, changes []mapping.Change) error {
	if len(changes) > 1 {
		for _, c := range changes {
			if _, err := s.apply(ctx, client.NewDryRunClient(s.Client), c); err != nil {
				return explain(c, err)
			}
		}
	}
	for i, c := range changes {
		made, err := s.apply(ctx, s.Client, c)
		if err != nil {
			return errors.Join(explain(c, err), s.undo(ctx, changes[:i]))
		}
		mapping.Adopt(made, changes[i+1:])
		changes[i].Object = made
	}
	return nil
}

// apply does one change of the version of the object that was read. It returns what the API has
// made of the object.
func (s *Store) apply(ctx context.Context, c client.Client, change mapping.Change) (client.Object, error) {
	o := change.Object.DeepCopyObject().(client.Object)
	switch change.Verb {
	case mapping.Create:
		return o, c.Create(ctx, o)
	case mapping.Update:
		return o, c.Update(ctx, o)
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	return o, client.IgnoreNotFound(err)
}

// undo takes changes back, the last one first.
func (s *Store) undo(ctx context.Context, changes []mapping.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var problems []error
	for _, c := range slices.Backward(changes) {
		if err := s.undoOne(ctx, c); err != nil {
			problems = append(problems, fmt.Errorf("take back %s of %s %s: %w", c.Verb, c.Resource.Name,
				client.ObjectKeyFromObject(c.Object), err))
		}
	}
	return errors.Join(problems...)
}

func (s *Store) undoOne(ctx context.Context, c mapping.Change) error {
	switch c.Verb {
	case mapping.Create:
		return client.IgnoreNotFound(s.Client.Delete(ctx, c.Object.DeepCopyObject().(client.Object)))
	case mapping.Update:
		now := c.Old.DeepCopyObject().(client.Object)
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(c.Object), now); err != nil {
			return err
		}
		before := c.Old.DeepCopyObject().(client.Object)
		before.SetResourceVersion(now.GetResourceVersion())
		return s.Client.Update(ctx, before)
	}
	again := c.Object.DeepCopyObject().(client.Object)
	again.SetResourceVersion("")
	again.SetUID("")
	return s.Client.Create(ctx, again)
}

// explain is an error of the API as one of the entry that the object belongs to; those that a new
// try may end are left as they are.
func explain(c mapping.Change, err error) error {
	name := client.ObjectKeyFromObject(c.Object)
	switch {
	case apierrors.IsInvalid(err):
		return datatree.Fail(datatree.InvalidValue, "", err.Error())
	case apierrors.IsNotFound(err) && c.Verb == mapping.Create:
		return datatree.Fail(datatree.InvalidValue, "", fmt.Sprintf("%s %s: %v", c.Resource.Name, name, err))
	case apierrors.IsNotFound(err):
		return datatree.Fail(datatree.DataMissing, "",
			fmt.Sprintf("%s %s was deleted meanwhile", c.Resource.Name, name))
	case apierrors.IsForbidden(err):
		return datatree.Fail(datatree.OperationFailed, "", err.Error())
	}
	return err
}
