// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"strings"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// operationalPods are the pods of Kubernetes, but those in their nodes' network, and users' Ports,
// as they are.
func operationalPods(w *World) []*podEntry {
	byUID := map[string]*podEntry{}
	for uid, p := range w.Pods {
		if p.Spec.HostNetwork || len(p.Status.PodIPs) == 0 {
			continue
		}
		byUID[string(uid)] = &podEntry{
			Uid: ygot.String(string(uid)), Name: ygot.String(p.Name), Network_NS: ygot.String(p.Namespace),
			HostIpAddress: optional(addressOf(w, p.Spec.NodeName, corev1.NodeInternalIP)),
			Interface:     map[string]*podInterface{},
		}
	}
	for _, e := range podEntries(w) {
		e.Interface, e.PortMacAddress = map[string]*podInterface{}, nil
		byUID[*e.Uid] = e
	}
	for _, p := range sortedPorts(w, true) {
		uid, id := podUID(p), readExtra(p).Interface
		if p.Spec.Pod != nil {
			uid = p.Spec.Pod.UID
		}
		if e := byUID[uid]; e != nil {
			addState(w, e, p, id)
		}
	}
	for uid, e := range byUID {
		if p := w.Pods[types.UID(uid)]; p != nil && len(e.Interface) == 0 {
			e.Interface[uid] = &podInterface{
				Uid: ygot.String(uid), IpAddress: ygot.String(canonicalAddress(p.Status.PodIPs[0].IP)),
				NetworkId:   ygot.String(defaultNetworkID),
				NetworkType: yangmodel.Pod_Coe_Pods_Interface_NetworkType_VXLAN,
			}
		}
	}
	return sortedEntries(byUID)
}

// addState adds the interface that a Port is.
func addState(w *World, e *podEntry, p *v1alpha1.Port, id string) {
	i := &podInterface{Uid: ygot.String(id), NetworkId: ygot.String(networkID(w, p.Spec.Network))}
	if len(p.Status.Addresses) > 0 {
		i.IpAddress = ygot.String(canonicalAddress(p.Status.Addresses[0]))
	}
	if n := w.Networks[p.Spec.Network]; n != nil {
		i.NetworkType = map[v1alpha1.NetworkType]yangmodel.E_Pod_Coe_Pods_Interface_NetworkType{
			v1alpha1.Overlay: yangmodel.Pod_Coe_Pods_Interface_NetworkType_VXLAN,
			v1alpha1.VLAN:    yangmodel.Pod_Coe_Pods_Interface_NetworkType_VLAN,
			v1alpha1.Flat:    yangmodel.Pod_Coe_Pods_Interface_NetworkType_FLAT,
		}[n.Spec.Type]
		i.SegmentationId = optional(uint32(max(n.Status.VNI, text(n.Spec.VLAN))))
	}
	e.Interface[id] = i
	if e.PortMacAddress == nil {
		e.PortMacAddress = optional(strings.ToLower(p.Status.MAC))
	}
	if p.Status.Node != "" {
		e.HostIpAddress = optional(addressOf(w, p.Status.Node, corev1.NodeInternalIP))
	}
}

// addressOf is a node's first address of a type; empty if it has none.
func addressOf(w *World, node string, typ corev1.NodeAddressType) string {
	n := w.Nodes[node]
	if n == nil {
		return ""
	}
	for _, a := range n.Status.Addresses {
		if a.Type == typ {
			return canonicalAddress(a.Address)
		}
	}
	return ""
}

type nodeEntry = yangmodel.K8SNode_K8SNodesInfo_K8SNodes

// nodes are the nodes of Kubernetes. Of an entry that is written it is only checked that it is
// right.
func nodes() *List {
	show := func(w *World) []ygot.GoStruct {
		var list []*nodeEntry
		for name, n := range w.Nodes {
			list = append(list, &nodeEntry{
				Uid: ygot.String(string(n.UID)), HostName: ygot.String(name), PodCidr: optional(n.Spec.PodCIDR),
				InternalIpAddress: optional(addressOf(w, name, corev1.NodeInternalIP)),
				ExternalIpAddress: optional(addressOf(w, name, corev1.NodeExternalIP)),
			})
		}
		return structs(list)
	}
	return &List{
		Container: "k8s-nodes-info", Name: "k8s-nodes", Reads: []Resource{Nodes},
		New: func() ygot.GoStruct { return &nodeEntry{} }, Entries: show, Write: writer(checkNode),
	}
}

// checkNode compares an entry with the node of Kubernetes that it is about.
func checkNode(w *World, e *nodeEntry) error {
	for name, n := range w.Nodes {
		if string(n.UID) != text(e.Uid) {
			continue
		}
		if host := text(e.HostName); host != "" && host != name {
			return invalid("host-name", fmt.Sprintf("is %q: the node of that uid is %s in Kubernetes", host, name))
		}
		address := text(e.InternalIpAddress)
		if address != "" && nodeOf(w, address) != name {
			return invalid("internal-ip-address",
				fmt.Sprintf("%s is no address of the node %s in Kubernetes", address, name))
		}
		return nil
	}
	return unsupported("uid", "there is no node of that uid in Kubernetes, and others are not kept")
}
