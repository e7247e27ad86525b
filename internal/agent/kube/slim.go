// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slim keeps of a node or pod what the agent reads: a node's status alone is some ten kilobytes, and every agent holds
// all nodes.
func slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		return Slim(o), nil
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: slimMeta(o.ObjectMeta),
			Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork},
			Status:     corev1.PodStatus{Phase: o.Status.Phase},
		}, nil
	}
	return obj, nil
}

// Slim is the part of a node that the agent reads and remembers over its restarts.
func Slim(n *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: slimMeta(n.ObjectMeta),
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
}

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
	}
}

// nodeRelevant leaves out the heartbeats: each node changes every few seconds in what the agent does not read.
func nodeRelevant(old, now any) bool {
	a, b := old.(*corev1.Node), now.(*corev1.Node)
	return a.UID != b.UID || a.Spec.PodCIDR != b.Spec.PodCIDR || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) ||
		!slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

// podRelevant is true for a pod that was replaced by one of the same name, or has ended.
func podRelevant(old, now any) bool {
	a, b := old.(*corev1.Pod), now.(*corev1.Pod)
	return a.UID != b.UID || a.Status.Phase != b.Status.Phase
}
