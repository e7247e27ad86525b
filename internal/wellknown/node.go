// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// TaintToBeDeleted is on a node that the cluster autoscaler is about to remove.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeLeaving reports whether a node will go soon, so that load balancers should send it nothing
// new.
func NodeLeaving(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintToBeDeleted })
}
