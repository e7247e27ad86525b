// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/wellknown"
)

// relevant leaves out updates that change nothing that intent is made of, of the kinds that are
// updated all the time.
func relevant(old, now any) bool {
	switch b := now.(type) {
	case *corev1.Node:
		a := old.(*corev1.Node)
		return a.UID != b.UID || !reconcile.SameNode(a, b) || wellknown.NodeLeaving(a) != wellknown.NodeLeaving(b) ||
			!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
	case *corev1.Pod:
		a := old.(*corev1.Pod)
		return a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) || a.Spec.HostNetwork != b.Spec.HostNetwork ||
			translate.OnPodNetwork(a) != translate.OnPodNetwork(b) ||
			wellknown.PodUID(a) != wellknown.PodUID(b)
	case *corev1.Namespace:
		a := old.(*corev1.Namespace)
		return !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
	case *v1alpha1.Network:
		return reconcile.NetworkChanged().Update(event.UpdateEvent{ObjectOld: old.(*v1alpha1.Network), ObjectNew: b})
	case *v1alpha1.LoadBalancerPool:
		a := old.(*v1alpha1.LoadBalancerPool)
		x, y := a.Status, b.Status
		x.Assigned = y.Assigned
		return a.UID != b.UID || a.Generation != b.Generation || !equality.Semantic.DeepEqual(x, y)
	}
	return true
}
