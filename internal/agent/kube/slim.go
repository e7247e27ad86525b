// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/internal/wellknown"
)

// slim keeps of an object what the agent reads: a node's status alone is some ten kilobytes, and
// every agent holds all nodes.
func (c *Client) slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		n := slimNode(o)
		// Of other nodes these are not read.
		for _, key := range []string{
			v1alpha1.AnnotationNetworkConfig, v1alpha1.AnnotationNeutronPort, v1alpha1.AnnotationNeutronVLAN,
			v1alpha1.AnnotationTrunkPort,
		} {
			if value, ok := o.Annotations[key]; ok && o.Name == c.node {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
			}
		}
		return n, nil
	case *corev1.Pod:
		return slimPod(o), nil
	case *corev1.Namespace:
		return slimNamespace(o), nil
	case *v1alpha1.Network:
		// Counters change all the time.
		o.Status.Blocks, o.Status.AddressesUsed, o.Status.AddressesFree = 0, 0, 0
	case *v1alpha1.AddressBlock:
		o.Status.Used = 0
	case *v1alpha1.LoadBalancerPool:
		o.Status.Addresses, o.Status.Assigned = 0, 0
	case *v1alpha1.Port:
		// Leases are renewed all the time, and every agent holds all Ports.
		o.Status.Lease = nil
	}
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		unread := func(key, _ string) bool { return !slices.Contains(customAnnotations, key) }
		maps.DeleteFunc(m.GetAnnotations(), unread)
	}
	return obj, nil
}

// slimNode is the part of a node that the agent reads and remembers over its restarts.
func slimNode(n *corev1.Node) *corev1.Node {
	slim := &corev1.Node{
		ObjectMeta: slimMeta(n.ObjectMeta),
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	slim.Labels, slim.DeletionTimestamp = n.Labels, n.DeletionTimestamp
	for _, key := range nodeAnnotations {
		if value, ok := n.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, key, value)
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Key == wellknown.TaintToBeDeleted {
			slim.Spec.Taints = []corev1.Taint{{Key: t.Key, Effect: t.Effect}}
		}
	}
	return slim
}

// nodeAnnotations are those that agents write of their nodes.
var nodeAnnotations = []string{v1alpha1.AnnotationMTU, v1alpha1.AnnotationPhysicalNetworks}

// customAnnotations are those of Networks and NetworkAttachmentDefinitions that are read.
var customAnnotations = []string{v1alpha1.AnnotationKuryrNetwork, podnets.AnnotationKuryrConfig}

// podAnnotations are those that are read or written.
var podAnnotations = []string{
	podnets.AnnotationNetworks, podnets.AnnotationNetworkStatus, podnets.AnnotationNFNNetwork,
	podnets.AnnotationOVNInterfaces, wellknown.AnnotationConfigHash,
}

func slimPod(p *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{
		ObjectMeta: slimMeta(p.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase},
	}
	slim.Labels = p.Labels
	for _, key := range podAnnotations {
		if value, ok := p.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, key, value)
		}
	}
	return slim
}

func slimNamespace(n *corev1.Namespace) *corev1.Namespace {
	slim := &corev1.Namespace{ObjectMeta: slimMeta(n.ObjectMeta)}
	slim.Labels = n.Labels
	if value, ok := n.Annotations[v1alpha1.AnnotationAuditDenied]; ok {
		metav1.SetMetaDataAnnotation(&slim.ObjectMeta, v1alpha1.AnnotationAuditDenied, value)
	}
	return slim
}

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
	}
}

// nodeRelevant leaves out the heartbeats: each node changes every few seconds in what the agent
// does not read.
func nodeRelevant(a, b *corev1.Node) bool {
	return a.UID != b.UID || a.Spec.PodCIDR != b.Spec.PodCIDR || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) ||
		!slices.Equal(a.Status.Addresses, b.Status.Addresses) || !maps.Equal(a.Labels, b.Labels) ||
		wellknown.NodeLeaving(a) != wellknown.NodeLeaving(b) ||
		!maps.Equal(a.Annotations, b.Annotations)
}

// podRelevant is true for a pod that was replaced by one of the same name, has ended, or asks for
// something else; and for one with other labels, by which Egresses select it.
func podRelevant(a, b *corev1.Pod) bool {
	return a.UID != b.UID || a.Status.Phase != b.Status.Phase || !maps.Equal(a.Annotations, b.Annotations) ||
		!maps.Equal(a.Labels, b.Labels)
}

func namespaceRelevant(a, b *corev1.Namespace) bool {
	return a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
}

// changed is true if more than the version of an object is another.
func changed[T runtime.Object](old, now T) bool {
	return !reflect.DeepEqual(withoutVersion(old), withoutVersion(now))
}

func withoutVersion(obj runtime.Object) runtime.Object {
	o := obj.DeepCopyObject()
	if m, err := meta.Accessor(o); err == nil {
		m.SetResourceVersion("")
	}
	return o
}
