// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// Resources, with their group.
const (
	nodes       = "nodes"
	pods        = "pods"
	namespaces  = "namespaces"
	networks    = "networks.coelan.io"
	routers     = "routers.coelan.io"
	portObjects = "ports.coelan.io"
	blocks      = "addressblocks.coelan.io"
	pools       = "loadbalancerpools.coelan.io"
	floatingIPs = "floatingips.coelan.io"
	egresses    = "egresses.coelan.io"
	definitions = "network-attachment-definitions.k8s.cni.cncf.io"

	configMaps     = "configmaps"
	secrets        = "secrets"
	services       = "services"
	endpointSlices = "endpointslices.discovery.k8s.io"
	serviceCIDRs   = "servicecidrs.networking.k8s.io"
)

// kindOf is the kind and version of a resource.
func kindOf(resource string) (kind, version string) {
	coelan := v1alpha1.GroupVersion.String()
	switch resource {
	case nodes:
		return "Node", "v1"
	case pods:
		return "Pod", "v1"
	case namespaces:
		return "Namespace", "v1"
	case networks:
		return "Network", coelan
	case routers:
		return "Router", coelan
	case portObjects:
		return "Port", coelan
	case blocks:
		return "AddressBlock", coelan
	case pools:
		return "LoadBalancerPool", coelan
	case floatingIPs:
		return "FloatingIP", coelan
	case egresses:
		return "Egress", coelan
	case definitions:
		return "NetworkAttachmentDefinition", "k8s.cni.cncf.io/v1"
	case configMaps:
		return "ConfigMap", "v1"
	case secrets:
		return "Secret", "v1"
	case services:
		return "Service", "v1"
	case endpointSlices:
		return "EndpointSlice", "discovery.k8s.io/v1"
	case serviceCIDRs:
		return "ServiceCIDR", "networking.k8s.io/v1"
	}
	return "", "v1"
}

// set adds or replaces an object as it is, with its status.
func (a *API) set(resource string, o metav1.Object) {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is one of the types of the API
	}
	var raw object
	if err := json.Unmarshal(data, &raw); err != nil {
		panic(err)
	}
	raw["kind"], raw["apiVersion"] = kindOf(resource)
	key := objectKey(o.GetNamespace(), o.GetName())
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.objects[resource][key]; ok {
		for _, field := range []string{"uid", "creationTimestamp"} {
			raw.meta()[field] = old.meta()[field]
		}
	}
	a.born(raw, resource, key)
	a.put(resource, key, raw)
}

func (a *API) remove(resource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(resource, key)
}

func (a *API) has(resource, key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.objects[resource][key]
	return ok
}

// all are the objects of a resource.
func all[T any](a *API, resource string) []*T {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*T
	for _, o := range a.objects[resource] {
		data, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		t := new(T)
		if err := json.Unmarshal(data, t); err != nil {
			panic(err)
		}
		list = append(list, t)
	}
	return list
}

// Blocks are all AddressBlocks.
func (a *API) Blocks() []*v1alpha1.AddressBlock { return all[v1alpha1.AddressBlock](a, blocks) }

// Ports are all Ports.
func (a *API) Ports() []*v1alpha1.Port { return all[v1alpha1.Port](a, portObjects) }

// Pods are all pods.
func (a *API) Pods() []*corev1.Pod { return all[corev1.Pod](a, pods) }

// PhysicalNetworks are those that a node's object says it is connected to; false: it does not say.
func (a *API) PhysicalNetworks(node string) (names string, said bool) {
	for _, o := range all[corev1.Node](a, nodes) {
		if o.Name == node {
			names, said = o.Annotations[v1alpha1.AnnotationPhysicalNetworks]
		}
	}
	return names, said
}

// setNode publishes a node as kubelet and the controller manager would, with an administrator's
// annotations.
func (a *API) setNode(n *Node, annotations map[string]string) {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID("uid-" + n.Name), Annotations: annotations},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}},
	}
	for _, p := range n.PodCIDRs {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, p.String())
	}
	o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
	for _, p := range n.Addresses {
		o.Status.Addresses = append(o.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.Addr().String()})
	}
	a.set(nodes, o)
}

// setPod publishes a pod that is bound to its node.
func (a *API) setPod(p *Pod) {
	a.set(pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID),
			Labels: p.Labels, Annotations: p.Annotations},
		Spec:   corev1.PodSpec{NodeName: p.Node.Name},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
}

