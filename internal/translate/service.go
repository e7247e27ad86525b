// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"coelan.io/coelan/internal/intent"
)

// ServiceView is what a Service's intent depends on besides Kubernetes' Services and EndpointSlices. The zero value is nobody's
// view: of a node without name and zone, with all namespaces in the Router default.
type ServiceView struct {
	Node string // the name of this node
	Zone string // the value of its label topology.kubernetes.io/zone, "" if it has none
	// Router is the name of the Router of a namespace's Network, "" if it is not known yet: Services of the namespace are then
	// left out.
	Router func(namespace string) string
	// NodePortTaken says that a process of the host itself listens on a port.
	NodePortTaken func(p intent.Protocol, port uint16) bool
}

// Service translates one Service and its EndpointSlices: slices of other Services are skipped. It is false for what is not
// balanced: headless and ExternalName, or left to another proxy. What other Services have is not looked at; see ServiceSet.
func Service(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, view ServiceView) (intent.Service, bool, []Problem) {
	return intent.Service{}, false, nil
}
