// SPDX-License-Identifier: Apache-2.0

// Package mapping translates between entries of YANG models and objects of the Kubernetes API. It
// is pure: a World holds the objects that were read, and an entry that is written changes them
// there. Changes compares two Worlds.
package mapping

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// World has the objects that entries are mapped to. Objects are not changed in place but replaced.
type World struct {
	Networks   map[string]*v1alpha1.Network
	Routers    map[string]*v1alpha1.Router
	Ports      map[types.NamespacedName]*v1alpha1.Port
	Namespaces map[string]*corev1.Namespace
	Nodes      map[string]*corev1.Node
	// Pods are those of Kubernetes, by UID.
	Pods     map[types.UID]*corev1.Pod
	Services map[types.NamespacedName]*corev1.Service
	Slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
	Policies map[types.NamespacedName]*networkingv1.NetworkPolicy
	// Objects are those of the other resources of coelan.io.
	Objects map[Resource]map[types.NamespacedName]client.Object

	// hidden are the Ports that the client of an edit may not list: no entry can refer to them.
	hidden map[types.NamespacedName]bool
}

// Clone has maps of its own with the same objects.
func (w *World) Clone() *World {
	return &World{
		Networks: maps.Clone(w.Networks), Routers: maps.Clone(w.Routers), Ports: maps.Clone(w.Ports),
		Namespaces: w.Namespaces, Nodes: w.Nodes, Pods: w.Pods,
		Services: maps.Clone(w.Services), Slices: maps.Clone(w.Slices),
		Policies: maps.Clone(w.Policies), Objects: cloneObjects(w.Objects), hidden: w.hidden,
	}
}

func cloneObjects(all map[Resource]map[types.NamespacedName]client.Object,
) map[Resource]map[types.NamespacedName]client.Object {
	cloned := make(map[Resource]map[types.NamespacedName]client.Object, len(all))
	for r, objects := range all {
		cloned[r] = maps.Clone(objects)
	}
	return cloned
}

// Put puts an object into the World, in place of the one of its name.
func (w *World) Put(r Resource, o client.Object) {
	key := client.ObjectKeyFromObject(o)
	switch o := o.(type) {
	case *v1alpha1.Network:
		w.Networks[o.Name] = o
	case *v1alpha1.Router:
		w.Routers[o.Name] = o
	case *v1alpha1.Port:
		w.Ports[key] = o
	case *corev1.Service:
		w.Services[key] = o
	case *discoveryv1.EndpointSlice:
		w.Slices[key] = o
	case *networkingv1.NetworkPolicy:
		w.Policies[key] = o
	default:
		if w.Objects == nil {
			w.Objects = map[Resource]map[types.NamespacedName]client.Object{}
		}
		if w.Objects[r] == nil {
			w.Objects[r] = map[types.NamespacedName]client.Object{}
		}
		w.Objects[r][key] = o
	}
}

// object is the object of coelan.io of that name; nil if there is none.
func (w *World) object(r Resource, key types.NamespacedName) client.Object {
	switch r {
	case Networks:
		return orNil(w.Networks[key.Name])
	case Routers:
		return orNil(w.Routers[key.Name])
	case Ports:
		return orNil(w.Ports[key])
	}
	return w.Objects[r][key]
}

// orNil is an interface without a value for a nil pointer.
func orNil[T any, P interface {
	*T
	client.Object
}](p P) client.Object {
	if p == nil {
		return nil
	}
	return p
}

// objects are all of a resource of coelan.io, in the order of their names.
func (w *World) objects(r Resource) []client.Object {
	var all []client.Object
	switch r {
	case Networks:
		all = appendObjects(all, w.Networks)
	case Routers:
		all = appendObjects(all, w.Routers)
	case Ports:
		all = appendObjects(all, w.Ports)
	default:
		all = appendObjects(all, w.Objects[r])
	}
	slices.SortFunc(all, byName)
	return all
}

func appendObjects[K comparable, O client.Object](to []client.Object, from map[K]O) []client.Object {
	for _, o := range from {
		to = append(to, o)
	}
	return to
}

