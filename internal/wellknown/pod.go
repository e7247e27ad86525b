// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/intent"
)

// AnnotationConfigHash of the mirror of a static pod is the UID by which its node knows the pod:
// see PodUID.
const AnnotationConfigHash = "kubernetes.io/config.hash"

// PodUID is the UID by which a pod's node knows it: that of a static pod is not its mirror's. Every
// user may write the annotation that has it, so it cannot be one that the API server gives.
func PodUID(o *corev1.Pod) string {
	if hash := o.Annotations[AnnotationConfigHash]; intent.IsStaticUID(hash) {
		return hash
	}
	return string(o.UID)
}
