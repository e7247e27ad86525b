// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
)

// claim is a fixed address of a Network.
type claim struct {
	network string
	addr    netip.Addr
}

// sameSpec says whether a Port is that of the same interface of the same pod, asked for
// in the same way.
func sameSpec(a, b *v1alpha1.Port) bool {
	return a.Spec.Pod != nil && *a.Spec.Pod == *b.Spec.Pod && a.Spec.Network == b.Spec.Network &&
		a.Spec.MAC == b.Spec.MAC && a.Spec.NeutronPort == b.Spec.NeutronPort &&
		a.Spec.Node == b.Spec.Node && slices.Equal(a.Spec.Addresses, b.Spec.Addresses) &&
		a.Labels[v1alpha1.LabelPodPort] == b.Labels[v1alpha1.LabelPodPort]
}

// sameStatus compares what the agent writes.
func sameStatus(a, b v1alpha1.PortStatus) bool {
	return a.Phase == b.Phase && a.Node == b.Node && a.MAC == b.MAC && slices.Equal(a.Addresses, b.Addresses) &&
		slices.Equal(a.NodeAddresses, b.NodeAddresses) && a.BoundTime.Equal(b.BoundTime) && a.LastError == b.LastError
}
