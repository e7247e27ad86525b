// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/names"
)

// PodPort is the Port object of a pod's attachment on the named node. uid is the pod's in
// the API, which for a static pod is another than the runtime's; empty: not known, and the
// Port has no owner.
func PodPort(at attachment.Attachment, node, uid string) *v1alpha1.Port {
	p := &v1alpha1.Port{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Port"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.PodNamespace, Name: at.PortName,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent,
				v1alpha1.LabelNode:      names.LabelValue(node),
				v1alpha1.LabelNetwork:   names.LabelValue(at.NetworkName),
			},
		},
		Spec: v1alpha1.PortSpec{
			Network: at.NetworkName, Node: node,
			Pod: &v1alpha1.PortPod{Name: at.PodName, UID: uid, Interface: at.IfName}, NeutronPort: at.NeutronPort,
		},
		Status: v1alpha1.PortStatus{
			Phase: v1alpha1.PortBound, Node: node, MAC: at.MAC.String(), Addresses: addressTexts(at, false),
			NodeAddresses: addressTexts(at, true), BoundTime: &metav1.Time{Time: at.Created},
		},
	}
	if uid != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: at.PodName,
			UID: types.UID(uid)}}
	}
	if !Fixed(at) {
		p.Labels[v1alpha1.LabelPodPort] = "true"
	}
	if at.FixedAddresses {
		p.Spec.Addresses = p.Status.Addresses
	}
	if at.FixedMAC {
		p.Spec.MAC = p.Status.MAC
	}
	return p
}

// Fixed says whether other nodes have to know of an attachment's Port: its addresses or MAC were
// asked for, or are those of a port that was, and say nothing of where it is.
func Fixed(at attachment.Attachment) bool {
	return at.BlockSpace && (at.FixedAddresses || at.FixedMAC || at.NeutronPort != "")
}

func addressTexts(at attachment.Attachment, node bool) []string {
	list := at.Addresses
	if node {
		list = at.NodeAddresses
	}
	var texts []string
	for _, a := range list {
		texts = append(texts, a.Addr().String())
	}
	return texts
}

// OnPodNetwork says whether a pod has, or is to have, interfaces of Coelan's: it has a node, does
// not use the node's own network, and has not ended.
func OnPodNetwork(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork && !Ended(p)
}

// Ended reports whether nothing runs in a pod any more, for good.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
