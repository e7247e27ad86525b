// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// LabelPod on a Port is the uid of the entry of pod:coe that it is an interface of. AnnotationPod
// has the entry's leaves that a Port has no field for.
const (
	LabelPod      = "coelan.io/restconf-pod"
	AnnotationPod = "coelan.io/restconf-pod"
)

// defaultNetworkID is what COE's watcher sends as the network of every pod.
const defaultNetworkID = "00000000-0000-0000-0000-000000000000"

// defaultNamespace is that of entries without one.
const defaultNamespace = metav1.NamespaceDefault

type (
	podEntry     = yangmodel.Pod_Coe_Pods
	podInterface = yangmodel.Pod_Coe_Pods_Interface
)

// extra is the text of AnnotationPod.
type extra struct {
	Interface      string  `json:"interface"`
	Version        string  `json:"version,omitempty"`
	Name           string  `json:"name,omitempty"`
	HostIPAddress  string  `json:"host-ip-address,omitempty"`
	ClusterID      string  `json:"cluster-id,omitempty"`
	NetworkNS      string  `json:"network-NS,omitempty"`
	NetworkType    string  `json:"network-type,omitempty"`
	SegmentationID *uint32 `json:"segmentation-id,omitempty"`
}

// pods are users' Ports as pod:coe; in operation the pods of Kubernetes as well.
func pods() *List {
	return &List{
		Container: "coe", Name: "pods",
		Reads:       []Resource{Ports, Networks, Pods, Nodes},
		Guards:      []Resource{Routers},
		Single:      Always,
		New:         func() ygot.GoStruct { return &podEntry{} },
		Entries:     func(w *World) []ygot.GoStruct { return structs(podEntries(w)) },
		Operational: func(w *World) []ygot.GoStruct { return structs(operationalPods(w)) },
		Write:       writer(writePod),
		Remove:      removePod,
	}
}

// podUID is the uid of the entry that a user's Port is an interface of.
func podUID(p *v1alpha1.Port) string {
	if uid := p.Labels[LabelPod]; uid != "" {
		return uid
	}
	return string(p.UID)
}

// readExtra is what the annotation says; nothing if a client of Kubernetes has broken it.
func readExtra(p *v1alpha1.Port) extra {
	var x extra
	if text := p.Annotations[AnnotationPod]; text != "" {
		if json.Unmarshal([]byte(text), &x) != nil {
			x = extra{}
		}
	}
	if x.Interface == "" {
		x.Interface = string(p.UID)
	}
	return x
}

// podEntries are the users' Ports by the pods that they are interfaces of.
func podEntries(w *World) []*podEntry {
	byUID := map[string]*podEntry{}
	for _, p := range sortedPorts(w, false) {
		uid, x := podUID(p), readExtra(p)
		e := byUID[uid]
		if e == nil {
			e = &podEntry{
				Uid: ygot.String(uid), Version: optional(x.Version), Name: optional(x.Name),
				HostIpAddress: optional(x.HostIPAddress), ClusterId: optional(x.ClusterID),
				Network_NS: optional(x.NetworkNS), Interface: map[string]*podInterface{},
			}
			if p.Labels[LabelPod] == "" {
				e.Name, e.Network_NS = ygot.String(p.Name), ygot.String(p.Namespace)
			}
			byUID[uid] = e
		}
		if e.PortMacAddress == nil && p.Spec.MAC != "" {
			e.PortMacAddress = ygot.String(strings.ToLower(p.Spec.MAC))
		}
		e.Interface[x.Interface] = showPodInterface(w, p, x)
	}
	return sortedEntries(byUID)
}

func sortedEntries(byUID map[string]*podEntry) []*podEntry {
	var list []*podEntry
	for _, uid := range slices.Sorted(maps.Keys(byUID)) {
		list = append(list, byUID[uid])
	}
	return list
}

func showPodInterface(w *World, p *v1alpha1.Port, x extra) *podInterface {
	i := &podInterface{
		Uid: ygot.String(x.Interface), NetworkId: ygot.String(networkID(w, p.Spec.Network)),
		NetworkType: podNetworkTypes[x.NetworkType], SegmentationId: x.SegmentationID,
	}
	if len(p.Spec.Addresses) > 0 {
		i.IpAddress = ygot.String(canonicalAddress(p.Spec.Addresses[0]))
	}
	return i
}

// podNetworkTypes are the values of network-type by their names.
var podNetworkTypes = map[string]yangmodel.E_Pod_Coe_Pods_Interface_NetworkType{
	"FLAT": yangmodel.Pod_Coe_Pods_Interface_NetworkType_FLAT, "VLAN": yangmodel.Pod_Coe_Pods_Interface_NetworkType_VLAN,
	"VXLAN": yangmodel.Pod_Coe_Pods_Interface_NetworkType_VXLAN, "GRE": yangmodel.Pod_Coe_Pods_Interface_NetworkType_GRE,
}

func podNetworkTypeName(t yangmodel.E_Pod_Coe_Pods_Interface_NetworkType) string {
	for name, value := range podNetworkTypes {
		if value == t {
			return name
		}
	}
	return ""
}

// networkID is how pod:coe calls a Network.
func networkID(w *World, network string) string {
	if network == v1alpha1.DefaultNetwork {
		return defaultNetworkID
	}
	return elanNameOf(w, network)
}

// networkOf is the Network that a network-id means.
func networkOf(w *World, id string) (string, error) {
	if id == "" || id == defaultNetworkID {
		return v1alpha1.DefaultNetwork, nil
	}
	if n := findNetwork(w, id); n != nil {
		return n.Name, nil
	}
	id = strings.ToLower(id)
	if err := checkName(id, "interface/network-id", maxName); err != nil {
		return "", err
	}
	return networkName(w, id), nil
}

