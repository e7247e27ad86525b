// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// kind is a kind of objects of coelan.io, each of which is an entry of the module coelan.
type kind struct {
	container, list string
	resource        Resource
	// object, objects and entry are empty ones, of the API and of the module.
	object  func() client.Object
	objects func() client.ObjectList
	entry   func() ygot.GoStruct
	// guards are read before an entry is removed, for inUse: it returns an error if something
	// needs the object.
	guards []Resource
	inUse  func(w *World, o client.Object) error
	// made reports that an object is made by Coelan alone; nil: none is. Such objects are in the
	// operational data only.
	made func(o client.Object) bool
	// fixed reports that no client can write the objects.
	fixed bool
}

// kinds are those of coelan.io.
var kinds = []kind{
	{
		container: "networks", list: "network", resource: Networks,
		object:  func() client.Object { return &v1alpha1.Network{} },
		objects: func() client.ObjectList { return &v1alpha1.NetworkList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_Networks_Network{} },
		guards:  []Resource{Ports}, inUse: networkInUse,
	},
	{
		container: "routers", list: "router", resource: Routers,
		object:  func() client.Object { return &v1alpha1.Router{} },
		objects: func() client.ObjectList { return &v1alpha1.RouterList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_Routers_Router{} },
		guards:  []Resource{Networks}, inUse: routerInUse,
	},
	{
		container: "ports", list: "port", resource: Ports,
		object:  func() client.Object { return &v1alpha1.Port{} },
		objects: func() client.ObjectList { return &v1alpha1.PortList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_Ports_Port{} },
		guards:  []Resource{Routers, Networks},
		inUse:   func(w *World, o client.Object) error { return usedByRoutes(w, o.(*v1alpha1.Port), "name") },
		made:    func(o client.Object) bool { return o.(*v1alpha1.Port).Spec.ByAgent() },
	},
	{
		container: "address-blocks", list: "address-block", resource: Blocks, fixed: true,
		object:  func() client.Object { return &v1alpha1.AddressBlock{} },
		objects: func() client.ObjectList { return &v1alpha1.AddressBlockList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_AddressBlocks_AddressBlock{} },
	},
	{
		container: "floating-ips", list: "floating-ip", resource: FloatingIPs,
		object:  func() client.Object { return &v1alpha1.FloatingIP{} },
		objects: func() client.ObjectList { return &v1alpha1.FloatingIPList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_FloatingIps_FloatingIp{} },
	},
	{
		container: "egresses", list: "egress", resource: Egresses,
		object:  func() client.Object { return &v1alpha1.Egress{} },
		objects: func() client.ObjectList { return &v1alpha1.EgressList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_Egresses_Egress{} },
	},
	{
		container: "load-balancer-pools", list: "load-balancer-pool", resource: Pools,
		object:  func() client.Object { return &v1alpha1.LoadBalancerPool{} },
		objects: func() client.ObjectList { return &v1alpha1.LoadBalancerPoolList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_LoadBalancerPools_LoadBalancerPool{} },
		inUse:   poolInUse,
	},
	{
		container: "security-groups", list: "security-group", resource: Groups,
		object:  func() client.Object { return &v1alpha1.SecurityGroup{} },
		objects: func() client.ObjectList { return &v1alpha1.SecurityGroupList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_SecurityGroups_SecurityGroup{} },
		guards:  []Resource{Ports, Pods}, inUse: groupInUse,
	},
	{
		container: "node-network-configs", list: "node-network-config", resource: NodeConfigs,
		object:  func() client.Object { return &v1alpha1.NodeNetworkConfig{} },
		objects: func() client.ObjectList { return &v1alpha1.NodeNetworkConfigList{} },
		entry:   func() ygot.GoStruct { return &yangmodel.Coelan_NodeNetworkConfigs_NodeNetworkConfig{} },
	},
}

// objectLists are the lists of the module coelan.
func objectLists() []*List {
	lists := make([]*List, 0, len(kinds))
	for _, k := range kinds {
		l := &List{
			Container: k.container, Name: k.list, Object: k.resource,
			Reads: []Resource{k.resource}, Guards: k.guards, New: k.entry, Show: k.show,
		}
		if !k.fixed {
			l.Edit, l.Remove = k.edit, k.remove
		}
		if k.made != nil {
			l.Kept = k.kept
		}
		lists = append(lists, l)
	}
	return lists
}

// NewObject is an empty object of a resource of coelan.io.
func NewObject(r Resource) client.Object { return kindOf(r).object() }

// NewObjectList is an empty list of such objects.
func NewObjectList(r Resource) client.ObjectList { return kindOf(r).objects() }

func kindOf(r Resource) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.resource == r })]
}

// objectKey is the name that an entry's key means.
func (k kind) objectKey(key string) types.NamespacedName { return ObjectKey(k.resource, key) }

// ObjectKey is the name that the key of an entry of the module coelan means.
func ObjectKey(r Resource, key string) types.NamespacedName {
	if r == Ports || r == FloatingIPs || r == Groups {
		namespace, name, _ := strings.Cut(key, "/")
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Name: key}
}