// AddNamespace publishes a namespace.
func (a *API) AddNamespace(name string, labels map[string]string) {
	a.set(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// AnnotateNamespace publishes a namespace with annotations and without labels.
func (a *API) AnnotateNamespace(name string, annotations map[string]string) {
	a.set(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}})
}

// firstVNI is where VNIs are allocated from.
const firstVNI = 70000

// number is one that no Network or Router has.
func (a *API) number() int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.numbers++
	return int32(a.numbers)
}

// AddRouter publishes a Router as the controller admits it. Two shared Routers meet
// in the Router default.
func (a *API) AddRouter(name string, spec v1alpha1.RouterSpec) {
	n := a.number()
	a.set(routers, &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
		Status: v1alpha1.RouterStatus{ID: 1 + n, VNI: firstVNI + n, Conditions: ready()},
	})
}

// ChangeRouter publishes another spec of a Router, which the controller has admitted.
func (a *API) ChangeRouter(name string, change func(*v1alpha1.RouterSpec)) error {
	return alter(a, routers, name, func(r *v1alpha1.Router) { change(&r.Spec) })
}

// RemoveRouter removes a Router.
func (a *API) RemoveRouter(name string) { a.remove(routers, name) }

// Shared is the spec of a Router that shares the address space of the cluster.
func Shared() v1alpha1.RouterSpec {
	targets := []string{v1alpha1.DefaultRouteTarget}
	return v1alpha1.RouterSpec{ImportRouteTargets: targets, ExportRouteTargets: targets}
}

// AddNetwork publishes a Network as the controller admits it, with a Router of its own
// if it names none.
func (a *API) AddNetwork(name string, spec v1alpha1.NetworkSpec) { a.AddNetworkAs(name, nil, spec) }

// AddNetworkAs is AddNetwork with annotations.
func (a *API) AddNetworkAs(name string, annotations map[string]string, spec v1alpha1.NetworkSpec) {
	a.addNetwork(metav1.ObjectMeta{Name: name, Annotations: annotations}, spec)
}

// AddNetworkOf publishes the Network with subnets of its own that the controller makes for a
// namespace, and the Router.
func (a *API) AddNetworkOf(namespace string, router v1alpha1.RouterSpec, cidrs ...string) (name string) {
	name = names.NamespaceRouter(namespace)
	a.AddRouter(name, router)
	spec := v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: name,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}
	for _, c := range cidrs {
		spec.Subnets = append(spec.Subnets, v1alpha1.Subnet{CIDR: c})
	}
	a.addNetwork(metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByController, v1alpha1.LabelNamespace: namespace,
	}}, spec)
	return name
}

func (a *API) addNetwork(meta metav1.ObjectMeta, spec v1alpha1.NetworkSpec) {
	name := meta.Name
	spec.Type = v1alpha1.NetworkType(orElse(string(spec.Type), string(v1alpha1.Overlay)))
	spec.Role = v1alpha1.NetworkRole(orElse(string(spec.Role), string(v1alpha1.Secondary)))
	spec.IPAM = v1alpha1.IPAM(orElse(string(spec.IPAM), string(v1alpha1.Blocks)))
	n := a.number()
	o := &v1alpha1.Network{
		ObjectMeta: meta, Spec: spec,
		Status: v1alpha1.NetworkStatus{ID: 1 + n, Conditions: ready()},
	}
	if spec.Type == v1alpha1.Overlay {
		o.Status.VNI, o.Status.Router = firstVNI+n, orElse(spec.Router, name)
		if spec.VNI != nil {
			o.Status.VNI = *spec.VNI
		}
		if spec.Router == "" {
			a.AddRouter(name, v1alpha1.RouterSpec{})
		}
	}
	a.set(networks, o)
}

// RemoveNetwork deletes a Network.
func (a *API) RemoveNetwork(name string) { a.remove(networks, name) }

// ChangeNetwork publishes another spec of a Network, which the controller has admitted.
func (a *API) ChangeNetwork(name string, change func(*v1alpha1.NetworkSpec)) error {
	return alter(a, networks, name, func(n *v1alpha1.Network) { change(&n.Spec) })
}

// AnnotateNetwork publishes other annotations of a Network.
func (a *API) AnnotateNetwork(name string, annotations map[string]string) error {
	return alter(a, networks, name, func(n *v1alpha1.Network) { n.Annotations = annotations })
}