// writePod makes the Ports of an entry's interfaces. The pods of Kubernetes have theirs: of such an
// entry it is only checked that it is right.
func writePod(w *World, e *podEntry) error {
	uid := text(e.Uid)
	if p := w.Pods[types.UID(uid)]; p != nil {
		return checkPod(p, e)
	}
	if len(e.Interface) == 0 {
		return datatree.Fail(datatree.MissingElement, "interface", "a pod outside of Kubernetes needs an interface")
	}
	namespace := text(e.Network_NS)
	if namespace == "" {
		namespace = defaultNamespace
	}
	if err := checkName(namespace, "network-NS", maxName); err != nil {
		return err
	}
	mac, err := podMAC(e)
	if err != nil {
		return err
	}
	old := map[string]*v1alpha1.Port{}
	for _, p := range sortedPorts(w, false) {
		if podUID(p) == uid {
			old[readExtra(p).Interface] = p
			delete(w.Ports, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.Interface)) {
		p, err := writePodInterface(w, e, e.Interface[id], old[id], namespace, mac)
		if err != nil {
			return err
		}
		mac = "" // it is that of the first
		w.Ports[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	}
	return nil
}

// podMAC is the MAC address that the entry has; COE's watcher sends an empty one.
func podMAC(e *podEntry) (string, error) {
	mac := text(e.PortMacAddress)
	if mac == "" {
		return "", nil
	}
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != 6 {
		return "", invalid("port-mac-address", fmt.Sprintf("%q is no MAC address", mac))
	}
	return hw.String(), nil
}

// writePodInterface is the Port of an interface; old is the one before, if there is one.
func writePodInterface(w *World, e *podEntry, i *podInterface, old *v1alpha1.Port, namespace, mac string,
) (*v1alpha1.Port, error) {
	uid, id := text(e.Uid), text(i.Uid)
	network, err := networkOf(w, text(i.NetworkId))
	if err != nil {
		return nil, err
	}
	name := uid
	if id != uid {
		name = uid + "." + id
	}
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	switch {
	case old != nil && old.Namespace != namespace:
		return nil, invalid("network-NS", fmt.Sprintf("cannot be changed: the pod is in %s", old.Namespace))
	case old != nil:
		p = old.DeepCopy()
	case w.Ports[key] != nil:
		return nil, datatree.Fail(datatree.DataExists, "interface", fmt.Sprintf("there is a Port %s already", key))
	}
	if old == nil || old.Labels[LabelPod] != "" {
		if err := setExtra(p, e, i); err != nil {
			return nil, err
		}
	}
	if node := nodeOf(w, text(e.HostIpAddress)); node != "" || old == nil || old.Labels[LabelPod] != "" {
		p.Spec.Node = node
	}
	if old != nil && len(old.Spec.Addresses) > 0 && canonicalAddress(old.Spec.Addresses[0]) == text(i.IpAddress) &&
		old.Spec.Network == network && strings.EqualFold(old.Spec.MAC, mac) {
		return p, nil
	}
	p.Spec.Network, p.Spec.MAC, p.Spec.Addresses = network, mac, nil
	if i.IpAddress != nil {
		p.Spec.Addresses = []v1alpha1.Address{*i.IpAddress}
	}
	return p, nil
}

// setExtra writes the label and the annotation.
func setExtra(p *v1alpha1.Port, e *podEntry, i *podInterface) error {
	data, err := json.Marshal(extra{
		Interface: text(i.Uid), Version: text(e.Version), Name: text(e.Name), HostIPAddress: text(e.HostIpAddress),
		ClusterID: text(e.ClusterId), NetworkNS: text(e.Network_NS), NetworkType: podNetworkTypeName(i.NetworkType),
		SegmentationID: i.SegmentationId,
	})
	if err != nil {
		return err
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, LabelPod, text(e.Uid))
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, AnnotationPod, string(data))
	return nil
}

// nodeOf is the name of the node with that address; empty if it is no node of the cluster.
func nodeOf(w *World, address string) string {
	for name, n := range w.Nodes {
		for _, a := range n.Status.Addresses {
			if a.Address == address && address != "" {
				return name
			}
		}
	}
	return ""
}

// checkPod compares an entry with the pod of Kubernetes that it is about.
func checkPod(p *corev1.Pod, e *podEntry) error {
	if name := text(e.Name); name != "" && name != p.Name {
		return invalid("name",
			fmt.Sprintf("is %q: the pod of that uid is %s/%s in Kubernetes", name, p.Namespace, p.Name))
	}
	if ns := text(e.Network_NS); ns != "" && ns != p.Namespace {
		return invalid("network-NS",
			fmt.Sprintf("is %q: the pod of that uid is %s/%s in Kubernetes", ns, p.Namespace, p.Name))
	}
	for _, i := range e.Interface {
		address := text(i.IpAddress)
		known := func(ip corev1.PodIP) bool { return canonicalAddress(ip.IP) == address }
		if address != "" && text(i.NetworkId) == defaultNetworkID && !slices.ContainsFunc(p.Status.PodIPs, known) {
			return invalid("interface/ip-address", fmt.Sprintf("%s is no address of the pod %s/%s in Kubernetes",
				address, p.Namespace, p.Name))
		}
	}
	return nil
}

func removePod(w *World, uid string) error {
	found := false
	for key, p := range w.Ports {
		if !p.Spec.ByAgent() && alive(p) && podUID(p) == uid {
			if err := usedByRoutes(w, p, "uid"); err != nil {
				return err
			}
			delete(w.Ports, key)
			found = true
		}
	}
	if !found {
		return datatree.NotFound("uid")
	}
	return nil
}