// show are the entries; with only, that of a key alone.
func (k kind) show(w *World, n *datatree.Node, operational bool, only string) []map[string]any {
	var list []map[string]any
	if only != "" {
		if o := w.object(k.resource, k.objectKey(only)); o != nil {
			list = k.appendEntry(list, n, operational, o)
		}
		return list
	}
	for _, o := range w.objects(k.resource) {
		list = k.appendEntry(list, n, operational, o)
	}
	return list
}

func (k kind) appendEntry(list []map[string]any, n *datatree.Node, operational bool, o client.Object,
) []map[string]any {
	if !alive(o) || !operational && k.made != nil && k.made(o) {
		return list
	}
	entry := map[string]any{"name": o.GetName()}
	if o.GetNamespace() != "" {
		entry["namespace"] = o.GetNamespace()
	}
	if text := o.GetAnnotations()[AnnotationDescription]; text != "" {
		entry["description"] = text
	}
	v := reflect.ValueOf(o).Elem()
	showFields(n, v.FieldByName("Spec"), entry)
	if mac, ok := entry["mac"].(string); ok {
		entry["mac"] = strings.ToLower(mac)
	}
	if status := showValue(n.Children["status"], v.FieldByName("Status")); status != nil {
		entry["status"] = status
	}
	return append(list, entry)
}

// edit makes an object be as its entry says.
func (k kind) edit(w *World, n *datatree.Node, entry map[string]any) error {
	key := types.NamespacedName{Name: entry["name"].(string)}
	key.Namespace, _ = entry["namespace"].(string)
	o := w.object(k.resource, key)
	switch {
	case o == nil:
		o = k.object()
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
	case !alive(o):
		return datatree.Fail(datatree.InUse, "name", fmt.Sprintf("the object %s is being deleted", key))
	case k.made != nil && k.made(o):
		return unsupported("name", fmt.Sprintf("%s is made by Coelan, for what is plugged", key))
	default:
		o = o.DeepCopyObject().(client.Object)
	}
	v := reflect.ValueOf(o).Elem()
	mac := macOf(o)
	if err := setFields(n, entry, v.FieldByName("Spec")); err != nil {
		return err
	}
	// A MAC in other letters is the same, and stays as its author wrote it.
	if p, ok := o.(*v1alpha1.Port); ok && strings.EqualFold(p.Spec.MAC, mac) {
		p.Spec.MAC = mac
	}
	text, _ := entry["description"].(string)
	setDescription(v.FieldByName("ObjectMeta").Addr().Interface().(*metav1.ObjectMeta), text)
	w.Put(k.resource, o)
	return nil
}

func macOf(o client.Object) string {
	if p, ok := o.(*v1alpha1.Port); ok {
		return p.Spec.MAC
	}
	return ""
}

// remove removes an object that nothing needs.
func (k kind) remove(w *World, key string) error {
	at := k.objectKey(key)
	o := w.object(k.resource, at)
	if o == nil || !alive(o) {
		return datatree.NotFound("name")
	}
	if k.made != nil && k.made(o) {
		return unsupported("name", fmt.Sprintf("%s is made by Coelan, for what is plugged", at))
	}
	if k.inUse != nil {
		if err := k.inUse(w, o); err != nil {
			return err
		}
	}
	w.remove(k.resource, at)
	return nil
}

// kept are the keys of objects that Coelan makes.
func (k kind) kept(w *World) []string {
	var keys []string
	for _, o := range w.objects(k.resource) {
		if k.made(o) {
			keys = append(keys, client.ObjectKeyFromObject(o).String())
		}
	}
	return keys
}

func networkInUse(w *World, o client.Object) error {
	return mayRemoveNetwork(w, o.(*v1alpha1.Network), "name")
}

func routerInUse(w *World, o client.Object) error {
	return mayRemoveRouter(w, o.(*v1alpha1.Router), "name")
}

func poolInUse(_ *World, o client.Object) error {
	if n := o.(*v1alpha1.LoadBalancerPool).Status.Assigned; n > 0 {
		return datatree.Fail(datatree.InUse, "name",
			fmt.Sprintf("Services have %d addresses of the pool %s", n, o.GetName()))
	}
	return nil
}

// groupInUse returns an error for a SecurityGroup that a Port or pod is of: without the group, it
// would be closed.
func groupInUse(w *World, o client.Object) error {
	fail := func(what, name string) error {
		return datatree.Fail(datatree.InUse, "name",
			fmt.Sprintf("the %s %s is of the SecurityGroup %s", what, name, client.ObjectKeyFromObject(o)))
	}
	for key, p := range w.Ports {
		if key.Namespace == o.GetNamespace() && alive(p) && slices.Contains(p.Spec.SecurityGroups, o.GetName()) {
			return fail("Port", key.String())
		}
	}
	for _, p := range w.Pods {
		if p.Namespace != o.GetNamespace() || !alive(p) {
			continue
		}
		for name := range strings.SplitSeq(p.Annotations[v1alpha1.AnnotationSecurityGroups], ",") {
			if strings.TrimSpace(name) == o.GetName() {
				return fail("pod", p.Namespace+"/"+p.Name)
			}
		}
	}
	return nil
}