// alter publishes an object as a change makes it of the one there is.
func alter[T any, P interface {
	*T
	metav1.Object
}](a *API, resource, name string, change func(P)) error {
	a.mu.Lock()
	data, err := json.Marshal(a.objects[resource][name])
	a.mu.Unlock()
	if err != nil {
		return err
	}
	var o P
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("%s has no object %s", resource, name)
	}
	change(o)
	a.set(resource, o)
	return nil
}

// AddPort publishes a user's Port as the controller admits it, with its addresses, which it has
// claimed for it.
func (a *API) AddPort(namespace, name, network, mac string, addresses ...string) {
	for _, text := range addresses {
		address := netip.MustParseAddr(text)
		prefix := netip.PrefixFrom(address, address.BitLen())
		a.set(blocks, &v1alpha1.AddressBlock{
			ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(network, prefix)},
			Spec: v1alpha1.AddressBlockSpec{Network: network, CIDR: prefix.String(),
				Port: namespace + "/" + name},
			Status: v1alpha1.AddressBlockStatus{Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
				Message: translate.GrantMessage(""), LastTransitionTime: metav1.Now(),
			}}},
		})
	}
	a.set(portObjects, &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.PortSpec{Network: network, MAC: mac, Addresses: addresses},
		Status:     v1alpha1.PortStatus{Phase: v1alpha1.PortReady, MAC: mac, Addresses: addresses},
	})
}

// ChangePort publishes another spec of a Port.
func (a *API) ChangePort(namespace, name string, change func(*v1alpha1.PortSpec)) error {
	return alter(a, portObjects, namespace+"/"+name, func(p *v1alpha1.Port) { change(&p.Spec) })
}

// RemovePort deletes a Port, and gives back its addresses.
func (a *API) RemovePort(namespace, name string) {
	a.remove(portObjects, namespace+"/"+name)
	for _, b := range a.Blocks() {
		if b.Spec.Port == namespace+"/"+name {
			a.remove(blocks, b.Name)
		}
	}
}

// AddFloatingIP publishes a FloatingIP of a Network that stands for a Port of its namespace, and
// that the controller has given its address.
func (a *API) AddFloatingIP(namespace, name, network, address, port string) {
	a.addFloatingIP(namespace, name, address, v1alpha1.FloatingIPSpec{Network: network, Port: port})
}

func (a *API) addFloatingIP(namespace, name, address string, spec v1alpha1.FloatingIPSpec) {
	whole := netip.PrefixFrom(netip.MustParseAddr(address), netip.MustParseAddr(address).BitLen())
	a.set(blocks, &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(spec.Network, whole)},
		Spec: v1alpha1.AddressBlockSpec{
			Network: spec.Network, CIDR: whole.String(), FloatingIP: namespace + "/" + name,
		},
	})
	a.set(floatingIPs, &v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec,
		Status: v1alpha1.FloatingIPStatus{Address: address},
	})
}

// AddServiceFloatingIP publishes a FloatingIP of a Network that stands for a Service of its
// namespace, and that the controller has given its address.
func (a *API) AddServiceFloatingIP(namespace, name, network, address, service string) {
	a.addFloatingIP(namespace, name, address, v1alpha1.FloatingIPSpec{Network: network, Service: service})
}

// RemoveFloatingIP deletes a FloatingIP, and gives back its address.
func (a *API) RemoveFloatingIP(namespace, name string) {
	a.remove(floatingIPs, namespace+"/"+name)
	for _, b := range a.Blocks() {
		if b.Spec.FloatingIP == namespace+"/"+name {
			a.remove(blocks, b.Name)
		}
	}
}

// AddDefinition publishes a NetworkAttachmentDefinition of Coelan's for a Network; or with another
// configuration, if one is given.
func (a *API) AddDefinition(namespace, name, network string, config ...string) {
	text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"coelan-cni","network":%q}`, name, network)
	if len(config) > 0 {
		text = strings.Join(config, "")
	}
	a.AddDefinitionAs(namespace, name, nil, text)
}

// AddDefinitionAs publishes a NetworkAttachmentDefinition with annotations.
func (a *API) AddDefinitionAs(namespace, name string, annotations map[string]string, config string) {
	a.set(definitions, &definition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       map[string]string{"config": config},
	})
}

type definition struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]string `json:"spec"`
}

func ready() []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		LastTransitionTime: metav1.Now(),
	}}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// kubeconfig is how a node's agent finds the API server.
func kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "http://%s"}}]
users: [{name: agent, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: agent}}]
current-context: lab
`, apiAddress)
}
