// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ServiceProblem is a Problem of a Service or of one of its EndpointSlices.
type ServiceProblem struct {
	// Service and its UID name the object for Events: the Service that the object of
	// the Problem belongs to.
	Service types.NamespacedName
	UID     string
	// Local says that it holds for this node only, such as a NodePort that its host uses. All
	// others are the same for all.
	Local bool
	Problem
}

func compareServiceProblems(a, b ServiceProblem) int {
	return cmp.Or(
		cmp.Compare(a.Service.Namespace, b.Service.Namespace), cmp.Compare(a.Service.Name, b.Service.Name),
		cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text),
		cmp.Compare(a.Value, b.Value),
	)
}

// ServiceProblems are what is wrong with Services and EndpointSlices for every node alike, sorted.
func ServiceProblems(services []*corev1.Service, endpointSlices []*discoveryv1.EndpointSlice) []ServiceProblem {
	s := NewServiceSet(ServiceView{})
	for _, o := range services {
		s.SetService(o)
	}
	for _, o := range endpointSlices {
		s.SetEndpointSlice(o)
	}
	s.Changes()
	return s.Problems()
}
