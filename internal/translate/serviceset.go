// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/intent"
)

// ServiceSet is all Services and EndpointSlices, in short form: it keeps nothing of the objects that it is given. What comes out
// of it depends only on what is in it, not on the order in which that came. It is for one goroutine.
type ServiceSet struct{}

// ServiceChanges are how intent differs from what it was at the call before.
type ServiceChanges struct {
	Changed []intent.Service // new ones among them, sorted by namespace and name
	Gone    []string         // namespace/name, sorted
	// Problems says that Problems() differ, too.
	Problems bool
}

// ServiceProblem is a Problem of a Service or of one of its EndpointSlices.
type ServiceProblem struct {
	// Service and its UID are whom to tell: the Service that the object of the Problem belongs to.
	Service types.NamespacedName
	UID     string
	// Local says that it holds for this node only, such as a NodePort that its host uses. All others are the same for all.
	Local bool
	Problem
}

// NewServiceSet makes an empty set.
func NewServiceSet(view ServiceView) *ServiceSet { return &ServiceSet{} }

// SetView replaces the view. All Services are translated anew.
func (s *ServiceSet) SetView(view ServiceView) {}

// RouterChanged says that the view's Router of one namespace is another one.
func (s *ServiceSet) RouterChanged(namespace string) {}

// NodePortChanged says that the view's NodePortTaken of one port is another.
func (s *ServiceSet) NodePortChanged(p intent.Protocol, port uint16) {}

// SetService adds or replaces a Service.
func (s *ServiceSet) SetService(svc *corev1.Service) {}

// DeleteService removes a Service; one that is not there is fine. Its EndpointSlices stay until they are deleted.
func (s *ServiceSet) DeleteService(namespace, name string) {}

// SetEndpointSlice adds or replaces an EndpointSlice, whose Service may come later.
func (s *ServiceSet) SetEndpointSlice(slice *discoveryv1.EndpointSlice) {}

// DeleteEndpointSlice removes an EndpointSlice; one that is not there is fine.
func (s *ServiceSet) DeleteEndpointSlice(namespace, name string) {}

// Services yields what SetService has added, in any order: after a new list, those that it does not hold are to be deleted, which
// may be done while iterating. Services that are not balanced are among them.
func (s *ServiceSet) Services() iter.Seq[types.NamespacedName] {
	return func(func(types.NamespacedName) bool) {}
}

// EndpointSlices yields what SetEndpointSlice has added and is of use, as Services does.
func (s *ServiceSet) EndpointSlices() iter.Seq[types.NamespacedName] {
	return func(func(types.NamespacedName) bool) {}
}

// Changes is how intent differs from what it was at the last call, or from nothing. It costs as much as what was changed meanwhile.
func (s *ServiceSet) Changes() ServiceChanges { return ServiceChanges{} }

// Problems are those of all Services, as of the last call of Changes, sorted.
func (s *ServiceSet) Problems() []ServiceProblem { return nil }

// ServiceProblems are what is wrong with Services and EndpointSlices for every node alike.
func ServiceProblems(services []*corev1.Service, endpointSlices []*discoveryv1.EndpointSlice) []ServiceProblem {
	return nil
}