func byName(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// remove takes an object of coelan.io out.
func (w *World) remove(r Resource, key types.NamespacedName) {
	switch r {
	case Networks:
		delete(w.Networks, key.Name)
	case Routers:
		delete(w.Routers, key.Name)
	case Ports:
		delete(w.Ports, key)
	default:
		delete(w.Objects[r], key)
	}
}

// Limit has entries that are written refer only to pods and Ports that the client may list.
func (w *World) Limit(seen *World) {
	w.Pods, w.hidden = seen.Pods, map[types.NamespacedName]bool{}
	for key := range w.Ports {
		if seen.Ports[key] == nil {
			w.hidden[key] = true
		}
	}
}

// Replace takes the objects of resources from another World.
func (w *World) Replace(from *World, resources []Resource) {
	for _, r := range resources {
		switch r {
		case Networks:
			w.Networks = from.Networks
		case Routers:
			w.Routers = from.Routers
		case Ports:
			w.Ports = from.Ports
		case Namespaces:
			w.Namespaces = from.Namespaces
		case Nodes:
			w.Nodes = from.Nodes
		case Pods:
			w.Pods = from.Pods
		case Services:
			w.Services = from.Services
		case Slices:
			w.Slices = from.Slices
		case Policies:
			w.Policies = from.Policies
		default:
			w.Objects[r] = from.Objects[r]
		}
	}
}

// Size is the number of all objects.
func (w *World) Size() int {
	size := len(w.Networks) + len(w.Routers) + len(w.Ports) + len(w.Namespaces) + len(w.Nodes) + len(w.Pods) +
		len(w.Services) + len(w.Slices) + len(w.Policies)
	for _, objects := range w.Objects {
		size += len(objects)
	}
	return size
}

// Verb is what a Change does, as authorization calls it.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Resource is an object's kind, as authorization calls it.
type Resource struct{ Group, Name string }

// The resources.
var (
	Networks = Resource{v1alpha1.GroupVersion.Group, "networks"}
	Routers  = Resource{v1alpha1.GroupVersion.Group, "routers"}
	Ports    = Resource{v1alpha1.GroupVersion.Group, "ports"}
	Pods     = Resource{"", "pods"}
	Nodes    = Resource{"", "nodes"}
	Services = Resource{"", "services"}
	Slices   = Resource{discoveryv1.GroupName, "endpointslices"}
	Policies = Resource{networkingv1.GroupName, "networkpolicies"}
	// Namespaces say which cluster it is.
	Namespaces = Resource{"", "namespaces"}

	Blocks      = Resource{v1alpha1.GroupVersion.Group, "addressblocks"}
	FloatingIPs = Resource{v1alpha1.GroupVersion.Group, "floatingips"}
	Egresses    = Resource{v1alpha1.GroupVersion.Group, "egresses"}
	Pools       = Resource{v1alpha1.GroupVersion.Group, "loadbalancerpools"}
	Groups      = Resource{v1alpha1.GroupVersion.Group, "securitygroups"}
	NodeConfigs = Resource{v1alpha1.GroupVersion.Group, "nodenetworkconfigs"}
)

// OtherObjects are the resources of coelan.io that a World has in Objects.
func OtherObjects() []Resource {
	return []Resource{Blocks, FloatingIPs, Egresses, Pools, Groups, NodeConfigs}
}

// Change is a write of one object.
type Change struct {
	Verb     Verb
	Resource Resource
	// Object is the new one, or the one to delete; Old is the one before an update.
	Object, Old client.Object
}

// Changes are the writes that lead from one World to another: what is made first, what is
// deleted last, Networks before the Ports on them, and Services before their EndpointSlices.
func Changes(from, to *World) []Change {
	var list []Change
	list = append(list, compare(Routers, from.Routers, to.Routers)...)
	list = append(list, compare(Networks, from.Networks, to.Networks)...)
	list = append(list, compare(Ports, from.Ports, to.Ports)...)
	list = append(list, compare(Services, from.Services, to.Services)...)
	list = append(list, compare(Slices, from.Slices, to.Slices)...)
	list = append(list, compare(Policies, from.Policies, to.Policies)...)
	for _, r := range OtherObjects() {
		list = append(list, compare(r, from.Objects[r], to.Objects[r])...)
	}
	order := map[Verb]int{Create: 0, Update: 1, Delete: 2}
	slices.SortStableFunc(list, func(a, b Change) int { return cmp.Compare(order[a.Verb], order[b.Verb]) })
	return list
}

func compare[K comparable, O client.Object](r Resource, from, to map[K]O) []Change {
	var list []Change
	for key, o := range to {
		old, there := from[key]
		switch {
		case !there:
			list = append(list, Change{Verb: Create, Resource: r, Object: o})
		case !reflect.DeepEqual(old, o):
			list = append(list, Change{Verb: Update, Resource: r, Object: o, Old: old})
		}
	}
	for key, old := range from {
		if _, there := to[key]; !there {
			list = append(list, Change{Verb: Delete, Resource: r, Object: old})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return byName(a.Object, b.Object) })
	return list
}

// alive reports that an object is not being deleted: one that is has no entry any more.
func alive(o client.Object) bool { return o.GetDeletionTimestamp().IsZero() }
